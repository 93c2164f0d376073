"""One run of the doctor: asks the servers, and makes all checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from dynsched.core.answers import answer_limit
from dynsched.core.errors import ExpectedError
from dynsched.core.guard import is_eligible
from dynsched.core.match import index_nodes
from dynsched.core.model import Node
from dynsched.core.rules import RuleSet
from dynsched.doctor.ask_cluster import ask_cluster, open_client
from dynsched.doctor.ask_prometheus import NotReachedError, ask_prometheus
from dynsched.doctor.checks_cluster import (
    check_admission,
    check_metrics,
    check_neighbours,
    check_rights,
)
from dynsched.doctor.checks_extender import ask_extender, check_extender
from dynsched.doctor.checks_nodes import check_clocks, check_coverage, check_marks
from dynsched.doctor.checks_reach import check_reach
from dynsched.doctor.checks_rules import check_rules
from dynsched.doctor.facts import ClusterFacts, PrometheusFacts
from dynsched.doctor.findings import NotChecked, Report
from dynsched.kube.client import KubeClient
from dynsched.running import Where
from dynsched.settings import Settings
from dynsched.sources.prometheus import PrometheusSource

_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""


def examine(settings: Settings, rule_set: RuleSet, where: Where) -> Report:
    """All that is wrong. ``where``: the running dynsched that is asked. Raises nothing for what the
    servers do.
    """
    report = asyncio.run(_examine(settings, rule_set))
    metrics = ask_extender(where, rule_set)
    if isinstance(metrics, NotChecked):
        report.add([metrics])
    elif metrics is not None:
        report.add(check_extender(metrics))
    return report


async def _examine(settings: Settings, rule_set: RuleSet) -> Report:
    report = Report()
    async with contextlib.AsyncExitStack() as stack:
        client, nodes = await _nodes(settings, stack, report)
        # Side by side: each waits for its own server, most of the time.
        prometheus, cluster = await asyncio.gather(
            _ask_prometheus(settings, rule_set, len(nodes), report),
            _ask_cluster(client, nodes, rule_set, settings.lease_namespace),
        )
    if prometheus is not None:
        index = None if cluster is None else index_nodes(nodes.values())
        report.add(check_rules(prometheus, rule_set, settings.interval, index))
        report.add(check_clocks(prometheus, rule_set))
        if index is not None:
            report.add(check_coverage(prometheus, nodes, rule_set, index))
    if cluster is not None:
        _check_cluster(cluster, rule_set, report)
    return report


async def _nodes(
    settings: Settings, stack: contextlib.AsyncExitStack, report: Report
) -> tuple[KubeClient | None, Mapping[str, Node]]:
    """The client, and all nodes; none where they cannot be listed."""
    try:
        opened = open_client(settings.kubeconfig, settings.context)
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
    settings: Settings, rule_set: RuleSet, nodes: int, report: Report
) -> PrometheusFacts | None:
    rules = len(rule_set.rules)
    source = PrometheusSource(
        settings.prometheus, limit=lambda: answer_limit(nodes, rules), max_concurrency=_AT_ONCE
    )
    try:
        return await ask_prometheus(source, rule_set)
    except NotReachedError as error:
        report.unreachable.append(str(error))
        return None
    finally:
        await source.close()
