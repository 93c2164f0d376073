"""Patches of nodes: what they contain, and what they never change."""

import json
from typing import Any

import pytest
from builders import NOON, answer, node, rule, soft, unlimited
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.alerts import NodePressure
from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.marks import (
    Action,
    MarkDecision,
    NodePatch,
    apply_patch,
    describe,
    is_done,
    mark_state,
    plan_node,
    plan_prune,
)
from dynsched.core.nodes import Node
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.rule_set import RuleSet
from dynsched_sim.apiserver.objects import merge_patch

TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
LABEL_ONLY = unlimited()
TAINT_ONLY = unlimited(mark={"label": None, "taint": TAINT})
BOTH = unlimited(mark={"taint": TAINT})
MARKS = {"label": LABEL_ONLY, "taint": TAINT_ONLY, "both": BOTH}

STATUS = {"status": "presure"}
OTHER_LABELS = {"kubernetes.io/hostname": "n1", "team": "blue"}
OTHER_TAINTS = (
    {"key": "gpu", "value": "true", "effect": "NoSchedule"},
    {
        "key": "node.kubernetes.io/not-ready",
        "effect": "NoExecute",
        "timeAdded": "2026-11-20T12:00:00Z",
        "futureField": {"deep": [1, {"er": None}]},
    },
)


def pressure(rules: RuleSet, name: str, value: float) -> NodePressure:
    answers = {each.name: answer({name: value}) for each in rules.rules}
    return evaluate(rules, answers, {name: node(name)}, None, NOON).pressures[name]


def planned(
    rules: RuleSet, observed: Node, *, wanted: bool, value: float | None = None
) -> NodePatch | None:
    """The patch for a node that is hot and may have the mark, or is cool and must not."""
    load = pressure(rules, observed.name, value or (91 if wanted else 50))
    decision = MarkDecision(frozenset([observed.name] if wanted else ()), {})
    return plan_node(mark_state(observed, rules.mark, rules.nodes), load, rules, decision)


def mark(rules: RuleSet, observed: Node) -> Node:
    patch = planned(rules, observed, wanted=True)
    return apply_patch(observed, patch) if patch else observed


def release(rules: RuleSet, observed: Node) -> Node:
    patch = planned(rules, observed, wanted=False)
    return apply_patch(observed, patch) if patch else observed


FOREIGN = node(labels=OTHER_LABELS, taints=OTHER_TAINTS)


def as_stored(observed: Node) -> dict[str, Any]:
    """The node as the API server stores it, with a constant resourceVersion."""
    taints = {"taints": list(observed.taints)} if observed.taints else {}
    meta = {"labels": observed.labels, "annotations": observed.annotations}
    return {"metadata": {**meta, "resourceVersion": "1"}, "spec": taints}


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_the_bodies_of_the_patches_that_mark_and_release(rules: RuleSet) -> None:
    def body(label: object, record: object, taints: object) -> dict[str, Any]:
        labels = {"labels": {"status": label}} if rules.mark.label else {}
        metadata = {"resourceVersion": "1", **labels, "annotations": {EVIDENCE_ANNOTATION: record}}
        return {"metadata": metadata, **({"spec": {"taints": taints}} if rules.mark.taint else {})}

    assert planned(rules, FOREIGN, wanted=False) is None
    patch = planned(rules, FOREIGN, wanted=True)
    assert patch is not None
    record = patch.body["metadata"]["annotations"][EVIDENCE_ANNOTATION]
    content = body("presure", record, [*OTHER_TAINTS, soft()])
    assert patch == NodePatch("n1", Action.MARK, content, "cpu 91 > 80")
    assert json.loads(record) == {
        "label": "status=presure" if rules.mark.label else None,
        "taint": TAINT if rules.mark.taint else None,
        "since": "2023-11-14T22:13:20Z",
        "rules": [
            {"rule": "cpu", "value": 91.0, "threshold": 80.0, "since": "2023-11-14T22:13:20Z"}
        ],
    }
    marked = apply_patch(FOREIGN, patch)
    assert as_stored(marked) == merge_patch(as_stored(FOREIGN), patch.body)
    observed = mark_state(marked, rules.mark)
    parts = bool(rules.mark.label), bool(rules.mark.taint), True, None
    assert (observed.has_label, observed.has_taint, observed.marked, observed.conflict) == parts
    # The value changes at every tick, but the node is not written again.
    assert planned(rules, marked, wanted=True, value=99.9) is None
    content = body(None, None, list(OTHER_TAINTS))
    released = planned(rules, marked, wanted=False)
    assert released == NodePatch("n1", Action.RELEASE, content, "no rule fires any more")
    assert apply_patch(marked, released) == FOREIGN
    assert (is_done(released, FOREIGN), is_done(released, marked)) == (True, False)
    (pruned,) = plan_prune([marked], rules.mark)
    assert (pruned.action, pruned.body) == (Action.RELEASE, released.body)


def test_the_last_taint_is_removed_as_a_whole() -> None:
    patch = planned(TAINT_ONLY, node(taints=[soft()]), wanted=False)
    assert patch is not None
    assert patch.body["spec"] == {"taints": None}


@pytest.mark.parametrize("rules", [LABEL_ONLY, BOTH], ids=["label", "both"])
@pytest.mark.parametrize("value", ["maintenance", "Presure", "pressure", ""])
def test_a_label_that_somebody_else_set_is_never_changed(rules: RuleSet, value: str) -> None:
    observed = node(labels={"status": value})
    for wanted in (True, False):
        assert planned(rules, observed, wanted=wanted) is None
    theirs = f"label status={value} was set by somebody else"
    assert mark_state(observed, rules.mark).conflict == theirs


@pytest.mark.parametrize("rules", [TAINT_ONLY, BOTH], ids=["taint", "both"])
@pytest.mark.parametrize("other", [{"value": "false"}, {"value": ""}, {}])
def test_a_taint_with_our_key_and_effect_and_another_value_is_a_conflict(rules, other) -> None:
    taint = {"key": "dynsched.io/pressure", "effect": "PreferNoSchedule", **other}
    observed = node(taints=[*OTHER_TAINTS, taint])
    for wanted in (True, False):
        assert planned(rules, observed, wanted=wanted) is None
    assert mark_state(observed, rules.mark).conflict == (
        f"taint dynsched.io/pressure={other.get('value', '')} was set by somebody else"
    )


CONFIGURATIONS = {
    "label": LABEL_ONLY,
    "another value": unlimited(mark={"label": "status=hot"}),
    "another label": unlimited(mark={"label": "load=high"}),
    "taint": TAINT_ONLY,
    "another taint": unlimited(
        mark={"label": None, "taint": "dynsched.io/hot=true:PreferNoSchedule"}
    ),
    "another taint value": unlimited(
        mark={"label": None, "taint": "dynsched.io/pressure=high:PreferNoSchedule"}
    ),
    "both": BOTH,
    "both others": unlimited(
        mark={"label": "load=high", "taint": "dynsched.io/hot:PreferNoSchedule"}
    ),
}
CHANGES = [
    pytest.param(old, new, id=f"{old_name} to {new_name}")
    for old_name, old in CONFIGURATIONS.items()
    if old.mark.label in (None, LABEL_ONLY.mark.label)
    for new_name, new in CONFIGURATIONS.items()
    if old is not new
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_change_of_configuration_moves_the_mark_in_one_patch(old: RuleSet, new: RuleSet) -> None:
    """A mark of the old configuration counts as a mark, so it is adopted after a restart. A release
    removes all of it, before the move and after it.
    """
    marked = mark(old, FOREIGN)
    observed = mark_state(marked, new.mark)
    assert (observed.marked, observed.conflict) == (True, None)
    patch = planned(new, marked, wanted=True)
    assert patch is not None
    assert patch.action is Action.REPAIR
    moved = apply_patch(marked, patch)
    assert moved == mark(new, FOREIGN)
    for found in (marked, moved):
        assert release(new, found) == FOREIGN


def forged(labels: dict[str, str], label: str) -> Node:
    text = json.dumps({"label": label, "taint": None, "rules": []})
    return node(labels=labels, evidence=text)


@pytest.mark.parametrize("label", ["team=blue", "status=maintenance", "load=high"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_record_does_not_make_a_label_ours(label: str, wanted: bool) -> None:
    """Anyone who could annotate a node could make us remove any label of it."""
    key, _, value = label.partition("=")
    observed = forged({key: value}, label)
    assert not mark_state(observed, BOTH.mark).marked  # otherwise it would be adopted as firing
    patch = planned(BOTH, observed, wanted=wanted)
    assert patch is not None
    left = apply_patch(observed, patch)
    assert left.labels[key] == value
    assert planned(BOTH, left, wanted=wanted) is None


def test_prune_removes_the_recorded_label_and_the_configured_one() -> None:
    observed, other = forged({"load": "high"}, "load=high"), node(labels={"load": "high"})
    assert not apply_patch(observed, *plan_prune([observed], BOTH.mark)).labels
    assert plan_prune([other], BOTH.mark) == []
    former = CONFIGURATIONS["another label"].mark
    assert not apply_patch(other, *plan_prune([other], former)).labels


def test_marks_that_dynamic_scheduler_wrote_move_too() -> None:
    adopted = mark(LABEL_ONLY, node(labels=STATUS))
    assert mark(CONFIGURATIONS["another label"], adopted).labels == {"load": "high"}


@steady(150)
@given(
    labels=st.dictionaries(
        st.sampled_from(["a", "team", "status", "load"]), st.sampled_from(["presure", "high", "x"])
    ),
    named=st.sampled_from(["a=x", "team=high", "status=x", "status=presure", "load=high"]),
    rules=st.sampled_from(list(MARKS.values())),
    wanted=st.booleans(),
)
def test_only_the_configured_label_the_default_and_in_prune_the_recorded_one_are_changed(
    labels: dict[str, str], named: str, rules: RuleSet, wanted: bool
) -> None:
    observed = forged(labels, named)
    ours = {str(rules.mark.label), "status=presure"}
    for patch, may_change in (
        (planned(rules, observed, wanted=wanted), ours),
        *((patch, ours | {named}) for patch in plan_prune([observed], rules.mark)),
    ):
        body = patch.body["metadata"] if patch else {}
        changed = body.get("labels", {}).keys() & labels.keys()
        assert {f"{key}={labels[key]}" for key in changed} <= may_change


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([91], "cpu 91 > 80, disk 91 >= 0.25"),
        ([91.23456], "cpu 91.23 > 80, disk 91.23 >= 0.25"),
        ([0.1], "no rule fires any more"),
        ([91, 75], "cpu was > 80, is 75, disk 75 >= 0.25"),  # cpu is in its dead band
    ],
)
def test_the_reason_of_a_mark_names_the_firing_rules_and_their_values(
    values: list[float], reason: str
) -> None:
    rules = unlimited(
        rule("cpu", clear_threshold=70),
        rule("free", op="<", threshold=1500, for_="1h"),
        rule("disk", op=">=", threshold=0.25),
    )
    last: Evaluation | None = None
    for number, value in enumerate(values):
        answers = {each.name: answer({"n1": value}, NOON + number) for each in rules.rules}
        last = evaluate(rules, answers, {"n1": node()}, last, NOON + number)
    assert last is not None
    assert describe(last.pressures["n1"]) == reason
