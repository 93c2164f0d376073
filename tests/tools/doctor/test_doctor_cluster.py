"""Each check of a cluster, on a cluster with the defect and on one without."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
import yaml
from api_support import api_of
from builders import NOON
from builders import node as make_node
from canned_cluster import (
    ADMISSION,
    HELD_BINDING,
    HELD_POLICY,
    NAMESPACES,
    ORDER_BINDING,
    ORDER_IN_FORCE,
    ORDER_KIND,
    ORDER_OBJECT,
    ORDER_POLICY,
    ORDER_WEBHOOK,
    CannedCluster,
)
from manifest_support import COMPONENTS
from scenes import Scene
from service_support import Pages, served, service

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.core.tick import RulesStatus
from dynsched.kube.client import KubeClient
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.client import Where
from dynsched.tools.doctor.checks_cluster import CLUSTER_CHECKS, ClusterContext
from dynsched.tools.doctor.checks_values import late_samples, uncovered
from dynsched.tools.doctor.examine import check_running
from dynsched.tools.doctor.expressions import read
from dynsched.tools.doctor.findings import Finding, Report, Severity, warning
from dynsched.tools.doctor.rule_context import CheckedRule, RuleContext

RULE = {"name": "cpu", "expr": "load", "threshold": 80}
MEMORY = {"name": "memory", "source": "metrics-server", "resource": "memory", "threshold": 85}
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"


def rules(**more: Any) -> RuleSet:
    return parse_rules({"rules": [RULE], **more})


def a_node(name: str, **labels: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name[:63], **labels}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}


def injection() -> dict[str, Any]:
    """The objects of the component inject, by API path."""
    policy, binding = yaml.safe_load_all((COMPONENTS / "inject/policy.yaml").read_text())
    name = "dynsched-avoid-pressure"
    return {
        f"{ADMISSION}/mutatingadmissionpolicies/{name}": policy,
        f"{ADMISSION}/mutatingadmissionpolicybindings/{name}": binding,
    }


async def asked_of(cluster: Any, rule_set: RuleSet) -> Report:
    report = Report()
    async with api_of(cluster.kubeconfig, KubeClient) as client:
        await report.run(CLUSTER_CHECKS, ClusterContext(client, rule_set))
    return report


async def found_in(folder: Any, objects: Mapping[str, Any], rule_set: RuleSet) -> list[Finding]:
    async with CannedCluster(folder, {NAMESPACES: [], **objects}) as cluster:
        report = await asked_of(cluster, rule_set)
    assert report.not_checked == []
    return report.findings


E, W = Severity.ERROR, Severity.WARNING
OF_TAINT = rules(mark={"taint": TAINT})
UNMARKED = rules(mark="none", order={"score": {"cpu": 1}})
NODE_POOLS = {"/apis/karpenter.sh/v1": {"resources": [{"name": "nodepools"}]}}


def but(path: str, what: Any) -> dict[str, Any]:
    """A cluster in which new pods get the order, with another object at ``path``."""
    return {**ORDER_IN_FORCE, path: what}


def only(*paths: str) -> dict[str, Any]:
    """A cluster with only these objects of ORDER_IN_FORCE."""
    return {path: ORDER_IN_FORCE[path] for path in paths}


def webhook(**client: str) -> dict[str, Any]:
    """The component's webhook, by API path; ``client``: fields added to its clientConfig."""
    (found,) = yaml.safe_load_all((COMPONENTS / "order-webhook/webhook.yaml").read_text())
    found["webhooks"][0]["clientConfig"] |= client
    return {ORDER_WEBHOOK: found}


ORDER = rules(order={"score": {"cpu": 1}})
DEFECTS: list[tuple[Mapping[str, Any], RuleSet, str, Severity, str]] = [
    (
        injection(),
        rules(mark={"label": "status=hot"}),
        "K4",
        W,
        "does not name mark.label, status=hot",
    ),
    ({}, parse_rules({"rules": [MEMORY]}), "P0", E, "install metrics-server"),
    (NODE_POOLS, OF_TAINT, "K2", W, "write mark.taint: null"),
    (but(ORDER_POLICY, None), ORDER, "K4", W, "dynsched-order is not installed"),
    (but(ORDER_BINDING, None), ORDER, "K4", W, "has no binding"),
    (but(HELD_POLICY, None), ORDER, "K4", W, "dynsched-order-held is not installed"),
    (but(HELD_BINDING, None), ORDER, "K4", W, "has no binding"),
    (but(ORDER_KIND, None) | {ORDER_OBJECT: None}, ORDER, "K4", W, "the definition nodeorders."),
    (but(ORDER_OBJECT, None), ORDER, "K4", W, "namespace dynsched is not there"),
    (but(ORDER_OBJECT, {"spec": {"until": "2026-01-01T00:00:00Z"}}), ORDER, "K4", W, "has ended"),
    (but(ORDER_OBJECT, {"metadata": {}}), ORDER, "K4", W, "has ended"),
    (but(ORDER_OBJECT, {"spec": {"until": "2999-01-01T00:00:00Z"}}), ORDER, "K4", W, "clock: it"),
    (but(ORDER_POLICY, None) | {ADMISSION: {}}, ORDER, "K4", W, "use the component order-webhook"),
    (only(NAMESPACES) | webhook(), ORDER, "K4", W, "dynsched-order has no caBundle"),
    (but(NAMESPACES, []), ORDER, "K4", Severity.INFO, "no namespace asks"),
    (only(NAMESPACES), rules(), "K4", W, "use the component order-webhook"),
    (only(NAMESPACES, ADMISSION), rules(), "K4", W, "no policy answers"),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=[words for *_, words in DEFECTS])
async def test_a_defect_of_a_cluster_is_found(tmp_path, defect) -> None:
    objects, rule_set, code, severity, words = defect
    found = await found_in(tmp_path, objects, rule_set)
    texts = [f"{one.code} {one.severity} {one.summary} {one.evidence} {one.fix}" for one in found]
    fits = [text.startswith(f"{code} {severity} ") and words in text for text in texts]
    assert sum(fits) == 1, found


IGNORING = {**ORDER_IN_FORCE, **injection()}
BY_WEBHOOK = {**only(NAMESPACES), **webhook(caBundle="Q0E=")}
HEALTHY_TOO = [
    ({}, rules()),
    (injection() | only(NAMESPACES), rules()),
    ({}, OF_TAINT),
    (IGNORING, UNMARKED),
    (ORDER_IN_FORCE, rules()),  # the order of another rules file
    (BY_WEBHOOK, ORDER),
]


@pytest.mark.parametrize(("more", "rule_set"), HEALTHY_TOO)
async def test_a_healthy_cluster_has_no_finding(tmp_path, more, rule_set) -> None:
    assert await found_in(tmp_path, more, rule_set) == []


async def test_a_refused_request_skips_its_check_and_not_the_others(sim) -> None:
    sim.server.forbidden = {("list", "namespaces")}
    report = await asked_of(sim, parse_rules({"rules": [MEMORY]}))
    assert [each.code for each in report.findings] == ["P0"]
    assert [each.code for each in report.not_checked] == ["K4"]
    assert "may not list namespaces" in report.not_checked[0].reason


def asked(world: RuleContext, names: str, server: Any = None, **more: Any) -> CheckedRule:
    """A rule with one sample for each of these nodes."""
    rule = Rule.model_validate(RULE | more)
    answer = QueryResult(tuple(Sample({"node": name}, 1.0, 0.0) for name in names))
    return CheckedRule(rule, answer, read("load"), world, server)


@pytest.mark.parametrize(
    ("names", "more", "found", "evidence"),
    [
        ("abc", {}, [], ""),
        ("c", {}, [W], "2 of 3 nodes: a and b"),
        # Nodes that the rule does not select need no sample.
        ("c", {"selector": "pool=y"}, [], ""),
        # Samples without a node are more severe if nodes lack samples.
        ("abcz", {}, [Severity.INFO], "as z:"),
        ("z", {}, [E, W], "3 of 3 nodes"),
    ],
)
async def test_nodes_without_samples_and_samples_without_nodes_are_found(
    names, more, found, evidence
) -> None:
    pools = zip("abc", "xxy", strict=True)
    there = {name: make_node(name, labels={"pool": pool}) for name, pool in pools}
    rule = asked(RuleContext(rules(), there), names, **more)
    findings = [each async for each in uncovered(rule)]
    assert [each.severity for each in findings] == found
    assert evidence in (findings[0].evidence if findings else "")


class Scrapes:
    """A Prometheus with the given lag of samples and scrape interval, in seconds."""

    def __init__(self, lag: float, interval: float) -> None:
        self.lag, self.interval = AsyncMock(return_value=lag), AsyncMock(return_value=interval)


@pytest.mark.parametrize(
    ("lag", "interval", "severities"),
    [(50.0, 30.0, []), (130.0, 30.0, [W]), (130.0, 60.0, []), (400.0, 30.0, [E])],
)
async def test_late_samples_are_found(lag, interval, severities) -> None:
    rule = asked(RuleContext(rules(), {}), "", Scrapes(lag, interval))
    assert [each.severity async for each in late_samples(rule)] == severities


async def of_running(where: Where) -> list[Finding]:
    report = Report()
    await asyncio.to_thread(check_running, where, report)
    assert report.not_checked == []
    return report.findings


async def test_refused_rules_of_a_dynsched_are_found_and_a_missing_first_tick_is_not() -> None:
    pages = Pages()
    async with served(pages):
        assert await of_running(Where(pages.url)) == []  # no tick yet, so its status is an error
        pages.tick()
        assert await of_running(Where(pages.url)) == []
        refused = "rules.yaml:3:5: rules[0].treshold: unknown key\nrules.yaml:4:5: no"
        tick = pages.snapshots.tick
        assert tick is not None
        pages.snapshots.publish(replace(tick, rules_status=RulesStatus(error=refused)))
        (found,) = await of_running(Where(pages.url))
    assert (found.code, found.severity) == ("K5", Severity.ERROR)
    assert found.evidence == "rules.yaml:3:5: rules[0].treshold: unknown key and rules.yaml:4:5: no"


async def test_a_failed_query_of_a_running_dynsched_is_a_finding() -> None:
    """Its Prometheus may be another one than doctor's."""
    pages = Pages()
    async with served(pages):
        pages.tick()
        tick = pages.snapshots.tick
        assert tick is not None
        failing = tuple(replace(each, error="connection refused") for each in tick.rules)
        for error in (None, "no rule could be queried: connection refused"):
            pages.snapshots.publish(replace(tick, rules=failing, error=error))
            (found,) = await of_running(Where(pages.url))
            assert (found.code, found.severity) == ("K5", Severity.ERROR)
            assert "connection refused" in found.evidence
            assert pages.snapshots.source in found.fix


async def test_without_a_running_dynsched_its_state_is_not_checked(sim) -> None:
    report = Report()
    await asyncio.to_thread(check_running, Where("http://127.0.0.1:1"), report)
    (unchecked,) = report.not_checked
    assert (unchecked.code, "no running dynsched says it: " in unchecked.reason) == ("K5", True)
    in_the_cluster = Where(kubeconfig=sim.kubeconfig)
    (missing,) = await of_running(in_the_cluster)
    assert (missing.code, missing.severity) == ("K5", Severity.INFO)  # nothing is installed


@pytest.mark.parametrize(
    ("is_installed", "namespace", "codes"),
    [
        (False, None, ["K5"]),
        # It may be installed in another namespace.
        (False, "other", ["K4", "K5"]),
        # It is installed, but no pod is ready, which K4 helps to explain.
        (True, None, ["K4"]),
    ],
)
async def test_findings_about_the_order_are_dropped_only_without_dynsched(
    sim, is_installed, namespace, codes
) -> None:
    report = Report()
    report.add("K4", [warning("new pods are not getting the order", "", "")])
    where = Where(kubeconfig=sim.kubeconfig, namespace=namespace)
    async with service(sim, None) if is_installed else nullcontext():
        await asyncio.to_thread(check_running, where, report)
    assert [each.code for each in report.findings] == codes
    unchecked = [each.reason for each in report.not_checked]
    assert ["no pod of dynsched is ready" in each for each in unchecked] == [True] * is_installed


@pytest.mark.parametrize(
    ("requests", "summary"),
    [([2.0, 2.2] * 15, "alone"), ([2.0, 8.0] * 15, "real load"), ([2.0] * 3, None)],
)
async def test_with_an_order_doctor_reports_how_well_requests_predict_use(
    requests, summary
) -> None:
    rule = {"name": "cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}
    scene = Scene({"rules": [rule], "order": {"score": {"cpu": 1}}}, [Node("a")])
    pods = [BoundPod(f"{at}", "a", cpu=each, name=f"d/{at}") for at, each in enumerate(requests)]
    known = KnownPods(
        [RecentPod(pod, 60.0, None) for pod in pods],
        len(pods),
        use_of_pods={"cpu": {pod.name: 1.0 for pod in pods}},
    )
    pages = Pages()
    pages.snapshots.publish(scene.tick(NOON, pods=known, cpu={"a": 50.0}))
    async with served(pages):
        found = await of_running(Where(pages.url))
    codes = [(each.code, each.severity, each.rule) for each in found]
    assert codes == ([("W3", Severity.INFO, "cpu")] if summary else [])
    assert all(summary in each.summary for each in found)
