"""One run of the doctor: asks the servers, and makes all checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from dynsched.engine.guard import is_eligible
from dynsched.engine.match import index_nodes
from dynsched.engine.model import Node
from dynsched.kube.client import KubeClient
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.answer_limit import answer_limit
from dynsched.tools.doctor.ask_cluster import ask_cluster, open_client
from dynsched.tools.doctor.ask_prometheus import NotReachedError, ask_prometheus
from dynsched.tools.doctor.checks_cluster import (
    check_admission,
    check_metrics,
    check_neighbours,
    check_rights,
)
from dynsched.tools.doctor.checks_extender import ask_extender, check_extender
from dynsched.tools.doctor.checks_nodes import check_clocks, check_coverage, check_marks
from dynsched.tools.doctor.checks_reach import check_reach
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.finding import NotChecked, Report
from dynsched.tools.doctor.gathered import ClusterFacts, PrometheusFacts
from dynsched.tools.running import Where
from dynsched.util.errors import ExpectedError

_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""


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
    asyncio.run(_examine(report, rule_set, where, prometheus, lease_namespace, interval=interval))
    metrics = ask_extender(where, rule_set)
    if isinstance(metrics, NotChecked):
        report.add([metrics])
    elif metrics is not None:
        report.add(check_extender(metrics))
    return report


async def _examine(
    report: Report,
    rule_set: RuleSet,
    where: Where,
    config: PrometheusConfig,
    lease_namespace: str | None,
    *,
    interval: float,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client, nodes = await _nodes(where, stack, report)
        # Side by side: each waits for its own server, most of the time.
        prometheus, cluster = await asyncio.gather(
            _ask_prometheus(config, rule_set, len(nodes), report),
            _ask_cluster(client, nodes, rule_set, lease_namespace),
        )
    if prometheus is not None:
        index = None if cluster is None else index_nodes(nodes.values())
        report.add(check_rules(prometheus, rule_set, interval, index))
        report.add(check_clocks(prometheus, rule_set))
        if index is not None:
            report.add(check_coverage(prometheus, nodes, rule_set, index))
    if cluster is not None:
        _check_cluster(cluster, rule_set, report)


async def _nodes(
    where: Where, stack: contextlib.AsyncExitStack, report: Report
) -> tuple[KubeClient | None, Mapping[str, Node]]:
    """The client, and all nodes; none where they cannot be listed."""
    try:
        opened = open_client(where.kubeconfig, where.context)
        client = await stack.enter_async_context(opened)
        return client, await client.list_nodes()
    except ExpectedError as error:
        report.unreachable.append(str(error))
        return None, {}


async def _ask_cluster(
    client: KubeClient | None,
    nodes: Mapping[str, Node],
    rule_set: RuleSet,
    namespace: str | None,
) -> ClusterFacts | None:
    return None if client is None else await ask_cluster(client, nodes, rule_set, namespace)


def _check_cluster(cluster: ClusterFacts, rule_set: RuleSet, report: Report) -> None:
    report.add(NotChecked(code, error) for code, error in cluster.errors.items())
    report.add(check_metrics(cluster))
    report.add(check_marks(cluster, rule_set))
    report.add(check_rights(cluster))
    report.add(check_admission(cluster, rule_set.mark.label))
    report.add(check_neighbours(cluster, rule_set.mark.label, rule_set.mark.taint))
    if cluster.reach is not None:
        eligible = sum(is_eligible(node, rule_set.nodes) for node in cluster.nodes.values())
        report.add(check_reach(cluster.reach, eligible))


async def _ask_prometheus(
    config: PrometheusConfig, rule_set: RuleSet, nodes: int, report: Report
) -> PrometheusFacts | None:
    rules = len(rule_set.rules)
    source = PrometheusSource(
        config, limit=lambda: answer_limit(nodes, rules), max_concurrency=_AT_ONCE
    )
    try:
        return await ask_prometheus(source, rule_set)
    except NotReachedError as error:
        report.unreachable.append(str(error))
        return None
    finally:
        await source.close()
