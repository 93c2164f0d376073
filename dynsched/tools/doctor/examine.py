"""One run of the doctor: asks the servers, and makes all checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from dynsched.engine.match import index_nodes
from dynsched.kube.client import open_client
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.decode import answer_limit
from dynsched.tools.doctor.ask_cluster import ask_cluster
from dynsched.tools.doctor.ask_prometheus import NotReachedError, ask_prometheus
from dynsched.tools.doctor.checks_cluster import (
    admission,
    cancelled,
    few_react,
    metrics_server,
    neighbours,
    rights,
)
from dynsched.tools.doctor.checks_extender import check_extender
from dynsched.tools.doctor.checks_nodes import marks, no_marks
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.finding import NotChecked, Report, Told, findings
from dynsched.tools.doctor.gathered import ClusterFacts, World
from dynsched.tools.running import Where
from dynsched.util.errors import ExpectedError

_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""
_OF_CLUSTER: Final[tuple[tuple[str, Callable[[ClusterFacts, RuleSet], Iterator[Told]]], ...]] = (
    ("P0", metrics_server),
    ("N2", marks),
    ("N2", no_marks),
    ("W1", few_react),
    ("W2", cancelled),
    ("K1", rights),
    ("K1", admission),
    ("K2", neighbours),
)


def examine(
    rule_set: RuleSet,
    where: Where,
    *,
    prometheus: PrometheusConfig,
    lease_namespace: str | None,
    interval: float,
) -> Report:
    """All that is wrong. ``where``: the cluster, and the running dynsched that is asked;
    ``interval``: seconds between its ticks. Raises nothing for what the servers do.
    """
    report = Report()

    async def ask() -> tuple[World | None, ClusterFacts | None]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                opened = open_client(where.kubeconfig, where.context)
                client = await stack.enter_async_context(opened)
                nodes = await client.list_nodes()
            except ExpectedError as error:
                report.unreachable.append(str(error))
                return await _ask_prometheus(prometheus, report, World(rule_set, interval)), None
            world = World(rule_set, interval, nodes, index_nodes(nodes.values()))
            # Side by side: each waits for its own server, most of the time.
            return await asyncio.gather(
                _ask_prometheus(prometheus, report, world),
                ask_cluster(client, nodes, rule_set, lease_namespace),
            )

    world, cluster = asyncio.run(ask())
    if world is not None:
        report.add(check_rules(world))
    if cluster is not None:
        check_cluster(cluster, rule_set, report)
    report.add(check_extender(where, rule_set))
    return report


async def _ask_prometheus(config: PrometheusConfig, report: Report, world: World) -> World | None:
    limit = answer_limit(len(world.nodes), len(world.rule_set.rules))
    source = PrometheusSource(config, limit=lambda: limit, max_concurrency=_AT_ONCE)
    try:
        return await ask_prometheus(source, world)
    except NotReachedError as error:
        report.unreachable.append(str(error))
        return None
    finally:
        await source.close()


def check_cluster(cluster: ClusterFacts, rule_set: RuleSet, report: Report) -> None:
    report.add(NotChecked(code, None, error) for code, error in cluster.errors.items())
    for code, check in _OF_CLUSTER:
        report.add(findings(code, check(cluster, rule_set)))
