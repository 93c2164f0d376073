import pytest
from builders import node, rule_set, soft

from dynsched.core.nodes import group_of, why_ineligible

MASTER = {"node-role.kubernetes.io/master": ""}
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
IGNORED = {"dynsched.io/ignore": "true"}
FARGATE = "eks.amazonaws.com/compute-type"
IS_IGNORED = "it has the label dynsched.io/ignore=true"
IS_CONTROL_PLANE = "it is a control-plane node (label node-role.kubernetes.io/{})"
OF_MASTER = IS_CONTROL_PLANE.format("master")


@pytest.mark.parametrize(
    ("labels", "section", "why"),
    [
        ({}, {}, None),
        (CONTROL_PLANE, {}, IS_CONTROL_PLANE.format("control-plane")),
        (MASTER, {}, OF_MASTER),
        (CONTROL_PLANE, {"include_control_plane": True}, None),
        (IGNORED, {}, IS_IGNORED),
        ({"dynsched.io/ignore": "false"}, {}, None),
        (IGNORED | MASTER, {"include_control_plane": True}, IS_IGNORED),
        ({FARGATE: "fargate"}, {}, f"it is a virtual node (label {FARGATE}=fargate)"),
        ({FARGATE: "ec2"}, {}, None),
        (
            {"type": "virtual-kubelet", **MASTER},
            {"include_control_plane": True},
            "it is a virtual node (label type=virtual-kubelet)",
        ),
        ({"pool": "batch"}, {"selector": "pool=batch"}, None),
        ({}, {"selector": "pool=batch"}, "nodes.selector wants pool=batch"),
        ({}, {"selector": "pool!=web"}, None),
        ({"pool": "batch", **MASTER}, {"selector": "pool=batch"}, OF_MASTER),
    ],
)
def test_which_nodes_may_be_marked_and_why_not(labels, section, why) -> None:
    assert why_ineligible(node(labels=labels), rule_set(nodes=section).nodes) == why


def test_nodes_that_accept_the_same_pods_are_a_group() -> None:
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
