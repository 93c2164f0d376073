"""One run of the doctor: all chains of checks, and the report. It writes nothing to the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from dynsched.core.wording import by_reason, named_rules, some
from dynsched.features.found_prometheus import found_or_default
from dynsched.kube.client import KubeClient
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.decode import answer_limit
from dynsched.tools.client import Where, ask_json
from dynsched.tools.doctor.checks_cluster import CLUSTER_CHECKS, ClusterContext
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.findings import Finding, NotChecked, Report, error, hint
from dynsched.tools.doctor.rule_context import RuleContext
from dynsched.util.errors import ExpectedError, NotFoundError

_AT_ONCE: Final = 4
"""Concurrent queries: fewer than Prometheus allows, so that other clients need not wait."""
GOOD_REQUESTS: Final = 20.0
"""Percent by which the use of a pod may differ from request * (total use / total requests): below
this, kube-scheduler alone does as well (docs/effect.md#requests)."""


def examine(
    rule_set: RuleSet,
    where: Where,
    *,
    prometheus: PrometheusConfig,
    log: Callable[[str], None],
) -> Report:
    """Run all checks. ``where``: the cluster, and the running instance to query. ``log`` takes
    lines about the Prometheus that is found if none is named.

    Failures of the servers are in the report, and are not raised.
    """
    report = Report()

    async def ask_servers() -> None:
        async with KubeClient(await where.credentials()) as client:
            nodes = await client.list_nodes()
            config = await found_or_default(client, prometheus, log)
            # Concurrently, because each mostly waits for its own server.
            await asyncio.gather(
                report.run(CLUSTER_CHECKS, ClusterContext(client, rule_set)),
                _check_rules(config, RuleContext(rule_set, nodes), report),
            )

    try:
        asyncio.run(ask_servers())
    except ExpectedError as failed:
        report.unreachable.append(str(failed))
        if where.server is not None:
            check_running(where, report)
    else:
        check_running(where, report)
    report.sort()
    return report


async def _check_rules(config: PrometheusConfig, context: RuleContext, report: Report) -> None:
    limit = answer_limit(len(context.nodes), len(context.rule_set.rules))
    source = PrometheusSource(config, limit=lambda: limit, max_concurrency=_AT_ONCE)
    try:
        await check_rules(source, context, report)
    except ExpectedError as failed:
        report.unreachable.append(str(failed))


def check_running(where: Where, report: Report) -> None:
    """Add what the running instance reports about itself. It may have other rules and another
    Prometheus than this doctor.
    """
    try:
        # With 503 it is unhealthy, but still reports its state.
        accept = (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
        _, status = ask_json(where, "/status", key="rules_error", accept=accept)
    except NotFoundError as missing:
        # Without dynsched in any namespace, the findings about the order would only repeat this.
        if where.namespace is None:
            report.findings = [each for each in report.findings if each.code != "K4"]
        fix = "install it: README.md has the commands"
        report.add("K5", [hint("dynsched is not installed here", str(missing), fix)])
    except ExpectedError as failed:
        why = f"no running dynsched says it: {failed}"
        report.not_checked.append(NotChecked("K5", None, why))
    else:
        report.add("K5", _of_status(status))
        _check_requests(where, report)


def _check_requests(where: Where, report: Report) -> None:
    """Add how well requests predict use, if the running instance has the order."""
    with contextlib.suppress(ExpectedError):
        _, order = ask_json(where, "/order", key="error_of_requests")
        for rule, off in order["error_of_requests"].items():
            report.add("W3", [_requests(off)], rule)


def _requests(off: float) -> Finding:
    """``off``: percent by which new pods' use differs from the prediction by their requests."""
    conclusion = "real load is the better guide"
    fix = "this is what the order is for"
    if off < GOOD_REQUESTS:
        conclusion, fix = "kube-scheduler alone does as well", "the order gains little here"
    return hint(
        f"requests predict what new pods use within {off:.0f} %: {conclusion}",
        "new pods of the last minutes; prediction: request * (total use / total requests)",
        f"nothing to do: {fix} (docs/effect.md#requests)",
    )


def _of_status(status: Mapping[str, Any]) -> Iterator[Finding]:
    if status["rules_error"]:
        yield error(
            "the running dynsched refuses its rules file, so the file is not in force",
            some(str(status["rules_error"]).splitlines(), most=3),
            "correct the file (`dynsched check` finds all errors); it is reloaded automatically",
        )
    if status.get("tick") is None:
        return
    fix = f"it queries Prometheus at {status['source']}; correct the URL, the network or the query"
    if status["error"] is not None:
        yield error("the running dynsched reports an error", status["error"], fix)
        return
    failing = {each["rule"]: each["last_error"] for each in status["rules"] if each["last_error"]}
    for why, names in by_reason(failing).items():
        yield error(f"the running dynsched cannot query {named_rules(names)}", why, fix)
