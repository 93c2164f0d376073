"""Whole evaluations: answers and nodes in, patches out."""

import json
from dataclasses import replace

import pytest
from builders import FAILED, NOON, answer, node, rule, rule_set, unlimited
from evaluating import Cluster, fleet, heats

from dynsched.core.evaluate import Evaluation
from dynsched.core.marks import Action
from dynsched.core.nodes import Node
from dynsched.core.samples import Quality, QueryResult, Sample, Unmatched
from dynsched.rules.keys import EVIDENCE_ANNOTATION

STATUS = {"status": "presure"}


def test_a_cycle_does_not_patch_every_node() -> None:
    """And of several rules not only the last one's result is kept. A node that is gone is
    forgotten.
    """
    cluster = fleet(20, "cpu", "memory", "disk")
    for number in range(100):
        answers = {
            "cpu": heats(cluster, "n1"),
            "memory": heats(cluster, "n2"),
            "disk": heats(cluster, "n3"),
        }
        cluster.tick(10.0 * number, **answers)
    assert cluster.writes == ["mark n1", "mark n2", "mark n3"]
    del cluster.nodes["n1"]
    cluster.rules = unlimited(rule("cpu"), rule("memory"))
    found = cluster.tick(1000, cpu=heats(cluster, "n2"), memory=heats(cluster))
    assert "n1" not in found.alerts
    assert cluster.marked == "n2"  # the mark of the rule that was removed is released


def test_a_failed_query_is_no_end_and_no_zero_load() -> None:
    cluster = fleet(8)
    cluster.tick(cpu=heats(cluster, "n1"))
    broken = replace(answer(dict.fromkeys(cluster.nodes, 5)), error="too many samples")
    for number in range(1, 30):
        cluster.tick(10 * number, cpu=broken)
    assert cluster.writes == ["mark n1"]
    cluster.tick(301, cpu=FAILED)
    cluster.tick(4 * 3600, cpu=heats(cluster))  # its end changes nothing at once
    assert cluster.writes == ["mark n1", "release n1"]


@pytest.mark.parametrize("garbage", [-1200.0, 808334905.0])
def test_a_load_that_cannot_be_changes_no_alert(garbage: float) -> None:
    cluster = Cluster(unlimited(rule(full_at=100)), [node("hot"), node("cool")])
    cluster.tick(cpu=answer({"hot": 90, "cool": 20}))
    for number in range(1, 20):
        found = cluster.tick(10 * number, cpu=answer({"hot": garbage, "cool": garbage}, NOON + 200))
    assert cluster.writes == ["mark hot"]
    assert [alerts["cpu"].value for alerts in found.alerts.values()] == [90, 20]
    assert [alerts["cpu"].quality for alerts in found.alerts.values()] == [Quality.INVALID] * 2


@pytest.mark.parametrize("others", [{"memory": FAILED}, {}], ids=["failed", "no answer at all"])
def test_of_a_partial_answer_each_part_counts(others: dict[str, QueryResult]) -> None:
    """Neither the other rule, nor samples that are wrong or missing, stop what is known."""
    cluster = fleet(5, "cpu", "memory")
    cluster.tick(cpu=heats(cluster, "n0", "n1"), memory=heats(cluster, "n0", "n1"))
    samples = (
        *answer({"n0": 50, "n2": 90}, NOON + 10).samples,
        Sample({"node": "n4"}, float("nan"), NOON),
        Sample({}, 99.0, NOON),
        Sample({"instance": "10.9.9.9:9100"}, 99.0, NOON),
    )
    found = cluster.tick(10, cpu=QueryResult(samples, warnings=("none",)), **others)
    assert cluster.marked == "n0 n1 n2"  # n0: the other rule is not heard of
    missing = Quality.MISSING
    qualities = [Quality.OK, missing, Quality.OK, missing, Quality.INVALID]
    assert [of_node["cpu"].quality for of_node in found.alerts.values()] == qualities
    assert found.matched["cpu"].unmatched == (
        Unmatched("cpu", "", "the sample has no label node or instance"),
        Unmatched("cpu", "10.9.9.9:9100", "no node has this name or address"),
    )


def test_a_node_is_as_hot_as_the_rule_that_is_furthest_beyond_its_threshold() -> None:
    cluster = Cluster(
        rule_set(
            *(rule("cpu"), rule("free", op="<", threshold=20), rule("zero", threshold=0)),
            rule("trial", threshold=1, shadow=True),
        ),
        [node("n1")],
    )
    cluster.tick(cpu={"n1": 88.0})
    pressure = cluster.tick(10, cpu={"n1": 84.0}, free={"n1": 10.0}).pressures["n1"]
    assert (pressure.hot, pressure.since, pressure.severity) == (True, NOON, 0.5)
    cluster.last = None
    pressure = cluster.tick(20, zero={"n1": 0.3}, cpu={"n1": 5.0}).pressures["n1"]
    assert pressure.severity == 0.3  # a share of the threshold, or of 1
    cluster.last = None
    pressure = cluster.tick(20, trial={"n1": 99.0}).pressures["n1"]
    assert (pressure.hot, pressure.since, pressure.severity) == (False, None, 0.0)


def test_the_hottest_are_written_first() -> None:
    cluster = fleet(4)
    found = cluster.tick(cpu={"n0": 81, "n1": 99, "n2": 50, "n3": 90})
    assert [patch.node for patch in found.patches] == ["n1", "n3", "n0"]


# Rules on trial (``shadow``), and rules for some nodes only (``selector``).


def firing(found: Evaluation, name: str) -> str:
    """The nodes that the rule is evaluated on; those on which it fires in capitals."""
    alerts = {node: of_node[name] for node, of_node in found.alerts.items() if name in of_node}
    return "".join(node.upper() if alert.firing else node for node, alert in alerts.items())


def test_a_shadow_rule_fires_and_neither_marks_nor_keeps_a_mark() -> None:
    """Neither one that was found on the node, nor one whose other rule has cleared."""
    rules = unlimited(rule("cpu"), rule("trial", shadow=True, threshold=50))
    cluster = Cluster(rules, [node("a"), node("b"), node("c", labels=STATUS)])
    values = {"a": 60.0, "b": 90.0, "c": 60.0}
    found = cluster.tick(cpu=values, trial=values)
    assert firing(found, "trial") == "ABC"
    assert cluster.writes == ["mark b", "release c"]
    assert found.patches[0].reason == "cpu 90 > 80"
    fired = json.loads(cluster.nodes["b"].annotations[EVIDENCE_ANNOTATION])["rules"]
    assert [each["rule"] for each in fired] == ["cpu"]


def test_a_rule_is_evaluated_on_the_nodes_that_its_selector_selects() -> None:
    rules = unlimited(
        rule("batch", selector="pool=batch", threshold=95), rule("web", selector="pool=web")
    )
    pools = {"a": "batch", "b": "web"}
    nodes = [node(name, labels={"pool": pool}) for name, pool in pools.items()]
    cluster = Cluster(rules, nodes)
    values = {"a": 90.0, "b": 90.0}
    found = cluster.tick(batch=values, web=values)
    assert (firing(found, "batch"), firing(found, "web")) == ("a", "B")
    cluster.nodes["b"] = replace(cluster.nodes["b"], labels={"pool": "batch", **STATUS})
    cluster.tick(10, batch=values, web=values)  # which selects it no more
    assert cluster.writes == ["mark b", "release b"]


# Which nodes, and what became of them since.


@pytest.mark.parametrize(
    ("labels", "section", "why"),
    [
        (
            {"node-role.kubernetes.io/control-plane": ""},
            {},
            "it is a control-plane node (label node-role.kubernetes.io/control-plane)",
        ),
        ({"type": "virtual-kubelet"}, {}, "it is a virtual node (label type=virtual-kubelet)"),
        ({"dynsched.io/ignore": "true"}, {}, "it has the label dynsched.io/ignore=true"),
        ({"pool": "web"}, {"selector": "pool=batch"}, "nodes.selector wants pool=batch"),
    ],
)
def test_a_node_that_is_not_eligible_is_not_marked_and_loses_its_mark(labels, section, why) -> None:
    cluster = Cluster(unlimited(nodes=section), [node("n0", labels=labels)])
    assert cluster.tick(cpu={"n0": 90.0}).hot == {"n0"}
    assert cluster.writes == []
    cluster.nodes["n0"] = node("n0", labels={**labels, **STATUS})
    (patch,) = cluster.tick(10, cpu={"n0": 90.0}).patches
    assert (patch.action, patch.reason) == (Action.RELEASE, f"the node is not eligible: {why}")
    assert cluster.nodes["n0"].labels == labels
    assert cluster.last is not None
    assert cluster.last.table.entries["n0"].mark.ineligible == why


def test_what_is_limited_and_what_stands_in_the_way() -> None:
    cluster = fleet(4, guard={"max_marked": 1})
    cluster.nodes["n2"] = node("n2", labels={"status": "maintenance"})
    found = cluster.tick(cpu={"n0": 95, "n1": 90, "n2": 99, "n3": 10})
    assert cluster.marked == "n0"
    assert found.hot == {"n0", "n1", "n2"}
    assert found.decision.limited == {"n1": "not marked: guard.max_marked is 1"}
    assert found.decision.capped == {""}
    assert found.table.conflicts == {"n2": "label status=maintenance was set by somebody else"}


NOT_READY = {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
CANDIDATE = {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    "others",
    [
        {"labels": {"eks.amazonaws.com/compute-type": "fargate"}},
        *({"taints": [taint]} for taint in (NOT_READY, CORDONED, CANDIDATE)),
    ],
)
def test_only_nodes_that_take_pods_count_for_the_cap(others) -> None:
    cluster = fleet(4, guard={"max_marked": "50%"})
    cluster.nodes |= {f"x{number}": node(f"x{number}", **others) for number in range(100)}
    hot = dict.fromkeys(("n0", "n1", "n2", "n3"), 90.0)
    assert cluster.tick(cpu={**hot, "n0": 99.0, "n3": 95.0}).decision.capped == {""}
    assert cluster.marked == "n0 n3"


@pytest.mark.parametrize("away", [["n3"], ["n0"], ["n0", "n1", "n2", "n3"]])
def test_nodes_that_are_not_ready_for_a_moment_release_no_mark(away) -> None:
    cluster = fleet(4, guard={"max_marked": "50%", "max_releases": "100%"})
    cpu = {"n0": 95.0, "n1": 90.0, "n2": 85.0, "n3": 10.0}
    cluster.tick(cpu=cpu)
    ready = dict(cluster.nodes)
    for name in away:
        cluster.nodes[name] = replace(ready[name], taints=(NOT_READY,))
    cluster.tick(10, cpu=cpu)
    cluster.nodes |= {name: ready[name] for name in away}
    cluster.tick(20, cpu=cpu)
    assert cluster.marked == "n0 n1"
    assert cluster.writes == ["mark n0", "mark n1"]


def test_a_patch_for_a_node_that_changed() -> None:
    """A node is planned again as it was read, with its version; what waited and is gone stays."""
    cluster = fleet(3, guard={"max_marked": "100%", "max_releases": 1})
    cluster.tick(cpu=heats(cluster, "n0", "n1", "n2"))
    found = cluster.tick(10, cpu=heats(cluster, "n0"))
    assert cluster.marked == "n0 n2"
    hot_again = found.patch_for_changed(
        replace(node("n0", labels={"team": "blue"}), resource_version="77")
    )
    assert hot_again is not None
    assert hot_again.body["metadata"]["resourceVersion"] == "77"
    assert hot_again.body["metadata"]["labels"] == STATUS
    cool_but_marked = found.patch_for_changed(node("n1", labels=STATUS))
    assert cool_but_marked is not None
    assert cool_but_marked.action is Action.RELEASE
    for each in (
        node("n0", labels={"status": "maintenance"}),
        node("n0", labels={"dynsched.io/ignore": "true"}),
        Node("n0", uid="another"),
        node("n1"),
        node("n2", labels=STATUS),  # it waits to be released
        node("unheard-of"),
    ):
        assert found.patch_for_changed(each) is None


def test_after_the_writes_nodes_that_are_gone_or_new_are_not_there() -> None:
    cluster = fleet(3)
    found = cluster.tick(cpu=heats(cluster, "n0", "n1"))
    now = {"n0": cluster.nodes["n0"], "n1": Node("n1", uid="another"), "new": node("new")}
    after = found.with_delays({"n0": "why"}).after_writes(now)
    assert {*after.alerts, *after.pressures, *after.table.entries, *after.hot} == {"n0"}
    assert (after.table.marked, after.patch_for("n0")) == ({"n0"}, None)
    assert after.decision.limited == {"n0": "why"}
    unwritten = found.after_writes(fleet(3).nodes)
    assert [unwritten.patch_for(name) for name in unwritten.alerts] == [*found.patches, None]


def test_the_times_of_all_alerts_move_with_the_clock() -> None:
    cluster = Cluster(unlimited(rule(for_="1m")), [node("n0")])
    last: Evaluation = cluster.tick(cpu={"n0": 90.0})
    cluster.last = last.shifted(3600)
    cluster.tick(3630, cpu={"n0": 90.0})
    assert cluster.writes == []
    cluster.tick(3660, cpu={"n0": 90.0})
    assert cluster.writes == ["mark n0"]
    assert cluster.alert("n0").active_since == NOON + 3600


def test_a_rule_that_fires_later_is_recorded_and_keeps_the_mark_over_a_restart() -> None:
    """A restart while its value was between the two lines released the node."""
    rules = [rule("cpu"), rule("mem", threshold=85, clear_threshold=80)]
    running = Cluster(unlimited(*rules), [node("a")])
    running.tick(cpu={"a": 91.0}, mem={"a": 50.0})
    running.tick(10, cpu={"a": 91.0}, mem={"a": 90.0})
    running.tick(20, cpu={"a": 91.0}, mem={"a": 90.0})
    assert running.writes == ["mark a", "repair a"]
    running.tick(30, cpu={"a": 50.0}, mem={"a": 82.0})
    again = Cluster(unlimited(*rules), running.nodes.values())
    again.tick(40, cpu={"a": 50.0}, mem={"a": 82.0})
    assert (again.writes, again.marked) == ([], "a")


def test_a_cool_node_that_waits_to_be_released_is_left_as_it_is() -> None:
    """A part of its mark that somebody removed was put on again."""
    both = {"label": "status=presure", "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    guard = {"max_marked": "100%", "max_releases": 1}
    running = Cluster(rule_set(mark=both, guard=guard), [node("a"), node("b")])
    running.tick(cpu={"a": 95.0, "b": 91.0})
    running.nodes["b"] = replace(running.nodes["b"], taints=())
    running.tick(10, cpu={"a": 5.0, "b": 5.0})
    assert running.writes[2:] == ["release a"]
    assert running.nodes["b"].taints == ()
