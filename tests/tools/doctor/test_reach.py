"""Which pods react to the mark, and how."""

from typing import Any

import pytest
from builders import rule_set

from dynsched.kube.inspection import PodShape
from dynsched.kube.lists import Owner
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.tools.doctor.avoiders import Reach, Way, reach_of

LABEL = LabelMark("status", "presure")
TAINT = TaintMark("dynsched.io/pressure", "true")
AVOIDS = {"key": "status", "operator": "NotIn", "values": ["presure", "broken"]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def preferring(*expressions: dict[str, Any]) -> Any:
    term = {"weight": 1, "preference": {"matchExpressions": list(expressions)}}
    return {"nodeAffinity": {PREFERRED: [term]}}


def requiring(*terms: list[dict[str, Any]]) -> Any:
    found = [{"matchExpressions": term} for term in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}


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
        (None, False),
        ({"nodeAffinity": None, "podAffinity": {}}, False),
        ({"nodeAffinity": {PREFERRED: [{"weight": 1}, 3]}}, False),
    ],
)
def test_a_pod_reacts_to_the_label_if_its_affinity_avoids_it(affinity, reacts) -> None:
    reach = counted(shape(affinity=affinity), Mark(LABEL))
    assert reach.ways == ({Way.AFFINITY: 1} if reacts else {})


@pytest.mark.parametrize(
    ("toleration", "reacts"),
    [
        (None, True),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists"}, False),
        ({"key": TAINT.key, "operator": "Exists"}, False),
        ({"key": TAINT.key, "value": "true", "effect": "PreferNoSchedule"}, False),
        ({"key": TAINT.key, "value": "other"}, True),
    ],
)
def test_a_pod_reacts_to_the_taint_unless_it_tolerates_it(toleration, reacts) -> None:
    reach = counted(shape(tolerations=[toleration] if toleration else None), Mark(None, TAINT))
    assert bool(reach.reacting) is reacts


def test_the_extender_reaches_the_pods_whose_scheduler_has_a_profile() -> None:
    pods = [shape(scheduler="real-usage"), shape(scheduler="volcano"), shape()]
    for name, reacting in (None, 0), ("real-usage", 1), ("default", 3):
        profiles = {name: {"score": {"cpu": 1}}} if name else {}
        reach = reach_of(rule_set(extender={"profiles": profiles}))
        reach.add(pods)
        assert reach.reacting == reacting


def test_workloads_are_the_owners_that_pods_name_the_worst_first_without_daemonsets() -> None:
    reach = Reach(Mark(LABEL), frozenset())
    good = shape(affinity=preferring(AVOIDS))
    reach.add([good, good, PodShape("b", "p", Owner("StatefulSet", "db")), PodShape("b", "alone")])
    reach.add([PodShape("a", "x", Owner(kind, "y")) for kind in ("DaemonSet", "Node", "Node")])
    names = [each.name for each in reach.worst_first()]
    assert names == ["pod/alone", "statefulset/db", "replicaset/web-5d9c7b9d4f"]
    assert (reach.pods, reach.reacting) == (4, 2)
