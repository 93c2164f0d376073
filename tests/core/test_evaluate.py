"""Whole evaluations, from query results and nodes to patches."""

import json
from dataclasses import replace

import pytest
from builders import FAILED, NOON, answer, node, rule, rule_set, unlimited
from evaluating import Cluster, fleet, heats

from dynsched.core.evaluate import Evaluation
from dynsched.rules.keys import EVIDENCE_ANNOTATION

STATUS = {"status": "presure"}


def test_a_failed_query_neither_ends_an_alert_nor_counts_as_zero_load() -> None:
    cluster = fleet(8)
    cluster.tick(cpu=heats(cluster, "n1"))
    broken = replace(answer(dict.fromkeys(cluster.nodes, 5)), error="too many samples")
    for number in range(1, 30):
        cluster.tick(10 * number, cpu=broken)
    assert cluster.writes == ["mark n1"]
    cluster.tick(301, cpu=FAILED)
    cluster.tick(4 * 3600, cpu=heats(cluster))  # queries succeed again, and no node is hot
    assert cluster.writes == ["mark n1", "release n1"]


def test_the_severity_of_a_node_is_that_of_the_rule_furthest_beyond_its_threshold() -> None:
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
    assert pressure.severity == 0.3  # relative to 1, because the threshold is 0
    cluster.last = None
    pressure = cluster.tick(20, trial={"n1": 99.0}).pressures["n1"]
    assert (pressure.hot, pressure.since, pressure.severity) == (False, None, 0.0)


def test_the_hottest_nodes_are_written_first() -> None:
    cluster = fleet(4)
    found = cluster.tick(cpu={"n0": 81, "n1": 99, "n2": 50, "n3": 90})
    assert [patch.node for patch in found.patches] == ["n1", "n3", "n0"]


# Shadow rules, and rules with a selector.


def firing(found: Evaluation, name: str) -> str:
    """The nodes on which the rule is evaluated; in capitals if it fires there."""
    alerts = {node: of_node[name] for node, of_node in found.alerts.items() if name in of_node}
    return "".join(node.upper() if alert.firing else node for node, alert in alerts.items())


def test_a_shadow_rule_fires_and_neither_marks_nor_keeps_a_mark() -> None:
    """Also not a mark that was already on the node."""
    rules = unlimited(rule("cpu"), rule("trial", shadow=True, threshold=50))
    cluster = Cluster(rules, [node("a"), node("b"), node("c", labels=STATUS)])
    values = {"a": 60.0, "b": 90.0, "c": 60.0}
    found = cluster.tick(cpu=values, trial=values)
    assert firing(found, "trial") == "ABC"
    assert cluster.writes == ["mark b", "release c"]
    assert found.patches[0].reason == "cpu 90 > 80"
    fired = json.loads(cluster.nodes["b"].annotations[EVIDENCE_ANNOTATION])["rules"]
    assert [each["rule"] for each in fired] == ["cpu"]


def test_a_rule_is_evaluated_only_on_the_nodes_that_its_selector_matches() -> None:
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
    cluster.tick(10, batch=values, web=values)  # the selector of web no longer matches b
    assert cluster.writes == ["mark b", "release b"]


# Nodes that are closed to new pods, and changes of marks.


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
def test_only_nodes_that_accept_pods_count_for_the_cap(others) -> None:
    cluster = fleet(4, guard={"max_marked": "50%"})
    cluster.nodes |= {f"x{number}": node(f"x{number}", **others) for number in range(100)}
    hot = dict.fromkeys(("n0", "n1", "n2", "n3"), 90.0)
    assert cluster.tick(cpu={**hot, "n0": 99.0, "n3": 95.0}).decision.capped == {""}
    assert cluster.marked == "n0 n3"


def test_a_rule_that_fires_later_is_recorded_and_keeps_the_mark_across_a_restart() -> None:
    """Without the record, a restart while the rule's value is in the dead band releases the
    node.
    """
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


def test_the_mark_of_a_cool_node_that_waits_for_its_release_is_not_repaired() -> None:
    """A part of the mark that somebody removed was set again."""
    both = {"label": "status=presure", "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    guard = {"max_marked": "100%", "max_releases": 1}
    running = Cluster(rule_set(mark=both, guard=guard), [node("a"), node("b")])
    running.tick(cpu={"a": 95.0, "b": 91.0})
    running.nodes["b"] = replace(running.nodes["b"], taints=())
    running.tick(10, cpu={"a": 5.0, "b": 5.0})
    assert running.writes[2:] == ["release a"]
    assert running.nodes["b"].taints == ()
