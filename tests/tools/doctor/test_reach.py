"""Which pods react to the mark, and how."""

from typing import Any

import msgspec
import pytest
from builders import rule_set

from dynsched.kube.inspection import Pod
from dynsched.tools.doctor.avoiders import Reach, Way

TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
AVOIDS = {"key": "status", "operator": "NotIn", "values": ["presure", "broken"]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def preferring(*expressions: dict[str, Any]) -> Any:
    term = {"weight": 1, "preference": {"matchExpressions": list(expressions)}}
    return {"nodeAffinity": {PREFERRED: [term]}}


def requiring(*terms: list[dict[str, Any]]) -> Any:
    found = [{"matchExpressions": term} for term in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}


def a_pod(kind: str = "ReplicaSet", **spec: Any) -> Pod:
    owner = {"kind": kind, "name": "web", "controller": True}
    metadata = {"namespace": "shop", "name": "web-1", "ownerReferences": [owner]}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def counted(*pods: Pod, **rules: Any) -> Reach:
    reach = Reach()
    for pod in pods:
        reach.add(pod, rule_set(**rules))
    return reach


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
    reach = counted(a_pod(affinity=affinity))
    assert reach.ways == ({Way.AFFINITY: 1} if reacts else {})


@pytest.mark.parametrize(
    ("toleration", "reacts"),
    [
        (None, True),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists"}, False),
        ({"key": "dynsched.io/pressure", "operator": "Exists"}, False),
        ({"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}, False),
        ({"key": "dynsched.io/pressure", "value": "other"}, True),
    ],
)
def test_a_pod_reacts_to_the_taint_unless_it_tolerates_it(toleration, reacts) -> None:
    pod = a_pod(tolerations=[toleration] if toleration else None)
    reach = counted(pod, mark={"label": None, "taint": TAINT})
    assert reach.ways == ({Way.TAINT: 1} if reacts else {})


def test_the_extender_reaches_the_pods_whose_scheduler_has_a_profile() -> None:
    pods = [a_pod(schedulerName=name) for name in ("real-usage", "volcano", "default-scheduler")]
    for name, reacting in (None, 0), ("real-usage", 1), ("default", 3):
        profiles = {name: {"score": {"cpu": 1}}} if name else {}
        reach = counted(*pods, extender={"profiles": profiles})
        assert (reach.pods, reach.ways.total()) == ({"shop": 3}, reacting)


def test_pods_that_each_node_has_are_not_counted() -> None:
    assert counted(*map(a_pod, ("DaemonSet", "Node"))) == Reach()
