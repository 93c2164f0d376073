"""One run of the doctor: asks both servers, side by side, and makes all checks."""

from __future__ import annotations

import asyncio

from dynsched.core.answers import answer_limit
from dynsched.core.errors import ClusterError, ExpectedError
from dynsched.core.guard import is_eligible
from dynsched.core.match import index_nodes
from dynsched.core.model import Node
from dynsched.core.reach import reach_of
from dynsched.core.rules import RuleSet
from dynsched.doctor.ask_cluster import count_pods, open_client
from dynsched.doctor.ask_prometheus import NotReachedError, ask_prometheus
from dynsched.doctor.checks_reach import check_reach
from dynsched.doctor.checks_rules import check_rules
from dynsched.doctor.facts import PrometheusFacts
from dynsched.doctor.findings import NotChecked, Report
from dynsched.settings import Settings
from dynsched.sources.prometheus import PrometheusSource

_AT_ONCE = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""


def examine(settings: Settings, rule_set: RuleSet) -> Report:
    """All that is wrong. Raises nothing for what the servers do."""
    return asyncio.run(_examine(settings, rule_set))


async def _examine(settings: Settings, rule_set: RuleSet) -> Report:
    report = Report()
    nodes = await _ask_cluster(settings, rule_set, report)
    prometheus = await _ask_prometheus(settings, rule_set, nodes, report)
    index = None if nodes is None else index_nodes(nodes.values())
    if prometheus is not None:
        report.add(check_rules(prometheus, rule_set, settings.interval, index))
    return report


async def _ask_prometheus(
    settings: Settings, rule_set: RuleSet, nodes: dict[str, Node] | None, report: Report
) -> PrometheusFacts | None:
    count, rules = len(nodes or ()), len(rule_set.rules)
    source = PrometheusSource(
        settings.prometheus, limit=lambda: answer_limit(count, rules), max_concurrency=_AT_ONCE
    )
    try:
        return await ask_prometheus(source, rule_set)
    except NotReachedError as error:
        report.unreachable.append(str(error))
        return None
    finally:
        await source.close()


async def _ask_cluster(
    settings: Settings, rule_set: RuleSet, report: Report
) -> dict[str, Node] | None:
    try:
        async with open_client(settings.kubeconfig, settings.context) as client:
            nodes = await client.list_nodes()
            reach = reach_of(rule_set)
            try:
                await count_pods(client, reach)
            except ClusterError as error:
                report.add(NotChecked(code, str(error)) for code in ("W1", "W2"))
            else:
                eligible = sum(is_eligible(node, rule_set.nodes) for node in nodes.values())
                report.add(check_reach(reach, eligible))
            return nodes
    except ExpectedError as error:
        report.unreachable.append(str(error))
        return None
