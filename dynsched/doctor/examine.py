"""One run of the doctor: asks the servers, and makes all checks."""

from __future__ import annotations

import asyncio
from typing import Final

from dynsched.core.answers import answer_limit
from dynsched.core.errors import ExpectedError
from dynsched.core.guard import is_eligible
from dynsched.core.match import index_nodes
from dynsched.core.rules import RuleSet
from dynsched.doctor.ask_cluster import ask_cluster, open_client
from dynsched.doctor.ask_prometheus import NotReachedError, ask_prometheus
from dynsched.doctor.checks_cluster import check_admission, check_neighbours, check_rights
from dynsched.doctor.checks_nodes import check_clocks, check_coverage, check_marks
from dynsched.doctor.checks_reach import check_reach
from dynsched.doctor.checks_rules import check_rules
from dynsched.doctor.facts import ClusterFacts, PrometheusFacts
from dynsched.doctor.findings import NotChecked, Report
from dynsched.settings import Settings
from dynsched.sources.prometheus import PrometheusSource

_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""


def examine(settings: Settings, rule_set: RuleSet) -> Report:
    """All that is wrong. Raises nothing for what the servers do."""
    return asyncio.run(_examine(settings, rule_set))


async def _examine(settings: Settings, rule_set: RuleSet) -> Report:
    report = Report()
    cluster = await _ask_cluster(settings, rule_set, report)
    prometheus = await _ask_prometheus(settings, rule_set, cluster, report)
    if prometheus is not None:
        index = None if cluster is None else index_nodes(cluster.nodes.values())
        report.add(check_rules(prometheus, rule_set, settings.interval, index))
        report.add(check_clocks(prometheus, rule_set))
        if cluster is not None and index is not None:
            report.add(check_coverage(prometheus, cluster.nodes, rule_set, index))
    if cluster is not None:
        _check_cluster(cluster, rule_set, report)
    return report


def _check_cluster(cluster: ClusterFacts, rule_set: RuleSet, report: Report) -> None:
    report.add(NotChecked(code, error) for code, error in cluster.errors.items())
    report.add(check_marks(cluster, rule_set))
    report.add(check_rights(cluster))
    report.add(check_admission(cluster, rule_set.mark.label))
    report.add(check_neighbours(cluster, rule_set.mark.label, rule_set.mark.taint))
    if cluster.reach is not None:
        eligible = sum(is_eligible(node, rule_set.nodes) for node in cluster.nodes.values())
        report.add(check_reach(cluster.reach, eligible))


async def _ask_prometheus(
    settings: Settings, rule_set: RuleSet, cluster: ClusterFacts | None, report: Report
) -> PrometheusFacts | None:
    count, rules = len(cluster.nodes) if cluster else 0, len(rule_set.rules)
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
) -> ClusterFacts | None:
    try:
        async with open_client(settings.kubeconfig, settings.context) as client:
            return await ask_cluster(client, rule_set, settings.lease_namespace)
    except ExpectedError as error:
        report.unreachable.append(str(error))
        return None
