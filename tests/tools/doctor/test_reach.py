"""Which pods react to the mark, and by what they are mended."""

import json
from typing import Any

import pytest
from builders import rule_set

from dynsched.kube.inspection import PodShape
from dynsched.kube.lists import Owner
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.tools.doctor.avoiders import NoEffect, Reach, Way, reach_of

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


def counted(pod: PodShape, mark: Mark) -> Reach:
    reach = Reach(mark, frozenset())
    reach.add([pod])
    return reach


def shape(**more: Any) -> PodShape:
    owner = Owner("ReplicaSet", "web-5d9c7b9d4f")
    return PodShape("shop", "web-5d9c7b9d4f-x2x4p", owner, **more)


@pytest.mark.parametrize(
    ("affinity", "reacts"),
    [
        (preferring(AVOIDS), True),
        (preferring({"key": "status", "operator": "DoesNotExist"}), True),
        (preferring({"key": "zone", "operator": "In", "values": ["a"]}, AVOIDS), True),
        (requiring([AVOIDS]), True),
        (requiring([AVOIDS], [{"key": "zone", "operator": "In", "values": ["a"]}]), False),
        (preferring({"key": "status", "operator": "In", "values": ["presure"]}), False),
        (preferring({"key": "status", "operator": "NotIn", "values": ["broken"]}), False),
        (preferring({"key": "other", "operator": "DoesNotExist"}), False),
        (b"", False),
        (b'{"nodeAffinity": null, "podAffinity": {}}', False),
        (b'{"nodeAffinity": {"' + PREFERRED.encode() + b'": [{"weight": 1}, 3]}}', False),
    ],
)
def test_a_pod_reacts_to_the_label_if_its_affinity_avoids_it(affinity, reacts) -> None:
    reach = counted(shape(affinity=affinity), Mark(LABEL))
    assert reach.ways == ({Way.AFFINITY: 1} if reacts else {})


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
    reach = counted(shape(tolerations=tolerations), Mark(None, TAINT))
    (workload,) = reach.worst_first()
    assert bool(reach.reacting) is reacts
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
    (workload,) = counted(shape(**more), Mark(None, TAINT)).worst_first()
    assert workload.reacting == 0
    assert list(workload.causes) == [NoEffect.PINNED]


def test_the_extender_reaches_the_pods_whose_scheduler_has_a_profile() -> None:
    pods = [shape(scheduler="real-usage"), shape(scheduler="volcano"), shape()]
    for name, reacting in (None, 0), ("real-usage", 1), ("default", 3):
        profiles = {name: {"score": {"cpu": 1}}} if name else {}
        reach = reach_of(rule_set(extender={"profiles": profiles}))
        reach.add(pods)
        assert reach.reacting == reacting
        (workload,) = reach.workloads.values()
        assert workload.causes[NoEffect.SCHEDULER] == (2 if name is None else 2 - min(reacting, 2))


def test_workloads_are_the_owners_that_pods_name_the_worst_first_without_daemonsets() -> None:
    reach = Reach(Mark(LABEL), frozenset())
    good = shape(affinity=preferring(AVOIDS))
    reach.add([good, good, PodShape("b", "p", Owner("StatefulSet", "db")), PodShape("b", "alone")])
    reach.add([PodShape("a", "x", Owner(kind, "y")) for kind in ("DaemonSet", "Node", "Node")])
    names = [each.name for each in reach.worst_first()]
    assert names == ["pod/alone", "statefulset/db", "replicaset/web-5d9c7b9d4f"]
    assert (reach.pods, reach.reacting) == (4, 2)
