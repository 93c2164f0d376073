"""Each check of nodes, pods and rights, on a cluster with the defect and on one without."""

import asyncio
import copy
import re
import time
from collections.abc import Mapping
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
    LEASES,
    NAMESPACES,
    NODES,
    ORDER_BINDING,
    ORDER_IN_FORCE,
    ORDER_KIND,
    ORDER_OBJECT,
    ORDER_POLICY,
    ORDER_WEBHOOK,
    PODS,
    CannedCluster,
)
from manifest_support import BASE, COMPONENTS, kustomize, templates
from programs import ROOT
from scenes import Scene
from service_support import Pages, served

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.core.tick import RulesStatus
from dynsched.kube.client import KubeClient
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.prometheus import ServerClock
from dynsched.tools.client import Where
from dynsched.tools.doctor.checks_cluster import IN_THE_POD, check_cluster
from dynsched.tools.doctor.checks_nodes import ClusterContext
from dynsched.tools.doctor.checks_values import clocks, late_samples, uncovered
from dynsched.tools.doctor.examine import check_requests, check_running
from dynsched.tools.doctor.expressions import read
from dynsched.tools.doctor.findings import Finding, Report, Severity
from dynsched.tools.doctor.rule_context import CheckedRule, RuleContext
from dynsched.util.formatting import format_time

RULE = {"name": "cpu", "expr": "load", "threshold": 80}
MEMORY = {"name": "memory", "source": "metrics-server", "resource": "memory", "threshold": 85}
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
AVOIDS = yaml.safe_load("""
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference: {matchExpressions: [{key: status, operator: NotIn, values: [presure]}]}
""")


def rules(**more: Any) -> RuleSet:
    return parse_rules({"rules": [RULE], **more})


def a_node(name: str, **labels: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name[:63], **labels}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}


def a_pod(number: int, **spec: Any) -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": "web", "controller": True}
    metadata = {"name": f"web-{number}", "namespace": "shop", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": "a", **spec}}


def a_lease(namespace: str) -> dict[str, Any]:
    """Renewed when it is served: see `found_in`."""
    metadata = {"name": "dynsched", "namespace": namespace, "uid": namespace}
    return {"metadata": metadata, "spec": {"holderIdentity": f"pod-in-{namespace}"}}


HEALTHY = {
    NODES: [a_node(name) for name in "abcdef"],
    PODS: [a_pod(number, affinity=AVOIDS) for number in range(3)],
    LEASES: [a_lease("dynsched")],
}


def injection() -> dict[str, Any]:
    """The component inject, as the API server has it."""
    policy, binding = yaml.safe_load_all((COMPONENTS / "inject/policy.yaml").read_text())
    name = "dynsched-avoid-pressure"
    return {
        f"{ADMISSION}/mutatingadmissionpolicies/{name}": policy,
        f"{ADMISSION}/mutatingadmissionpolicybindings/{name}": binding,
    }


async def asked_of(cluster: Any, rule_set: RuleSet) -> Report:
    report = Report()
    async with api_of(cluster.kubeconfig, KubeClient) as client:
        nodes = await client.list_nodes()
        report.add(await check_cluster(ClusterContext(client, rule_set, nodes, None)))
    return report


async def found_in(
    folder: Any, objects: Mapping[str, Any], rule_set: RuleSet, *refused: tuple[str, str]
) -> list[Finding]:
    served = copy.deepcopy({**HEALTHY, **objects})
    for lease in served[LEASES]:  # now: the world was made when the module was imported
        lease["spec"]["renewTime"] = format_time(time.time() - 1)
    async with CannedCluster(folder, served) as cluster:
        cluster.refused.update(refused)
        report = await asked_of(cluster, rule_set)
    assert report.not_checked == []
    return report.findings


REVIEW_OF_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
E, W = Severity.ERROR, Severity.WARNING
OF_TAINT = rules(mark={"taint": TAINT})
UNMARKED = rules(mark="none", order={"score": {"cpu": 1}})
NODE_POOLS = {"/apis/karpenter.sh/v1": {"resources": [{"name": "nodepools"}]}}


def nodes(*names: str, **labels: str) -> dict[str, Any]:
    """The labels are those of the first."""
    first, *others = names
    return {NODES: [a_node(first, **labels), *map(a_node, others)]}


def pods(number: int = 0, **spec: Any) -> dict[str, Any]:
    """One that avoids marked nodes, and so many that do not."""
    return {PODS: [a_pod(0, affinity=AVOIDS, **spec), *map(a_pod, range(1, number + 1))]}


OLD = a_node("a", status="presure")
OLD["metadata"]["annotations"] = {"dynsched.io/pressure": '{"label": "status=presure"}'}


def but(path: str, what: Any) -> dict[str, Any]:
    """A cluster in which new pods get the order, with another object at ``path``."""
    return {**ORDER_IN_FORCE, path: what}


def only(*paths: str) -> dict[str, Any]:
    """Of that cluster nothing but these."""
    return {path: ORDER_IN_FORCE[path] for path in paths}


def webhook(**client: str) -> dict[str, Any]:
    """As the API server has it; ``client``: what somebody has added."""
    (found,) = yaml.safe_load_all((COMPONENTS / "order-webhook/webhook.yaml").read_text())
    found["webhooks"][0]["clientConfig"] |= client
    return {ORDER_WEBHOOK: found}


ORDER = rules(order={"score": {"cpu": 1}})
DEFECTS: list[tuple[Mapping[str, Any], RuleSet, str, Severity, str]] = [
    (nodes(*"zabcdef", status="maintenance"), rules(), "N2", W, "status=maintenance"),
    ({**nodes(*"abc", status="presure"), LEASES: []}, rules(), "N2", W, "no dynsched is running"),
    ({NODES: [OLD, *map(a_node, "bc")]}, UNMARKED, "N2", W, "the mark: no mark"),
    (nodes("a"), rules(), "N2", W, "max_marked: 50%"),
    ({}, rules(nodes={"selector": "pool=x"}), "N2", E, "no node may be marked"),
    ({PODS: [*map(a_pod, range(3))]}, rules(), "W1", E, "0 of 3 pods with a node"),
    (but(PODS, [*map(a_pod, range(3))]), ORDER, "W1", Severity.INFO, "0 of 3 pods with a node"),
    (pods(2), rules(), "W1", W, "the others are in shop (2 of 3)"),
    ({LEASES: [a_lease("dynsched"), a_lease("other")]}, rules(), "K1", E, "pod-in-other"),
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
    told = [f"{one.code} {one.severity} {one.summary} {one.evidence} {one.fix}" for one in found]
    fits = [text.startswith(f"{code} {severity} ") and words in text for text in told]
    assert sum(fits) == 1, found


GIVEN = a_pod(0)
GIVEN["metadata"]["annotations"] = {"dynsched.io/order": "2026-11-23T05:00:28Z"}
IGNORING = {**ORDER_IN_FORCE, PODS: [GIVEN], **nodes("a"), **injection()}
BY_WEBHOOK = {PODS: [GIVEN], **only(NAMESPACES), **webhook(caBundle="Q0E=")}
HEALTHY_TOO = [
    ({}, rules()),
    (injection() | only(NAMESPACES), rules()),
    ({}, OF_TAINT),
    (IGNORING, UNMARKED),
    (ORDER_IN_FORCE, rules()),  # that of another rules file
    (BY_WEBHOOK, ORDER),
]


@pytest.mark.parametrize(("more", "rule_set"), HEALTHY_TOO)
async def test_a_healthy_cluster_has_no_finding(tmp_path, more, rule_set) -> None:
    assert await found_in(tmp_path, more, rule_set) == []


@pytest.mark.parametrize(
    ("world", "rule_set", "refused", "told"),
    [
        ({}, rules(), [("patch", "nodes"), ("watch", "nodes")], ["watch and patch nodes"]),
        ({}, rules(), [("update", "leases")], ["update leases dynsched in namespace ns"]),
        ({}, rules(), [("watch", "pods")], []),
        ({}, rules(extender={}), [("watch", "pods")], ["watch pods"]),
        ({}, rules(), [("create", "events")],
         ["create events in namespace default", "create events in namespace ns"]),
        (IGNORING, UNMARKED, [("patch", "nodes")], []),
        (BY_WEBHOOK, ORDER, [("delete", "nodeorders")], []),
        (ORDER_IN_FORCE, ORDER, [("delete", "nodeorders")],
         ["delete nodeorders dynsched in namespace ns"]),
    ],
)  # fmt: skip
async def test_each_right_that_is_lacking_is_told(tmp_path, world, rule_set, refused, told) -> None:
    found = await found_in(tmp_path, world, rule_set, *refused)
    assert [each.summary for each in found] == [f"the account in use may not {it}" for it in told]


@pytest.mark.parametrize(
    ("account", "severity", "told"),
    [
        ("ann", W, "dynsched's own rights are not known: the account in use, ann, "),
        ("system:serviceaccount:dynsched:dynsched", E, "the account in use may not watch nodes"),
    ],
)
async def test_a_persons_rights_are_not_those_of_dynsched(
    tmp_path, account, severity, told
) -> None:
    """Who may only read was told to extend dynsched's ClusterRole, by six errors."""
    whose = {REVIEW_OF_SELF: {"status": {"userInfo": {"username": account}}}}
    (found,) = await found_in(tmp_path, whose, rules(), ("watch", "nodes"))
    assert (found.severity, found.summary.startswith(told)) == (severity, True)


def test_the_command_for_the_pod_names_the_rules_by_which_it_runs() -> None:
    """Without them the doctor looked for a file that is not there."""
    page, image = (ROOT / name for name in ("docs/check.md", "Dockerfile"))
    assert IN_THE_POD in page.read_text()
    (folder,) = re.findall(r"^WORKDIR (/etc\S*)$", image.read_text(), re.MULTILINE)
    (container,) = templates(kustomize(BASE))["dynsched"]["spec"]["containers"]
    assert f"--rules={folder}/{IN_THE_POD.rpartition(' ')[2]}" in container["args"]


async def test_rights_are_reviewed_on_each_form_of_cluster(cluster) -> None:
    report = await asked_of(cluster, rules())
    assert "K1" not in {each.code for each in (*report.findings, *report.not_checked)}


async def test_what_a_server_does_not_know_is_not_checked_and_the_rest_goes_on(sim) -> None:
    sim.server.forbidden = {("patch", "nodes"), ("list", "pods")}
    report = await asked_of(sim, rules())
    assert [each.summary for each in report.findings] == ["the account in use may not patch nodes"]
    assert [each.code for each in report.not_checked] == ["W1"]
    assert "may not list pods" in report.not_checked[0].reason


def asked(world: RuleContext, names: str, server: Any = None, **more: Any) -> CheckedRule:
    """A rule with a sample of each of these nodes."""
    rule = Rule.model_validate(RULE | more)
    answer = QueryResult(tuple(Sample({"node": name}, 1.0, 0.0) for name in names))
    return CheckedRule(rule, answer, read("load"), world, server)


@pytest.mark.parametrize(
    ("names", "more", "found", "evidence"),
    [
        ("abc", {}, [], ""),
        ("c", {}, [W], "2 of 3 nodes: a and b"),
        # Others need no sample.
        ("c", {"selector": "pool=y"}, [], ""),
        # Samples without a node are worse where nodes have none.
        ("abcz", {}, [Severity.INFO], "as z:"),
        ("z", {}, [E, W], "3 of 3 nodes"),
    ],
)
def test_nodes_without_samples_and_samples_without_nodes_are_told(
    names, more, found, evidence
) -> None:
    pools = zip("abc", "xxy", strict=True)
    there = {name: make_node(name, labels={"pool": pool}) for name, pool in pools}
    told = list(uncovered(asked(RuleContext(rules(), there), names, **more)))
    assert [each.severity for each in told] == found
    assert evidence in (told[0].evidence if told else "")


class Scrapes:
    """A Prometheus that answers when and how often it scraped."""

    def __init__(self, lag: float, interval: float) -> None:
        self.lag, self.interval = AsyncMock(return_value=lag), AsyncMock(return_value=interval)


@pytest.mark.parametrize(
    ("lag", "interval", "severities"),
    [(50.0, 30.0, []), (130.0, 30.0, [W]), (130.0, 60.0, []), (400.0, 30.0, [E])],
)
async def test_samples_that_come_late_are_told(lag, interval, severities) -> None:
    rule = asked(RuleContext(rules(), {}), "", Scrapes(lag, interval))
    assert [each.severity async for each in late_samples(rule)] == severities


def test_clocks_that_differ_and_answers_of_before_are_told() -> None:
    assert list(clocks(ServerClock(0.0, ahead=5.0, behind=1.0))) == []
    (differ,) = clocks(ServerClock(0.0, ahead=-90.0))
    assert differ.evidence == "Prometheus's is 1m30s behind ours"
    (late,) = clocks(ServerClock(0.0, behind=30.1))
    assert (late.severity, late.evidence) == (W, "a query is answered as of 30s before")
    assert "-search.latencyOffset" in late.fix


async def of_running(where: Where) -> list[Any]:
    return await asyncio.to_thread(lambda: list(check_running(where)))


async def test_a_running_dynsched_that_refuses_its_rules_is_told_and_a_busy_one_is_not() -> None:
    pages = Pages()
    async with served(pages):
        assert await of_running(Where(pages.url)) == []  # no tick yet, so it is not well
        pages.tick()
        assert await of_running(Where(pages.url)) == []
        refused = "rules.yaml:3:5: rules[0].treshold: unknown key\nrules.yaml:4:5: no"
        tick = pages.snapshots.tick
        assert tick is not None
        pages.snapshots.publish(replace(tick, rules_status=RulesStatus(error=refused)))
        (found,) = await of_running(Where(pages.url))
    assert (found.code, found.severity) == ("K5", Severity.ERROR)
    assert found.evidence == "rules.yaml:3:5: rules[0].treshold: unknown key and rules.yaml:4:5: no"


async def test_what_a_running_dynsched_cannot_ask_is_a_finding() -> None:
    """Its Prometheus need not be the one that doctor asks."""
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


async def test_where_no_dynsched_is_found_or_answers_it_is_not_checked(sim) -> None:
    (found,) = await of_running(Where("http://127.0.0.1:1"))
    assert (found.code, "no running dynsched says it: " in found.reason) == ("K5", True)
    in_the_cluster = Where(kubeconfig=sim.kubeconfig)
    (missing,) = await of_running(in_the_cluster)
    assert (missing.code, missing.severity) == ("K5", Severity.INFO)  # nothing is installed


@pytest.mark.parametrize(
    ("requests", "tells"),
    [([2.0, 2.2] * 15, "alone"), ([2.0, 8.0] * 15, "real load"), ([2.0] * 3, None)],
)
async def test_what_requests_are_worth_is_told_where_the_order_is_on(requests, tells) -> None:
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
        found = await asyncio.to_thread(lambda: list(check_requests(Where(pages.url))))
    report = Report()
    report.add(found)
    told = [(each.code, each.severity, each.rule) for each in report.without([]).findings]
    assert told == ([("W3", Severity.INFO, "cpu")] if tells else [])
    assert all(tells in each.summary for each in found)
