"""Patches: what they hold, and what they never touch."""

import json
from collections.abc import Collection, Iterable, Mapping

import pytest
from builders import NOON, Body, answer, apply, body, node, project, rule, unlimited
from evaluating import verdicts_of
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.guard import Selection
from dynsched.engine.alerting.plan import describe, plan_node, plan_prune
from dynsched.engine.decide import decide
from dynsched.engine.model import Action, Node, NodePatch, Verdict
from dynsched.engine.nodes.mark_state import mark_state
from dynsched.rules.rule_set import RuleSet

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


def hot(rules: RuleSet, name: str = "n1", value: float = 91) -> Mapping[str, Verdict]:
    results = {each.name: answer({name: value}) for each in rules.rules}
    return verdicts_of(decide(rules, results, {name: node(name)}, no_alerts(), NOON).verdicts)


def planned_all(
    nodes: Iterable[Node], wanted: Collection[str], verdicts: Mapping[str, Verdict], rules: RuleSet
) -> list[NodePatch]:
    states = [mark_state(each, rules.mark, rules.nodes) for each in nodes]
    selection = Selection(frozenset(wanted), {}, frozenset())
    each = [plan_node(state, verdicts[state.node.name], rules, selection) for state in states]
    return [patch for patch in each if patch is not None]


def planned(rules: RuleSet, observed: Node, *, wanted: bool) -> NodePatch | None:
    """The patch for one node that is hot and wanted, or cool and not."""
    verdicts = hot(rules, observed.name, 91 if wanted else 50)
    patches = planned_all([observed], {observed.name} if wanted else (), verdicts, rules)
    assert len(patches) <= 1
    return patches[0] if patches else None


def mark(rules: RuleSet, raw: Body) -> Body:
    patch = planned(rules, project(raw), wanted=True)
    return apply(raw, patch) if patch else raw


def release(rules: RuleSet, raw: Body) -> Body:
    patch = planned(rules, project(raw), wanted=False)
    return apply(raw, patch) if patch else raw


def without_version(raw: Body) -> str:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "resourceVersion"}
    return json.dumps({**raw, "metadata": metadata}, sort_keys=True)


RAW_TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}


def status_and_taint(rules: RuleSet, label: object, taints: object) -> tuple[Body, Body]:
    """The parts of a patch's body, as far as this mark has them."""
    return (
        {"labels": {"status": label}} if rules.mark.label else {},
        {"spec": {"taints": taints}} if rules.mark.taint else {},
    )


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_the_bodies_that_mark_and_release(rules: RuleSet) -> None:
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS, annotations={"a.b/c": "d"})
    assert planned(rules, project(raw), wanted=False) is None
    patch = planned(rules, project(raw), wanted=True)
    assert patch is not None
    evidence = patch.body["metadata"]["annotations"]["dynsched.io/pressure"]
    labels, spec = status_and_taint(rules, "presure", [*OTHER_TAINTS, RAW_TAINT])
    annotations = {"dynsched.io/pressure": evidence}
    metadata = {"resourceVersion": "1", **labels, "annotations": annotations}
    assert patch == NodePatch("n1", Action.MARK, {"metadata": metadata, **spec}, "cpu 91 > 80")
    assert json.loads(evidence) == {
        "label": "status=presure" if labels else None,
        "taint": TAINT if spec else None,
        "since": "2023-11-14T22:13:20Z",
        "rules": [
            {"rule": "cpu", "value": 91.0, "threshold": 80.0, "since": "2023-11-14T22:13:20Z"}
        ],
    }

    marked = apply(raw, patch)
    observed = mark_state(project(marked), rules.mark)
    assert (observed.has_label, observed.has_taint) == (bool(labels), bool(spec))
    assert (observed.marked, observed.conflict) == (True, None)
    # The value changes at every tick; the node does not.
    assert planned_all([project(marked)], {"n1"}, hot(rules, value=99.9), rules) == []

    labels, spec = status_and_taint(rules, None, list(OTHER_TAINTS))
    annotations = {"dynsched.io/pressure": None}
    metadata = {"resourceVersion": "2", **labels, "annotations": annotations}
    released = planned(rules, project(marked), wanted=False)
    assert released == NodePatch(
        "n1", Action.RELEASE, {"metadata": metadata, **spec}, "no rule fires any more"
    )
    assert without_version(apply(marked, released)) == without_version(raw)
    (pruned,) = plan_prune([project(marked)], rules.mark)
    assert (pruned.action, pruned.body) == (Action.RELEASE, released.body)
    assert pruned.reason == "everything that dynsched put there is removed"


def test_the_last_taint_is_removed_as_a_whole() -> None:
    patch = planned(TAINT_ONLY, node(taints=[RAW_TAINT]), wanted=False)
    assert patch is not None
    assert patch.body["spec"] == {"taints": None}


@pytest.mark.parametrize("rules", [LABEL_ONLY, BOTH], ids=["label", "both"])
@pytest.mark.parametrize("value", ["maintenance", "Presure", "pressure", ""])
def test_somebody_elses_label_is_never_touched(rules: RuleSet, value: str) -> None:
    observed = node(labels={"status": value})
    for wanted in (True, False):
        assert planned(rules, observed, wanted=wanted) is None
    theirs = f"label status={value} was set by somebody else"
    assert mark_state(observed, rules.mark).conflict == theirs


@pytest.mark.parametrize("rules", [TAINT_ONLY, BOTH], ids=["taint", "both"])
@pytest.mark.parametrize("other", [{"value": "false"}, {"value": ""}, {}])
def test_a_taint_of_our_key_and_effect_with_another_value_is_a_conflict(rules, other) -> None:
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
    for new_name, new in CONFIGURATIONS.items()
    if old is not new
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_change_of_configuration_moves_the_mark_in_one_patch(old: RuleSet, new: RuleSet) -> None:
    """An older mark counts as one, so that it is adopted after a restart; released, it leaves
    nothing, before the change and after it.
    """
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS)
    marked = mark(old, raw)
    observed = mark_state(project(marked), new.mark)
    assert (observed.marked, observed.conflict) == (True, None)
    patch = planned(new, project(marked), wanted=True)
    assert patch is not None
    assert patch.action is Action.REPAIR
    moved = apply(marked, patch)
    assert without_version(moved) == without_version(mark(new, raw))
    for found in (marked, moved):
        assert without_version(release(new, found)) == without_version(raw)


@pytest.mark.parametrize("label", ["team=blue", "status=maintenance", "load=high"])
@pytest.mark.parametrize("wanted", [True, False])
def test_evidence_alone_does_not_make_a_label_ours(label: str, wanted: bool) -> None:
    """Whoever may annotate a node had us remove any label that he named."""
    key, _, value = label.partition("=")
    raw = body(labels={key: value}, annotations=forged(label))
    assert not mark_state(project(raw), BOTH.mark).marked  # else it would be adopted as firing
    patch = planned(BOTH, project(raw), wanted=wanted)
    assert patch is not None
    assert patch.reason.endswith(f"; label {label} stays: nothing shows that dynsched put it there")
    left = apply(raw, patch)
    assert left["metadata"]["labels"][key] == value
    assert plan_prune([project(raw)], BOTH.mark)[0].body["metadata"].keys() == {
        "resourceVersion",
        "annotations",
    }
    for now_wanted in (True, False):
        assert planned(BOTH, project(left), wanted=now_wanted) is None or now_wanted is not wanted


def test_marks_of_the_first_project_move_too_though_another_wrote_them() -> None:
    adopted = mark(LABEL_ONLY, body(labels=STATUS))
    assert "owned" not in adopted
    moved = mark(CONFIGURATIONS["another label"], adopted)
    assert moved["metadata"]["labels"] == {"load": "high"}


def forged(label: str) -> dict[str, str]:
    return {"dynsched.io/pressure": json.dumps({"label": label, "taint": None, "rules": []})}


@steady(150)
@given(
    labels=st.dictionaries(
        st.sampled_from(["a", "team", "status", "load"]), st.sampled_from(["presure", "high", "x"])
    ),
    named=st.sampled_from(["a=x", "team=high", "status=x", "status=presure", "load=high"]),
    owned=st.sets(st.sampled_from(["a", "team", "status", "load"])),
    rules=st.sampled_from(list(MARKS.values())),
    wanted=st.booleans(),
)
def test_no_label_is_changed_but_our_mark_and_what_we_are_recorded_to_have_put(
    labels: dict[str, str], named: str, owned: set[str], rules: RuleSet, wanted: bool
) -> None:
    raw = {**body(labels=labels, annotations=forged(named)), "owned": sorted(owned)}
    found = [planned(rules, project(raw), wanted=wanted), *plan_prune([project(raw)], rules.mark)]
    ours = {str(rules.mark.label), "status=presure"}
    ours |= {text for text in [named] if text.partition("=")[0] in owned}
    for patch in filter(None, found):
        changed = patch.body["metadata"].get("labels", {}).keys() & labels.keys()
        assert {f"{key}={labels[key]}" for key in changed} <= ours


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([91], "cpu 91 > 80, disk 91 >= 0.25"),
        ([91.23456], "cpu 91.23 > 80, disk 91.23 >= 0.25"),
        ([0.1], "no rule fires any more"),
        ([91, 75], "cpu was > 80, is 75, disk 75 >= 0.25"),  # only held: it is not over
    ],
)
def test_the_reasons_of_a_mark(values: list[float], reason: str) -> None:
    rules = unlimited(
        rule("cpu", clear_threshold=70),
        rule("free", op="<", threshold=1500, for_="1h"),
        rule("disk", op=">=", threshold=0.25),
    )
    nodes, alerts, verdicts = {"n1": node()}, no_alerts(), {}
    for number, value in enumerate(values):
        results = {each.name: answer({"n1": value}, NOON + number) for each in rules.rules}
        found = decide(rules, results, nodes, alerts, NOON + number).verdicts
        alerts, verdicts = found.alerts, verdicts_of(found)
    assert describe(verdicts["n1"], rules) == reason
