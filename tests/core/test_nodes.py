from typing import Any

import pytest
from builders import node, rule_set, soft

from dynsched.core.nodes import group_of, why_ineligible

MASTER = {"node-role.kubernetes.io/master": ""}
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize(
    ("labels", "section", "eligible"),
    [
        ({}, {}, True),
        (CONTROL_PLANE, {}, False),
        (MASTER, {}, False),
        (CONTROL_PLANE, {"include_control_plane": True}, True),
        ({"dynsched.io/ignore": "true"}, {}, False),
        ({"dynsched.io/ignore": "false"}, {}, True),
        ({"dynsched.io/ignore": "true", **MASTER}, {"include_control_plane": True}, False),
        ({"eks.amazonaws.com/compute-type": "fargate"}, {}, False),
        ({"eks.amazonaws.com/compute-type": "ec2"}, {}, True),
        ({"type": "virtual-kubelet", **MASTER}, {"include_control_plane": True}, False),
        ({"pool": "batch"}, {"selector": "pool=batch"}, True),
        ({}, {"selector": "pool=batch"}, False),
        ({}, {"selector": "pool!=web"}, True),
        ({"pool": "batch", **MASTER}, {"selector": "pool=batch"}, False),
    ],
)
def test_eligible(labels: dict[str, str], section: dict[str, Any], *, eligible: bool) -> None:
    rules = rule_set(nodes=section).nodes
    assert (why_ineligible(node(labels=labels), rules) is None) is eligible


def test_nodes_that_take_the_same_pods_are_a_group() -> None:
    guard = rule_set(guard={"pool_label": "pool"}).guard
    closed = {"key": "gpu", "value": "x", "effect": "NoSchedule"}
    alike = [
        node("a", labels={"pool": "p", "team": "blue"}, taints=[closed, soft()]),
        node("b", labels={"pool": "p"}, taints=[closed]),
    ]
    others = [
        node("c", labels={"pool": "p"}),
        node("d", labels={"pool": "q"}, taints=[closed]),
        node("e", taints=[{**closed, "effect": "NoExecute"}]),
    ]
    groups = [group_of(each, guard) for each in (*alike, *others)]
    assert groups[0] == groups[1]
    assert len(set(groups)) == 1 + len(others)
    assert group_of(alike[0], rule_set().guard).pool == ""
