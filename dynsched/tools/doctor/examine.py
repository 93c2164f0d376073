"""One run of the doctor: all checks, and the report. What the checks of nodes, pods and rights need
is asked here; read-only: lists, gets, and reviews of rights, which store nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

from dynsched.core.nodes import AddressLookup, Node
from dynsched.core.wording import by_reason, named_rules, some
from dynsched.features.found_prometheus import found_or_default
from dynsched.features.order.resource import NODE_ORDERS
from dynsched.kube import inspection
from dynsched.kube.client import EVENT_NAMESPACE, KubeClient, list_node_metrics
from dynsched.kube.failures import OURS
from dynsched.kube.inspection import WEBHOOKS, Right, policy
from dynsched.kube.leader import LEASE_NAME
from dynsched.kube.leases import find_holders
from dynsched.kube.rules_config_map import CONFIG_MAPS
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.decode import answer_limit
from dynsched.tools.client import Where, ask_json
from dynsched.tools.doctor import checks_cluster as checks
from dynsched.tools.doctor.avoiders import count_pods
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.checks_values import RuleContext
from dynsched.tools.doctor.findings import Finding, NotChecked, Report, error, findings, hint
from dynsched.tools.policies import affinity_problems, order_problems
from dynsched.util.errors import ClusterError, ExpectedError, NotFoundError

_T = TypeVar("_T")
_AT_ONCE: Final = 4
"""Queries at a time: fewer than Prometheus evaluates, so that others are not kept waiting."""


def examine(
    rule_set: RuleSet,
    where: Where,
    *,
    prometheus: PrometheusConfig,
    lease_namespace: str | None,
    log: Callable[[str], None],
) -> Report:
    """All that is wrong. ``where``: the cluster, and the running dynsched that is asked. ``log``
    takes which Prometheus is asked, where one had to be found. Raises nothing for what the servers
    do.
    """
    report = Report()

    async def checked() -> bool:
        async with contextlib.AsyncExitStack() as stack:
            try:
                client = KubeClient(await where.credentials())
                await stack.enter_async_context(client)
                nodes = await client.list_nodes()
            except ExpectedError as error:
                report.unreachable.append(str(error))
                await _check_rules(prometheus, report, RuleContext(rule_set))
                return False
            context = RuleContext(rule_set, nodes, AddressLookup(nodes.values()))
            config = await found_or_default(client, prometheus, log)
            # Side by side: each waits for its own server, most of the time.
            found, _ = await asyncio.gather(
                check_cluster(client, nodes, rule_set, lease_namespace),
                _check_rules(config, report, context),
            )
            report.add(found)
            return True

    has_cluster = asyncio.run(checked())
    if has_cluster or where.server is not None:
        report.add(check_running(where))
    return report


async def _check_rules(config: PrometheusConfig, report: Report, context: RuleContext) -> None:
    limit = answer_limit(len(context.nodes), len(context.rule_set.rules))
    source = PrometheusSource(config, limit=lambda: limit, max_concurrency=_AT_ONCE)
    try:
        report.add(await check_rules(source, context))
    except ExpectedError as error:
        report.unreachable.append(str(error))


async def check_cluster(
    client: KubeClient, nodes: Mapping[str, Node], rule_set: RuleSet, namespace: str | None
) -> list[Finding | NotChecked]:
    """Raises nothing for what the server does: what fails is not checked, and the rest goes on."""
    found: list[Finding | NotChecked] = []
    home, mark = namespace or client.config.namespace, rule_set.mark

    async def attempt(code: str, question: Awaitable[_T]) -> _T | None:
        try:
            return await question
        except ClusterError as failed:
            found.append(NotChecked(code, None, str(failed)))
            return None

    if _asks_metrics_server(rule_set):
        try:
            await list_node_metrics(client)
        except ClusterError as failed:
            finding = error(
                "metrics-server does not answer, so its rules know nothing of any node",
                str(failed),
                "make `kubectl top nodes` work, or write rules of source prometheus",
            )
            found += findings("P0", [finding])
    holding = await attempt("N2", find_holders(client, namespace, home))
    holders = None if holding is None else list(map(str, holding))
    found += findings("N2", checks.marks(nodes, rule_set, holders))
    if not mark.is_none:
        found += findings("N2", checks.no_marks(nodes, rule_set))
    found += findings("K1", checks.two_writers(holders or []))
    reach = await attempt("W1", count_pods(client, rule_set))
    with_order = rule_set.order is not None
    if reach is not None and (rule_set.has_extender or with_order or not mark.is_none):
        found += findings("W1", checks.few_react(reach, with_order=with_order))
    webhook = with_order and await attempt("K1", policy(client, WEBHOOKS, keys.ORDER_POLICY))
    needed = _needed_rights(rule_set, home, writes_order=with_order and not webhook)
    refused = await attempt("K1", _refused(client, needed))
    account = await attempt("K1", inspection.whoami(client)) if refused else None
    person = account if account and not OURS.fullmatch(account) else None
    found += findings("K1", checks.rights(refused or (), person))
    found += await attempt("K4", _check_policies(client, rule_set)) or []
    taint = rule_set.mark.taint
    pools = await attempt("K2", inspection.resources(client, checks.NODE_POOLS)) if taint else None
    if taint and pools:
        found += findings("K2", checks.karpenter_and_taint(taint))
    return found


async def _check_policies(api: KubeApi, rule_set: RuleSet) -> list[Finding]:
    injection = await affinity_problems(api, rule_set.mark.label)
    found = list(findings("K4", checks.affinity(injection or ())))
    asking, wanted = await inspection.namespaces_that_ask(api), rule_set.order is not None
    if wanted or asking:
        problems, is_injected = await order_problems(api), injection is not None
        finding = checks.order(problems, asking, wanted=wanted, is_injected=is_injected)
        found += findings("K4", finding)
    return found


def _needed_rights(rule_set: RuleSet, home: str, *, writes_order: bool) -> list[Right]:
    """The rights that dynsched needs for these rules, as the roles in manifests/base grant them."""
    leases = "coordination.k8s.io"
    found = [
        *(Right(verb, "nodes") for verb in ("get", "list", "watch")),
        *(
            Right(verb, "events", namespace=where)  # about nodes, and about dynsched itself
            for where in dict.fromkeys((EVENT_NAMESPACE, home))
            for verb in ("create", "patch")
        ),
        Right("create", "leases", leases, home),
        *(Right(verb, "leases", leases, home, LEASE_NAME) for verb in ("get", "update")),
        *(
            Right(verb, CONFIG_MAPS, namespace=home, name=keys.KEPT_RULES)
            for verb in ("get", "create", "patch")
        ),
    ]
    if not rule_set.mark.is_none:
        found.append(Right("patch", "nodes"))
    if rule_set.uses_expected_load:
        found += [Right(verb, "pods") for verb in ("list", "watch")]
    if writes_order:
        group, verbs = keys.ORDER_API.partition("/")[0], ("create", "patch", "delete")
        found += [Right(verb, NODE_ORDERS, group, home, keys.ORDER_NAME) for verb in verbs]
    if _asks_metrics_server(rule_set):
        found.append(Right("list", "nodes", "metrics.k8s.io"))
    return found


def _asks_metrics_server(rule_set: RuleSet) -> bool:
    return any(rule.source == "metrics-server" for rule in rule_set.rules)


async def _refused(api: KubeApi, rights: Iterable[Right]) -> list[Right]:
    return [right for right in rights if not await inspection.is_allowed(api, right)]


def check_running(where: Where) -> Iterator[Finding | NotChecked]:
    """What a running dynsched says of itself: it may go by other rules, and ask another Prometheus,
    than this doctor.
    """
    try:
        # 503: it is not well, and says all it can.
        accept = (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
        _, status = ask_json(where, "/status", key="rules_error", accept=accept)
        found = list(_of_status(status))
    except NotFoundError as error:
        fix = "install it as README says; then the findings about policies and pods count"
        yield from findings("K5", [hint("dynsched is not installed here", str(error), fix)])
        return
    except ExpectedError as failed:
        yield NotChecked("K5", None, f"no running dynsched says it: {failed}")
        return
    yield from findings("K5", found)
    yield from check_requests(where)


def check_requests(where: Where) -> Iterator[Finding]:
    """What pods' requests are worth here, where the running dynsched has the order."""
    with contextlib.suppress(ExpectedError):
        _, order = ask_json(where, "/order", key="error_of_requests")
        for rule, off in order["error_of_requests"].items():
            yield from findings("W3", checks.requests(off), rule)


def _of_status(status: Mapping[str, Any]) -> Iterator[Finding]:
    if status["rules_error"]:
        yield error(
            "the running dynsched refuses its rules file, and does not go by it",
            some(str(status["rules_error"]).splitlines(), most=3),
            "correct the file (`dynsched check` finds all errors); it is read again by itself",
        )
    if status["tick"] is None:
        return
    fix = f"it asks Prometheus at {status['source']}; correct the URL, the network or the query"
    if status["error"] is not None:
        yield error("the running dynsched is not well", status["error"], fix)
        return
    failing = {each["rule"]: each["last_error"] for each in status["rules"] if each["last_error"]}
    for why, names in by_reason(failing).items():
        yield error(f"the running dynsched cannot query {named_rules(names)}", why, fix)
