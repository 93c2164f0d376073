"""Which pods react to the mark, and by what they are mended."""

import json
from typing import Any

import pytest
from builders import rule_set

from dynsched.kube.inspection import PodShape
from dynsched.kube.lists import Owner
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.tools.doctor.avoiders import NoEffect, Reach, Way, Workload, patch_of, reach_of

LABEL = LabelMark("status", "presure")
TAINT = TaintMark("dynsched.io/pressure", "true")
AVOIDS = {"key": "status", "operator": "NotIn", "values": ["presure", "broken"]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def preferring(*expressions: dict[str, Any]) -> bytes:
    term = {"weight": 1, "preference": {"matchExpressions": list(expressions)}}
    return json.dumps({"nodeAffinity": {PREFERRED: [term]}}).encode()


def requiring(*terms: list[dict[str, Any]]) -> bytes:
    found = [{"matchExpressions": term} for term in terms]
    return json.dumps({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}).encode()


def counted(pod: PodShape, mark: Mark, schedulers: frozenset[str] | None = frozenset()) -> Workload:
    reach = Reach(mark, schedulers)
    reach.add([pod])
    (workload,) = reach.workloads.values()
    assert (reach.total.pods, reach.total.reacting) == (workload.pods, workload.reacting)
    return workload


def shape(**more: Any) -> PodShape:
    owner = Owner("ReplicaSet", "web-5d9c7b9d4f")
    return PodShape("shop", "web-5d9c7b9d4f-x2x4p", owner, "5d9c7b9d4f", **more)


@pytest.mark.parametrize(
    ("affinity", "way"),
    [
        (preferring(AVOIDS), Way.PREFERENCE),
        (preferring({"key": "status", "operator": "DoesNotExist"}), Way.PREFERENCE),
        (preferring({"key": "zone", "operator": "In", "values": ["a"]}, AVOIDS), Way.PREFERENCE),
        (requiring([AVOIDS]), Way.REQUIREMENT),
        (requiring([AVOIDS], [{"key": "zone", "operator": "In", "values": ["a"]}]), None),
        (preferring({"key": "status", "operator": "In", "values": ["presure"]}), None),
        (preferring({"key": "status", "operator": "NotIn", "values": ["broken"]}), None),
        (preferring({"key": "other", "operator": "DoesNotExist"}), None),
        (b"", None),
        (b'{"nodeAffinity": null, "podAffinity": {}}', None),
        (b'{"nodeAffinity": {"' + PREFERRED.encode() + b'": [{"weight": 1}, 3]}}', None),
    ],
)
def test_a_pod_reacts_to_the_label_if_its_affinity_avoids_it(affinity, way) -> None:
    workload = counted(shape(affinity=affinity), Mark(LABEL))
    assert list(workload.ways) == ([way] if way else [])


@pytest.mark.parametrize(
    ("toleration", "reacts", "causes"),
    [
        (None, True, []),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, True, []),
        ({"operator": "Exists", "effect": "NoExecute"}, True, []),
        ({"operator": "Exists"}, False, [NoEffect.TOLERATES]),
        ({"key": TAINT.key, "operator": "Exists"}, False, []),
        ({"key": TAINT.key, "value": "true", "effect": "PreferNoSchedule"}, False, []),
        ({"key": TAINT.key, "value": "other"}, True, []),
    ],
)
def test_a_pod_reacts_to_the_taint_unless_it_tolerates_it(toleration, reacts, causes) -> None:
    tolerations = json.dumps([toleration]).encode() if toleration else b""
    workload = counted(shape(tolerations=tolerations), Mark(None, TAINT))
    assert bool(workload.reacting) is reacts
    assert list(workload.causes) == causes


HOSTNAME = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    "more",
    [
        {"selector": json.dumps({HOSTNAME: "worker-1"}).encode()},
        {"affinity": requiring([{"key": HOSTNAME, "operator": "In", "values": ["a"]}])},
    ],
)
def test_a_pod_that_is_pinned_to_a_node_does_not_react(more) -> None:
    workload = counted(shape(**more), Mark(None, TAINT))
    assert workload.reacting == 0
    assert list(workload.causes) == [NoEffect.PINNED]


def test_the_extender_reaches_the_pods_whose_scheduler_has_a_profile() -> None:
    pods = [shape(scheduler="real-usage"), shape(scheduler="volcano"), shape()]
    for name, reacting in (None, 0), ("real-usage", 1), ("default", 3):
        profiles = {name: {"score": {"cpu": 1}}} if name else {}
        reach = reach_of(rule_set(extender={"profiles": profiles}))
        reach.add(pods)
        assert reach.total.reacting == reacting
        (workload,) = reach.workloads.values()
        assert workload.causes[NoEffect.SCHEDULER] == (2 if name is None else 2 - min(reacting, 2))


@pytest.mark.parametrize(
    ("owner", "digest", "workload"),
    [
        (Owner("ReplicaSet", "web-5d9c7b9d4f"), "5d9c7b9d4f", ("Deployment", "web")),
        (Owner("ReplicaSet", "alone"), "", ("ReplicaSet", "alone")),
        (Owner("StatefulSet", "db"), "", ("StatefulSet", "db")),
        (Owner("Job", "report-28912345"), "", ("CronJob", "report")),
        (Owner("Job", "migrate"), "", ("Job", "migrate")),
        (None, "", ("Pod", "p")),
    ],
)
def test_pods_are_counted_by_what_a_person_calls_their_workload(owner, digest, workload) -> None:
    found = counted(PodShape("shop", "p", owner, digest), Mark(LABEL))
    assert (found.kind, found.name) == workload


def test_pods_of_daemonsets_and_static_pods_are_not_counted() -> None:
    reach = Reach(Mark(LABEL), frozenset())
    reach.add([PodShape("a", "x", Owner(kind, "y")) for kind in ("DaemonSet", "Node", "Node")])
    assert reach.total.pods == 0
    assert reach.left_out == {"pods of DaemonSets": 1, "static pods": 2}


def test_the_worst_workload_comes_first_and_requests_are_added_up() -> None:
    reach = Reach(Mark(LABEL), frozenset())
    good = shape(affinity=preferring(AVOIDS), cpu=2.0, memory=10.0)
    reach.add([good, good, PodShape("b", "p", Owner("StatefulSet", "db"), cpu=1.0, memory=5.0)])
    assert [each.name for each in reach.worst_first()] == ["db", "web"]
    assert reach.total.requests == {"cpu": 5.0, "memory": 25.0}
    assert reach.total.requests_reacting == {"cpu": 4.0, "memory": 20.0}


def test_a_patch_keeps_the_preferences_that_are_there() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["it's"]}
    workload = counted(shape(affinity=preferring(zone)), Mark(LABEL))
    command = patch_of(workload, LABEL)
    assert command is not None
    assert command.startswith("kubectl -n shop patch deployment web --type merge -p '")
    body = json.loads(command.partition("-p '")[2][:-1].replace("'\\''", "'"))
    terms = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert terms[0]["preference"]["matchExpressions"] == [zone]
    assert terms[1]["weight"] == 100
    pod = shape(affinity=json.dumps({"nodeAffinity": {PREFERRED: terms}}).encode())
    assert counted(pod, Mark(LABEL)).reacting == 1


def test_a_patch_leaves_out_the_order_that_the_pod_got() -> None:
    """Its nodes were the coolest when the pod was created, and would be preferred for ever."""

    def named(weight: int, node: str) -> dict[str, Any]:
        names = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        return {"weight": weight, "preference": {"matchExpressions": [names]}}

    own = [named(7, "mine"), json.loads(preferring(AVOIDS | {"operator": "In"}))["nodeAffinity"]]
    own[1] = own[1][PREFERRED][0]
    terms = [*own, named(100, "a"), named(43, "b")]
    affinity = json.dumps({"nodeAffinity": {PREFERRED: terms}}).encode()
    for ordered, kept in ((True, own), (False, terms)):
        workload = counted(shape(affinity=affinity, ordered=ordered), Mark(LABEL))
        body = json.loads((patch_of(workload, LABEL) or "").partition("-p '")[2][:-1])
        node = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        assert node[PREFERRED][:-1] == kept


def test_a_patch_goes_to_the_template_of_a_cronjob_and_a_bare_pod_has_none() -> None:
    job = counted(PodShape("a", "x", Owner("Job", "report-28912345")), Mark(LABEL))
    assert '{"spec":{"jobTemplate":{"spec":{"template":' in (patch_of(job, LABEL) or "")
    assert patch_of(counted(PodShape("a", "x"), Mark(LABEL)), LABEL) is None
