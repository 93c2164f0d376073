"""Rules on trial (``shadow``), and rules for some nodes only (``selector``)."""

import json
from typing import Any

import pytest
from builders import NOON, Body, answer, apply, body, project, rule, rule_set, unlimited
from evaluating import alerts_of, table_of, verdicts_of
from snapshots import Scene

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.restore import adopted, finish_replay
from dynsched.engine.decide import decide
from dynsched.engine.health import unmatched_rules, why_unhealthy
from dynsched.engine.model import Action, Alert, AlertState, Node, Quality
from dynsched.engine.nodes.inventory import take_inventory
from dynsched.engine.nodes.mark_state import mark_state
from dynsched.engine.placing.score import node_loads, weighted_profile
from dynsched.engine.snapshot import Decision
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.rule_errors import RulesInvalidError
from dynsched.rules.rule_set import RuleSet

STATUS = {"status": "presure"}


def decided(rules: RuleSet, raws: list[Body], **values: dict[str, float]) -> Decision:
    """One tick. ``values``: rule -> node -> value."""
    nodes = {raw["metadata"]["name"]: project(raw) for raw in raws}
    return decide(
        rules, {name: answer(found) for name, found in values.items()}, nodes, no_alerts(), NOON
    )


def firing(decision: Decision, rule_name: str) -> list[str]:
    """Of the nodes that the rule is evaluated on, those on which it fires, in capitals."""
    alerts = alerts_of(decision.verdicts.alerts)[rule_name]
    return [name.upper() if alert.firing else name for name, alert in alerts.items()]


def test_a_shadow_rule_fires_and_neither_marks_nor_keeps_a_mark() -> None:
    """Neither one that was found on the node, nor one whose other rule has cleared."""
    rules = unlimited(rule("cpu"), rule("trial", shadow=True, threshold=50))
    values = {"a": 60.0, "b": 90.0, "c": 60.0}
    marked = body("c", labels=STATUS)
    decision = decided(rules, [body("a"), body("b"), marked], cpu=values, trial=values)

    assert firing(decision, "trial") == ["A", "B", "C"]
    mark, release = decision.patches
    assert (mark.node, mark.reason) == ("b", "cpu 90 > 80")
    evidence = json.loads(mark.body["metadata"]["annotations"][EVIDENCE_ANNOTATION])
    assert [fired["rule"] for fired in evidence["rules"]] == ["cpu"]
    assert (release.node, release.action) == ("c", Action.RELEASE)
    for fired in ("", "trial"):
        evidence = f'{{"rules":[{{"rule":"{fired}"}}]}}'
        node = project(body("c", labels=STATUS, annotations={EVIDENCE_ANNOTATION: evidence}))
        found = adopted(rules, [mark_state(node, rules.mark)], NOON)
        assert [alert.rule for alert in found] == ["cpu"]


def test_a_shadow_rule_goes_on_firing_after_a_restart_though_no_node_is_marked() -> None:
    rules = unlimited(
        rule("trial", shadow=True, clear_threshold=60), rule("cpu", clear_threshold=60)
    )
    node = project(body("a"))
    firing = {
        name: {
            "a": Alert(
                *(name, "a", AlertState.FIRING, NOON, NOON, NOON),
                quality=Quality.OK,
                value=70.0,
                uid=node.uid,
            )
        }
        for name in ("trial", "cpu")
    }
    seen = take_inventory({"a": node}, rules)
    kept = finish_replay(seen, table_of(firing, ["trial", "cpu"], seen.index.roster), NOON)
    assert kept.exists.tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("extender", "path"),
    [
        ({"reject": ["trial"]}, ("extender", "reject", 0)),
        (
            {"profiles": {"default": {"score": {"trial": 1}}}},
            ("extender", "profiles", "default", "score", "trial"),
        ),
    ],
)
def test_no_pod_is_placed_by_a_shadow_rule(extender: Any, path: tuple[str | int, ...]) -> None:
    with pytest.raises(RulesInvalidError) as failed:
        rule_set(rule("trial", shadow=True), rule("cpu"), extender=extender)
    assert [error.path for error in failed.value.errors] == [path]
    rules = rule_set(rule("trial", shadow=True), rule("cpu"), extender={})
    assert [weighed.name for weighed, _ in weighted_profile(rules, "x").rules] == ["cpu"]


BATCH, WEB = {"pool": "batch"}, {"pool": "web"}


def test_a_rule_is_evaluated_on_the_nodes_that_its_selector_selects() -> None:
    rules = unlimited(
        rule("batch", selector="pool=batch", threshold=95), rule("web", selector="pool=web")
    )
    raws = [body("a", labels=BATCH), body("b", labels=WEB)]
    decision = decided(rules, raws, batch={"a": 90, "b": 90}, web={"a": 90, "b": 90})

    assert (firing(decision, "batch"), firing(decision, "web")) == (["a"], ["B"])
    assert [patch.node for patch in decision.patches] == ["b"]
    assert decision.unmatched == ()
    assert [alert.rule for alert in verdicts_of(decision.verdicts)["a"].alerts] == ["batch"]


def test_a_node_that_a_rule_selects_no_more_is_released() -> None:
    rules = unlimited(rule("batch", selector="pool=batch"))
    first = decided(rules, [body("a", labels=BATCH)], batch={"a": 90})
    marked = apply(body("a", labels=BATCH), first.patches[0])
    marked["metadata"]["labels"]["pool"] = "web"
    nodes = {"a": project(marked)}
    then = decide(rules, {"batch": answer({"a": 90})}, nodes, first.verdicts.alerts, NOON + 10)
    assert [patch.action for patch in then.patches] == [Action.RELEASE]


def test_a_selector_without_a_node_is_told() -> None:
    scene = Scene({"rules": [rule("cpu", selector="pool=bacth")]}, [project(body("a"))])
    snapshot = scene.tick(NOON, cpu={"a": 90.0})
    reason = "its selector pool=bacth matches no node"
    assert unmatched_rules(snapshot) == {"cpu": reason}
    assert reason in str(why_unhealthy(snapshot, 0, 10))


def test_the_extender_scores_by_the_rules_that_apply() -> None:
    """And does not assume the median of another pool's values."""
    rules = rule_set(rule("batch", selector="pool=batch"), rule("web", selector="pool=web"))

    nodes = {
        name: Node(name, labels={"pool": pool}) for name, pool in (("a", "batch"), ("b", "web"))
    }
    answers = {"batch": answer({"a": 10, "b": 90}), "web": answer({"a": 90, "b": 70})}
    views = decide(rules, answers, nodes, no_alerts(), NOON).views(nodes)
    assert node_loads(views, weighted_profile(rules, "x")) == {"a": 100, "b": 700}
