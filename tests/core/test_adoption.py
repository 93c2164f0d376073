"""Adoption: which rules count as firing on a node with an existing mark, also after a change of the
rules.
"""

import json
from dataclasses import replace

import pytest
from builders import FAILED, NOON, node, rule, rule_set, unlimited
from evaluating import Cluster, fleet, heats

STATUS = {"status": "presure"}


@pytest.mark.parametrize(
    ("fired", "adopted"),
    [
        (None, "cpu memory"),  # left by dynamicScheduler, which writes no record
        ([], "cpu memory"),
        (["cpu"], "cpu"),
        (["cpu", "memory"], "cpu memory"),
        (["memory", "gone"], "memory"),
        (["gone"], "cpu memory"),
        (["trial"], "cpu memory"),
    ],
)
def test_an_existing_mark_is_adopted(fired: list[str] | None, adopted: str) -> None:
    """The rules that its record names count as firing, otherwise all rules; never a shadow rule."""
    since = "2023-11-14T22:00:00Z"
    rules = [{"rule": name, "since": since} for name in fired or ()]
    text = None if fired is None else json.dumps({"label": "status=presure", "rules": rules})
    cluster = Cluster(
        unlimited(rule("cpu"), rule("memory"), rule("trial", shadow=True)),
        [node("n1", labels=STATUS, evidence=text)],
    )
    alerts = cluster.tick(cpu=FAILED, memory=FAILED).alerts["n1"]
    assert " ".join(name for name, alert in alerts.items() if alert.adopted) == adopted
    found = [alert for alert in alerts.values() if alert.adopted]
    known = fired is not None and adopted.split(maxsplit=1)[0] in fired
    began = NOON - 13 * 60 - 20 if known else NOON
    assert {alert.active_since for alert in found} == {began}
    assert {(alert.firing, alert.since, alert.known_at) for alert in found} == {(True, began, NOON)}


def test_an_adopted_mark_without_samples_is_released_after_stale_after() -> None:
    cluster = Cluster(unlimited(), [node("n0", labels=STATUS)])
    for at in (0, 150, 300, 301):
        cluster.tick(at, cpu=FAILED)
        assert cluster.marked == ("n0" if at < 301 else "")
    assert cluster.nodes["n0"] == node("n0")


def test_only_marks_of_nodes_without_known_alerts_are_adopted() -> None:
    """A label that somebody sets while dynsched runs does not make the node hot. The label of a
    node that joins later does, and so does the label of a node that replaced another.
    """
    cluster = fleet(3)
    cluster.tick(cpu=heats(cluster))
    cluster.nodes["n1"] = node("n1", labels=STATUS)
    cluster.nodes["n2"] = replace(node("n2", labels=STATUS), uid="another")
    cluster.nodes["n9"] = node("n9", labels=STATUS)
    found = cluster.tick(10, cpu={"n0": 50.0, "n1": 50.0})
    assert sorted(found.hot) == ["n2", "n9"]
    assert cluster.marked == "n2 n9"
    assert cluster.alert("n2").uid == "another"


def test_a_renamed_rule_takes_over_the_marks_of_the_old_one_also_if_another_rule_stays() -> None:
    """The other rule still has an alert for the node, so the mark is not adopted as a new one."""
    cluster = fleet(4, "cpu", "memory")
    idle = dict.fromkeys(("n0", "n1", "n2"), 50.0) | {"n3": 90.0}
    cluster.tick(cpu=heats(cluster, "n0", "n1"), memory=idle)
    cluster.nodes["n2"] = node("n2", labels=STATUS)  # set by hand; no rule fires there
    cluster.rules = unlimited(rule("new", for_="1h", clear_threshold=70), rule("memory"))
    cluster.tick(10, new={"n0": 75.0, "n1": 60.0}, memory=idle)
    assert cluster.marked == "n0 n3"
    for at in (20, 310):
        cluster.tick(at, new=FAILED, memory={"n3": 90.0})
        assert cluster.marked == "n0 n3"
    cluster.tick(311, new=FAILED, memory={"n3": 90.0})
    assert cluster.marked == "n3"  # n0 became stale, like any alert without samples


def test_if_all_rules_are_replaced_a_marked_node_is_adopted() -> None:
    """Also if no rule fired on it, because its release may have been waiting."""
    cluster = fleet(2)
    cluster.tick(cpu=heats(cluster))
    cluster.nodes["n1"] = node("n1", labels=STATUS)
    cluster.rules = unlimited(rule("new"))
    cluster.tick(10, new=FAILED)
    assert cluster.marked == "n1"


@pytest.mark.parametrize("fired", ["cpu", "gone"])
def test_with_mark_none_an_existing_mark_makes_no_node_hot_and_stays(fired: str) -> None:
    text = json.dumps({"label": "status=presure", "rules": [{"rule": fired}]})
    rules = rule_set(mark="none")
    cluster = Cluster(rules, [node("n0"), node("n1", labels=STATUS, evidence=text)])
    found = cluster.tick(cpu=heats(cluster, "n0"))
    assert (found.patches, found.hot) == ((), {"n0"})
    assert {name: getattr(why, "code", "") for name, why in found.decision.limited.items()} == {
        "n0": "mark_none",
        "n1": "left",
    }
