"""One run of the doctor: all checks, and the report; the check of the extender (K3) is here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from dynsched.engine.match import index_nodes
from dynsched.kube.client import open_client
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.answer_limit import answer_limit
from dynsched.tools.doctor.ask_cluster import ClusterFacts, ask_cluster
from dynsched.tools.doctor.checks_cluster import CHECKS
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.checks_values import World
from dynsched.tools.doctor.findings import Finding, NotChecked, Report, findings, warning
from dynsched.tools.running import Running, Where, opened
from dynsched.util.errors import ExpectedError

_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""
_REQUESTS: Final = "dynsched_extender_requests_total"
_ASKS: Final = 8
"""How often a Service is asked before no replica behind it counts as called by a scheduler: each
request goes to any of them, and a scheduler keeps to one.
"""


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

    async def ask() -> ClusterFacts | None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                opened = open_client(where.kubeconfig, where.context)
                client = await stack.enter_async_context(opened)
                nodes = await client.list_nodes()
            except ExpectedError as error:
                report.unreachable.append(str(error))
                await _check_rules(prometheus, report, World(rule_set, interval))
                return None
            world = World(rule_set, interval, nodes, index_nodes(nodes.values()))
            # Side by side: each waits for its own server, most of the time.
            facts, _ = await asyncio.gather(
                ask_cluster(client, nodes, rule_set, lease_namespace),
                _check_rules(prometheus, report, world),
            )
            return facts

    cluster = asyncio.run(ask())
    if cluster is not None:
        check_cluster(cluster, rule_set, report)
    report.add(check_extender(where, rule_set))
    return report


async def _check_rules(config: PrometheusConfig, report: Report, world: World) -> None:
    limit = answer_limit(len(world.nodes), len(world.rule_set.rules))
    source = PrometheusSource(config, limit=lambda: limit, max_concurrency=_AT_ONCE)
    try:
        report.add(await check_rules(source, world))
    except ExpectedError as error:
        report.unreachable.append(str(error))
    finally:
        await source.close()


def check_cluster(cluster: ClusterFacts, rule_set: RuleSet, report: Report) -> None:
    report.add(NotChecked(code, None, error) for code, error in cluster.errors.items())
    for code, check in CHECKS:
        report.add(findings(code, check(cluster, rule_set)))


def check_extender(where: Where, rule_set: RuleSet) -> Iterator[Finding | NotChecked]:
    """Nothing where there is no extender to be asked."""
    if not rule_set.has_extender:
        return
    try:
        with opened(where) as running:
            asks = _ASKS if where.server is None else 1
            is_asked = any(_is_asked(running) for _ in range(asks))
    except (ExpectedError, ValueError) as error:
        yield NotChecked("K3", None, f"no running dynsched says it: {error}")
        return
    if not is_asked:
        told = warning(
            "rules.yaml has a section extender, and no scheduler has asked since dynsched started",
            f"{_REQUESTS} is 0 for every verb",
            "name the extender in kube-scheduler's configuration (docs/extender.md); with several "
            "replicas, ask each",
        )
        yield from findings("K3", [told])


def _is_asked(running: Running) -> bool:
    """ValueError for what are not the metrics of a dynsched."""
    text = running.ask("/metrics").body.decode(errors="replace")
    families = text_string_to_metric_families(text)
    counts = [each for family in families for each in family.samples if each.name == _REQUESTS]
    if not counts:
        raise ValueError(f"its /metrics have no {_REQUESTS}; is it an older dynsched?")
    return any(each.value for each in counts)
