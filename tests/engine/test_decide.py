"""Whole ticks: answers and nodes in, patches out."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import (
    FAILED,
    NOON,
    Body,
    answer,
    apply,
    body,
    named,
    node,
    project,
    rule,
    rule_set,
    unlimited,
)
from evaluating import verdicts_of

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.columns import QUALITIES
from dynsched.engine.decide import decide
from dynsched.engine.model import Action, Node, Quality, QueryResult, Sample, Unmatched, Verdict
from dynsched.engine.snapshot import Decision
from dynsched.rules.rule_set import RuleSet

STATUS = {"status": "presure"}


class Cluster:
    """Nodes that keep what is applied to them, and the alerts from tick to tick."""

    def __init__(self, *raws: Body) -> None:
        self.raws = {raw["metadata"]["name"]: raw for raw in raws}
        self.alerts = no_alerts()

    def tick(self, rules: RuleSet, results: Mapping[str, QueryResult], at: float = 0.0) -> Decision:
        """One tick ``at`` seconds after noon, written at once."""
        nodes = {name: project(raw) for name, raw in self.raws.items()}
        decision = decide(rules, results, nodes, self.alerts, NOON + at)
        self.alerts = decision.verdicts.alerts
        for patch in decision.patches:
            self.raws[patch.node] = apply(self.raws[patch.node], patch)
        return decision

    def hot(self, rules: RuleSet, *names: str, at: float = 0.0) -> Decision:
        """One tick in which every rule says 90 of these nodes, and 50 of all others."""
        values = {name: 90.0 if name in names else 50.0 for name in self.raws}
        return self.tick(rules, {each.name: answer(values, NOON + at) for each in rules.rules}, at)

    @property
    def marked(self) -> str:
        labels = ((name, raw["metadata"].get("labels", {})) for name, raw in self.raws.items())
        return " ".join(name for name, found in labels if found.get("status") == "presure")


def verdict_on(name: str, decision: Decision) -> Verdict:
    return verdicts_of(decision.verdicts)[name]


def fleet(size: int) -> Cluster:
    return Cluster(*(body(f"n{number}") for number in range(size)))


def test_a_replaced_node_that_carries_a_mark_is_adopted() -> None:
    rules = unlimited(rule("cpu"), rule("memory"))
    values = {name: answer({"n1": 50}) for name in ("cpu", "memory")}
    before = decide(rules, values, named("n1", uid="1"), no_alerts(), NOON).verdicts.alerts
    marked = replace(named("n1", uid="2")["n1"], labels=STATUS)
    verdict = verdict_on("n1", decide(rules, {}, {"n1": marked}, before, NOON + 5))
    assert [(alert.adopted, alert.uid) for alert in verdict.alerts] == [(True, "2-n1")] * 2


def test_a_cycle_does_not_patch_every_node() -> None:
    """And of several rules not only the last one's result is kept. A node that is gone is
    forgotten.
    """
    rules = unlimited(rule("cpu"), rule("memory"), rule("disk"))
    cluster = fleet(20)
    hot = {"cpu": "n1", "memory": "n2", "disk": "n3"}
    for number in range(100):
        at = 10.0 * number
        results = {
            name: answer({each: 90 if each == node else 50 for each in cluster.raws}, NOON + at)
            for name, node in sorted(hot.items(), reverse=bool(number % 2))
        }
        assert len(cluster.tick(rules, results, at).patches) == (3 if number == 0 else 0)
        assert cluster.marked == "n1 n2 n3"
    del cluster.raws["n1"]
    decision = cluster.hot(unlimited(rule("cpu"), rule("memory")), "n2", at=1000)
    assert "n1" not in decision.verdicts.alerts.roster.names
    assert cluster.marked == "n2"  # the mark of the rule that was removed is released


def test_a_failed_query_is_no_end_and_no_zero_load() -> None:
    cluster = fleet(8)
    cluster.hot(unlimited(), "n1")
    broken = QueryResult(answer(dict.fromkeys(cluster.raws, 5)).samples, error="too many samples")
    for number in range(1, 30):
        assert cluster.tick(unlimited(), {"cpu": broken}, 10 * number).patches == ()
    assert cluster.marked == "n1"
    (patch,) = cluster.tick(unlimited(), {"cpu": FAILED}, 301).patches
    assert patch.action is Action.RELEASE
    assert cluster.hot(unlimited(), at=4 * 3600).patches == ()  # its end changes nothing at once


@pytest.mark.parametrize("others", [{"memory": FAILED}, {}], ids=["failed", "no answer at all"])
def test_of_a_partial_answer_each_part_counts(others: dict[str, QueryResult]) -> None:
    """Neither the other rule, nor samples that are wrong or missing, stop what is known."""
    rules = unlimited(rule("cpu"), rule("memory"))
    cluster = fleet(5)
    cluster.hot(rules, "n0", "n1")
    samples = (
        *answer({"n0": 50, "n2": 90}, NOON + 10).samples,
        Sample({"node": "n4"}, float("nan"), NOON),
        Sample({}, 99.0, NOON),
        Sample({"instance": "10.9.9.9:9100"}, 99.0, NOON),
    )
    decision = cluster.tick(rules, {"cpu": QueryResult(samples, warnings=("none",)), **others}, 10)
    assert cluster.marked == "n0 n1 n2"  # n0: the other rule is not heard of
    qualities = [QUALITIES[code] for code in decision.verdicts.alerts.quality[0]]
    missing = Quality.MISSING
    assert qualities == [Quality.OK, missing, Quality.OK, missing, Quality.INVALID]
    assert decision.unmatched == (
        Unmatched("cpu", "", "the sample has no label node or instance"),
        Unmatched("cpu", "10.9.9.9:9100", "no node has this name or address"),
    )


def test_a_restart_adopts_the_marks_that_are_there() -> None:
    """By the rules that the evidence names, and by all where there is none."""
    cluster = fleet(3)
    rules = unlimited(rule("cpu", clear_threshold=70, for_="1h"), rule("memory", for_="1h"))
    cluster.raws["n1"]["metadata"]["labels"] = dict(STATUS)  # left by the first project
    cool = answer({"n0": 50, "n1": 50, "n2": 50})
    (patch,) = cluster.tick(
        rules, {"cpu": answer({"n0": 75, "n1": 75, "n2": 75}), "memory": cool}
    ).patches
    assert (patch.node, patch.action) == ("n1", Action.REPAIR)
    assert cluster.marked == "n1"
    cluster.alerts = no_alerts()
    decision = cluster.tick(rules, {"cpu": FAILED, "memory": FAILED}, 10)
    assert decision.patches == ()
    alerts = verdict_on("n1", decision).alerts
    assert [(one.rule, one.firing, one.adopted) for one in alerts] == [
        ("cpu", True, True),
        ("memory", False, False),
    ]
    cluster.tick(rules, {"cpu": answer({"n1": 69}, NOON + 20)}, 20)
    assert cluster.marked == ""


def test_what_is_adopted_and_never_heard_of_is_released_after_stale_after() -> None:
    cluster = Cluster(body("n0", labels=STATUS))
    for at in (0, 150, 300, 301):
        cluster.tick(unlimited(), {"cpu": FAILED}, at)
        assert cluster.marked == ("n0" if at < 301 else "")
    assert cluster.raws["n0"]["metadata"].keys() == {"name", "resourceVersion"}


def test_only_what_is_not_remembered_is_adopted() -> None:
    """A label put by hand while we run is no reason to take the node for hot; that of a node
    that joins later is.
    """
    cluster = fleet(2)
    cluster.hot(unlimited())
    cluster.raws["n1"]["metadata"]["labels"] = dict(STATUS)
    cluster.raws["n9"] = body("n9", labels=STATUS)
    decision = cluster.tick(unlimited(), {"cpu": answer({"n0": 50, "n1": 50}, NOON + 10)}, 10)
    assert not verdict_on("n1", decision).hot
    assert verdict_on("n9", decision).hot
    assert cluster.marked == "n9"


def test_a_renamed_rule_beside_another_goes_on_with_the_marks_of_the_old_one() -> None:
    """The node is remembered by the other rule, so that it is not adopted as a found one."""
    cluster = fleet(4)
    two = unlimited(rule("cpu"), rule("memory"))
    idle = answer({"n0": 50, "n1": 50, "n2": 50, "n3": 90})
    cluster.tick(two, {"cpu": answer({"n0": 90, "n1": 90, "n2": 50, "n3": 50}), "memory": idle})
    cluster.raws["n2"]["metadata"]["labels"] = dict(STATUS)  # by hand: no rule fires there
    renamed = unlimited(rule("node-cpu", for_="1h", clear_threshold=70), rule("memory"))
    cluster.tick(renamed, {"node-cpu": answer({"n0": 75, "n1": 60}, NOON + 10), "memory": idle}, 10)
    assert cluster.marked == "n0 n3"
    for at in (20, 310):
        cluster.tick(renamed, {"node-cpu": FAILED, "memory": answer({"n3": 90}, NOON + at)}, at)
        assert cluster.marked == "n0 n3"
    cluster.tick(renamed, {"node-cpu": FAILED, "memory": answer({"n3": 90}, NOON + 311)}, 311)
    assert cluster.marked == "n3"  # as long as any other of which nothing is heard


@pytest.mark.parametrize(
    ("labels", "section", "why"),
    [
        (
            {"node-role.kubernetes.io/control-plane": ""},
            {},
            "it is a control-plane node (label node-role.kubernetes.io/control-plane)",
        ),
        ({"dynsched.io/ignore": "true"}, {}, "it has the label dynsched.io/ignore=true"),
        ({"pool": "web"}, {"selector": "pool=batch"}, "nodes.selector wants pool=batch"),
    ],
)
def test_a_node_that_is_not_eligible_is_not_marked_and_loses_its_mark(labels, section, why) -> None:
    rules = unlimited(nodes=section)
    cluster = Cluster(body("n0", labels=labels))
    decision = cluster.hot(rules, "n0")
    assert verdict_on("n0", decision).hot
    assert decision.patches == ()
    cluster.raws["n0"]["metadata"]["labels"] |= STATUS
    (patch,) = cluster.hot(rules, "n0", at=10).patches
    assert patch.action is Action.RELEASE
    assert patch.reason == f"the node is not eligible: {why}"
    assert cluster.raws["n0"]["metadata"]["labels"] == labels
    (view,) = decision.views({"n0": project(cluster.raws["n0"])}).values()
    assert view.state.ineligible == why
    assert (view.state.marked, view.verdict.hot) == (False, True)


def test_replan() -> None:
    """A node is planned again as it was read, with its version; what waited and is gone stays."""
    rules = rule_set(guard={"max_marked": "100%", "max_releases": 1})
    cluster = fleet(3)
    cluster.hot(rules, "n0", "n1", "n2")
    decision = cluster.hot(rules, "n0", at=10)
    assert cluster.marked == "n0 n2"
    raw = body("n0", labels={"team": "blue"})
    raw["metadata"]["resourceVersion"] = "77"
    hot_again = decision.replan(project(raw))
    assert hot_again is not None
    assert hot_again.body["metadata"]["resourceVersion"] == "77"
    assert hot_again.body["metadata"]["labels"] == STATUS
    cool_but_marked = decision.replan(node("n1", labels=STATUS))
    assert cool_but_marked is not None
    assert cool_but_marked.action is Action.RELEASE
    assert decision.replan(node("n2", labels=STATUS)) is not None  # its evidence is put again
    for each in (
        node("n0", labels={"status": "maintenance"}),
        node("n0", labels={"dynsched.io/ignore": "true"}),
        Node("n0", uid="another"),
        node("n1"),
        node("n2"),
        node("unheard-of"),
    ):
        assert decision.replan(each) is None
    assert decision.views({"n0": node("n0"), "new": node("new")}).keys() == {"n0"}
    assert decision.views({"n0": Node("n0", uid="another")}) == {}


def test_views_tell_what_is_withheld_and_what_stands_in_the_way() -> None:
    cluster = Cluster(*(body(f"n{number}") for number in (0, 1, 3)))
    cluster.raws["n2"] = body("n2", labels={"status": "maintenance"})
    values = answer({"n0": 95, "n1": 90, "n2": 99, "n3": 10})
    decision = cluster.tick(rule_set(guard={"max_marked": 1}), {"cpu": values})
    views = decision.views({name: project(raw) for name, raw in cluster.raws.items()})
    found = {
        n: (v.state.marked, v.verdict.since, v.withheld, v.state.conflict) for n, v in views.items()
    }
    assert found == {
        "n0": (True, NOON, None, None),
        "n1": (False, NOON, "not marked: guard.max_marked is 1", None),
        "n2": (False, NOON, None, "label status=maintenance was set by somebody else"),
        "n3": (False, None, None, None),
    }
