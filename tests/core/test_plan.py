"""Patches: what they hold, and what they never touch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from builders import (
    NOON,
    Body,
    answer,
    apply,
    body,
    merge,
    node,
    project,
    rule,
    soft,
    unlimited,
)
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.decide import decide
from dynsched.core.labels import LabelMark, Mark, TaintMark
from dynsched.core.mark_state import mark_state, mark_states
from dynsched.core.model import Action, Node, NodePatch, Verdict
from dynsched.core.plan import describe, plan, plan_prune
from dynsched.core.rules import RuleSet

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
    return decide(rules, results, {name: node(name)}, {}, NOON).evaluation.verdicts


def planned_all(
    nodes: Iterable[Node],
    wanted: Collection[str],
    verdicts: Mapping[str, Verdict],
    rules: RuleSet,
) -> list[NodePatch]:
    return plan(mark_states(nodes, rules.mark).values(), wanted, verdicts, rules)


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


def evidence_of(rules: RuleSet) -> str:
    return mark(rules, body())["metadata"]["annotations"]["dynsched.io/pressure"]


# The tests' own tool


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_as_in_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


# Whole bodies


def text_of(patch: NodePatch) -> str:
    return patch.body["metadata"]["annotations"]["dynsched.io/pressure"]


RAW_TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("rules", "labels", "spec"),
    [
        pytest.param(LABEL_ONLY, {"labels": STATUS}, {}, id="label"),
        pytest.param(TAINT_ONLY, {}, {"spec": {"taints": [RAW_TAINT]}}, id="taint"),
        pytest.param(BOTH, {"labels": STATUS}, {"spec": {"taints": [RAW_TAINT]}}, id="both"),
    ],
)
def test_the_body_that_marks(rules: RuleSet, labels: Body, spec: Body) -> None:
    patch = planned(rules, node(), wanted=True)
    assert patch is not None
    annotations = {"dynsched.io/pressure": text_of(patch)}
    assert patch == NodePatch(
        "n1",
        Action.MARK,
        {"metadata": {"resourceVersion": "1", **labels, "annotations": annotations}, **spec},
        "cpu 91 > 80",
    )
    assert json.loads(text_of(patch)) == {
        "label": "status=presure" if labels else None,
        "taint": TAINT if spec else None,
        "since": "2023-11-14T22:13:20Z",
        "rules": [
            {"rule": "cpu", "value": 91.0, "threshold": 80.0, "since": "2023-11-14T22:13:20Z"}
        ],
    }


@pytest.mark.parametrize(
    ("rules", "labels", "taints", "spec"),
    [
        pytest.param(LABEL_ONLY, STATUS, [], {}, id="label"),
        pytest.param(TAINT_ONLY, {}, [RAW_TAINT], {"spec": {"taints": None}}, id="taint"),
        pytest.param(BOTH, STATUS, [RAW_TAINT], {"spec": {"taints": None}}, id="both"),
        pytest.param(
            BOTH,
            STATUS,
            [OTHER_TAINTS[0], RAW_TAINT, OTHER_TAINTS[1]],
            {"spec": {"taints": list(OTHER_TAINTS)}},
            id="taint between others",
        ),
    ],
)
def test_the_body_that_releases(
    rules: RuleSet, labels: dict[str, str], taints: list[Body], spec: Body
) -> None:
    marked = node(labels=labels, taints=taints, evidence=evidence_of(rules))
    removed = {"labels": {"status": None}} if labels else {}
    assert planned(rules, marked, wanted=False) == NodePatch(
        "n1",
        Action.RELEASE,
        {
            "metadata": {
                "resourceVersion": "1",
                **removed,
                "annotations": {"dynsched.io/pressure": None},
            },
            **spec,
        },
        "no rule fires any more",
    )


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_no_difference_no_patch(rules: RuleSet) -> None:
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS)
    assert planned(rules, project(raw), wanted=False) is None
    marked = mark(rules, raw)
    assert marked != raw
    assert planned(rules, project(marked), wanted=True) is None


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_the_evidence_is_not_rewritten_while_the_mark_stays(rules: RuleSet) -> None:
    """The value changes at every tick; the node does not."""
    marked = project(mark(rules, body()))
    assert planned_all([marked], {"n1"}, hot(rules, value=99.9), rules) == []


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_a_mark_comes_and_goes_and_nothing_else_changes(rules: RuleSet) -> None:
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS, annotations={"a.b/c": "d"})
    marked = mark(rules, raw)
    taints = marked["spec"]["taints"]
    assert json.dumps(taints[:2]) == json.dumps(list(OTHER_TAINTS))
    assert taints[2:] == ([RAW_TAINT] if rules.mark.taint else [])
    assert without_version(release(rules, marked)) == without_version(raw)


def test_only_nodes_that_differ_get_a_patch() -> None:
    nodes = [
        node("hot"),
        node("cool"),
        node("hot-and-marked", labels=STATUS, evidence=evidence_of(LABEL_ONLY)),
        node("cool-and-marked", labels=STATUS, evidence=evidence_of(LABEL_ONLY)),
    ]
    wanted = {"hot", "hot-and-marked"}
    verdicts: dict[str, Verdict] = {}
    for each in nodes:
        verdicts |= hot(LABEL_ONLY, each.name, 91 if each.name in wanted else 50)
    patches = planned_all(nodes, wanted, verdicts, LABEL_ONLY)
    assert [(patch.node, patch.action) for patch in patches] == [
        ("hot", Action.MARK),
        ("cool-and-marked", Action.RELEASE),
    ]


# Conflicts


@pytest.mark.parametrize("rules", [LABEL_ONLY, BOTH], ids=["label", "both"])
@pytest.mark.parametrize("value", ["maintenance", "Presure", "pressure", ""])
def test_somebody_elses_label_is_never_touched(rules: RuleSet, value: str) -> None:
    observed = node(labels={"status": value})
    for wanted in (True, False):
        assert planned(rules, observed, wanted=wanted) is None
    assert (
        mark_state(observed, rules.mark).conflict
        == f"label status={value} was set by somebody else"
    )


def test_a_status_label_does_not_matter_where_the_mark_is_a_taint() -> None:
    patch = planned(TAINT_ONLY, node(labels={"status": "maintenance"}), wanted=True)
    assert patch is not None
    assert "labels" not in patch.body["metadata"]


@pytest.mark.parametrize("rules", [TAINT_ONLY, BOTH], ids=["taint", "both"])
@pytest.mark.parametrize("other", [{"value": "false"}, {"value": ""}, {}])
def test_a_taint_of_our_key_and_effect_with_another_value_is_a_conflict(
    rules: RuleSet, other: Body
) -> None:
    taint = {"key": "dynsched.io/pressure", "effect": "PreferNoSchedule", **other}
    observed = node(taints=[*OTHER_TAINTS, taint])
    for wanted in (True, False):
        assert planned(rules, observed, wanted=wanted) is None
    assert mark_state(observed, rules.mark).conflict == (
        f"taint dynsched.io/pressure={other.get('value', '')} was set by somebody else"
    )


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "FutureEffect"])
def test_a_taint_of_our_key_with_another_effect_is_foreign_and_survives(effect: str) -> None:
    foreign = {**RAW_TAINT, "effect": effect}
    raw = body(taints=[foreign])
    marked = mark(TAINT_ONLY, raw)
    assert marked["spec"]["taints"] == [foreign, RAW_TAINT]
    assert mark_state(project(marked), TAINT_ONLY.mark).conflict is None
    assert without_version(release(TAINT_ONLY, marked)) == without_version(raw)


def test_a_label_changed_by_hand_on_a_marked_node_is_theirs_and_the_rest_of_the_mark_goes() -> None:
    raw = mark(BOTH, body(taints=OTHER_TAINTS))
    raw["metadata"]["labels"]["status"] = "maintenance"
    patch = planned(BOTH, project(raw), wanted=True)
    assert patch is not None
    assert patch.action is Action.RELEASE
    assert patch.reason == "label status=maintenance was set by somebody else"
    left = apply(raw, patch)
    assert left["metadata"]["labels"] == {"status": "maintenance"}
    assert "annotations" not in left["metadata"]
    assert left["spec"]["taints"] == list(OTHER_TAINTS)
    assert planned(BOTH, project(left), wanted=True) is None


def test_a_conflict_that_ends_is_over() -> None:
    marked = mark(LABEL_ONLY, body())
    assert mark_state(project(marked), LABEL_ONLY.mark).conflict is None


# Repair


def test_the_first_projects_label_is_ours() -> None:
    raw = body(labels={**OTHER_LABELS, **STATUS})
    patch = planned(LABEL_ONLY, project(raw), wanted=True)
    assert patch is not None
    assert patch.action is Action.REPAIR
    assert patch.body["metadata"].keys() == {"resourceVersion", "annotations"}
    assert without_version(release(LABEL_ONLY, raw)) == without_version(body(labels=OTHER_LABELS))


@pytest.mark.parametrize(
    ("broken", "action"),
    [
        pytest.param({"labels": {}}, Action.REPAIR, id="label gone"),
        pytest.param({"taints": []}, Action.REPAIR, id="taint gone"),
        pytest.param({"evidence": None}, Action.REPAIR, id="evidence gone"),
        pytest.param({"evidence": "{"}, Action.REPAIR, id="evidence broken"),
        pytest.param({"labels": {}, "taints": []}, Action.MARK, id="only evidence left"),
        pytest.param({"labels": {}, "evidence": None}, Action.REPAIR, id="only taint left"),
    ],
)
def test_a_mark_of_which_a_part_is_missing_is_made_whole(broken: Body, action: Action) -> None:
    whole: Body = {"labels": STATUS, "taints": [RAW_TAINT], "evidence": evidence_of(BOTH)}
    parts = {**whole, **broken}
    evidence = parts["evidence"]
    raw = body(
        labels=parts["labels"],
        taints=parts["taints"],
        annotations=None if evidence is None else {"dynsched.io/pressure": evidence},
    )
    patch = planned(BOTH, project(raw), wanted=True)
    assert patch is not None
    assert patch.action is action
    healed = apply(raw, patch)
    assert healed["metadata"]["labels"] == STATUS
    assert healed["spec"]["taints"] == [RAW_TAINT]
    assert planned(BOTH, project(healed), wanted=True) is None
    assert without_version(release(BOTH, raw)) == without_version(body())


# A change of configuration

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
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS)
    marked = mark(old, raw)
    assert mark_state(project(marked), new.mark).conflict is None
    patch = planned(new, project(marked), wanted=True)
    assert patch is not None
    assert patch.action is Action.REPAIR
    assert without_version(apply(marked, patch)) == without_version(mark(new, raw))


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_release_after_a_change_of_configuration_leaves_nothing(
    old: RuleSet, new: RuleSet
) -> None:
    raw = body(labels=OTHER_LABELS, taints=OTHER_TAINTS)
    assert without_version(release(new, mark(old, raw))) == without_version(raw)
    assert without_version(release(new, mark(new, mark(old, raw)))) == without_version(raw)


def test_a_mark_that_moved_twice_leaves_nothing() -> None:
    raw = body()
    for rules in (*CONFIGURATIONS.values(), *reversed(CONFIGURATIONS.values())):
        raw = mark(rules, raw)
    assert without_version(release(LABEL_ONLY, raw)) == without_version(body())


def test_an_older_mark_that_somebody_changed_is_theirs() -> None:
    raw = mark(CONFIGURATIONS["both others"], body())
    raw["metadata"]["labels"]["load"] = "low"
    raw["spec"]["taints"][0]["value"] = "other"
    moved = mark(LABEL_ONLY, raw)
    assert moved["metadata"]["labels"] == {"load": "low", **STATUS}
    assert moved["spec"]["taints"] == [soft("dynsched.io/hot", "other")]


def test_a_conflict_in_the_place_of_an_older_mark_and_of_the_new_one() -> None:
    raw = mark(BOTH, body())
    raw["metadata"]["labels"]["status"] = "maintenance"
    raw["spec"]["taints"][0]["value"] = "other"
    new = unlimited(mark={"label": "status=hot", "taint": f"{soft()['key']}=hot:PreferNoSchedule"})
    observed = mark_state(project(raw), new.mark)
    assert observed.conflict is not None
    assert not observed.marked
    for rules in (new, CONFIGURATIONS["another value"], CONFIGURATIONS["another taint value"]):
        left = mark(rules, raw)
        assert left["metadata"].get("labels") == {"status": "maintenance"}
        assert left["spec"]["taints"] == [soft(value="other")]
        assert "annotations" not in left["metadata"]


def test_an_older_mark_counts_as_marked() -> None:
    """So that it is adopted after a restart, and released by the same limits as any other."""
    for old_name, old in CONFIGURATIONS.items():
        marked = project(mark(old, body()))
        for new in CONFIGURATIONS.values():
            assert mark_state(marked, new.mark).marked, old_name


# Evidence that is forged


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


def test_a_label_of_an_older_configuration_that_another_has_written_since_is_theirs() -> None:
    raw = mark(CONFIGURATIONS["another label"], body())
    assert raw.pop("owned") == ["load"]
    moved = mark(LABEL_ONLY, raw)
    assert moved["metadata"]["labels"] == {"load": "high", **STATUS}
    assert release(LABEL_ONLY, moved)["metadata"]["labels"] == {"load": "high"}


def test_marks_of_the_first_project_move_too_though_another_wrote_them() -> None:
    adopted = mark(LABEL_ONLY, body(labels=STATUS))
    assert "owned" not in adopted
    moved = mark(CONFIGURATIONS["another label"], adopted)
    assert moved["metadata"]["labels"] == {"load": "high"}


def forged(label: str) -> dict[str, str]:
    return {"dynsched.io/pressure": json.dumps({"label": label, "taint": None, "rules": []})}


@steady(300)
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


# Prune


@pytest.mark.parametrize("rules", MARKS.values(), ids=MARKS)
def test_prune_takes_all_that_is_ours_and_nothing_else(rules: RuleSet) -> None:
    raws = [
        body("a", labels=OTHER_LABELS, taints=OTHER_TAINTS),
        body("b"),
        body("c", labels={"status": "maintenance"}, taints=[{**RAW_TAINT, "effect": "NoExecute"}]),
    ]
    marked = [mark(rules, raw) for raw in raws]
    patches = {patch.node: patch for patch in plan_prune(map(project, marked), rules.mark)}
    assert all(patch.action is Action.RELEASE for patch in patches.values())
    assert all(
        patch.reason == "everything that dynsched put there is removed"
        for patch in patches.values()
    )
    for raw, found in zip(raws, marked, strict=True):
        name = raw["metadata"]["name"]
        left = apply(found, patches[name]) if name in patches else found
        assert without_version(left) == without_version(raw)
        assert plan_prune([project(left)], rules.mark) == []


# Words


def test_the_reasons_of_a_mark() -> None:
    rules = unlimited(
        rule("cpu"),
        rule("free", op="<", threshold=1500, for_="1h"),
        rule("disk", op=">=", threshold=0.25),
    )
    assert describe(hot(rules)["n1"], rules) == "cpu 91 > 80, disk 91 >= 0.25"
    assert describe(hot(rules, value=91.23456)["n1"], rules) == "cpu 91.23 > 80, disk 91.23 >= 0.25"
    assert describe(hot(rules, value=0.1)["n1"], rules) == "no rule fires"


def test_the_reason_of_what_is_only_held_does_not_say_that_it_is_over() -> None:
    """It said `cpu 75 > 80`."""
    rules = unlimited(rule("cpu", clear_threshold=70))
    nodes = {"n1": node("n1")}
    first = decide(rules, {"cpu": answer({"n1": 91})}, nodes, {}, NOON)
    held = answer({"n1": 75}, at=NOON + 10)
    second = decide(rules, {"cpu": held}, nodes, first.evaluation.alerts, NOON + 10)
    assert describe(second.evaluation.verdicts["n1"], rules) == "cpu was > 80, is 75"


def test_the_reason_of_a_mark_whose_value_is_not_known() -> None:
    marked = node(labels=STATUS)
    (patch,) = decide(LABEL_ONLY, {}, {"n1": marked}, {}, NOON).patches
    assert patch.action is Action.REPAIR
    assert patch.reason == "cpu ? > 80"


@pytest.mark.parametrize(
    ("rules", "labels", "value", "reason"),
    [
        (LABEL_ONLY, {}, 50, "no rule fires any more"),
        (LABEL_ONLY, {}, 91, "another node is hotter and the number of marks is limited"),
        (
            LABEL_ONLY,
            {"dynsched.io/ignore": "true"},
            91,
            "the node is not eligible: it has the label dynsched.io/ignore=true",
        ),
        (
            LABEL_ONLY,
            {"node-role.kubernetes.io/master": ""},
            50,
            (
                "the node is not eligible: "
                "it is a control-plane node (label node-role.kubernetes.io/master)"
            ),
        ),
        (
            unlimited(nodes={"selector": "a=b"}),
            {},
            91,
            "the node is not eligible: nodes.selector wants a=b",
        ),
    ],
)
def test_the_reasons_of_a_release(
    rules: RuleSet, labels: dict[str, str], value: float, reason: str
) -> None:
    marked = node(labels={**labels, **STATUS})
    (patch,) = planned_all([marked], (), hot(rules, value=value), rules)
    assert patch.reason == reason


def test_a_node_that_no_rule_was_evaluated_on_is_released_and_that_is_the_reason() -> None:
    (patch,) = planned_all([node(labels=STATUS)], (), {}, LABEL_ONLY)
    assert patch.reason == "nothing is known of the node"


def test_what_is_observed() -> None:
    observed = mark_state(node(labels=STATUS), Mark(LabelMark("status", "presure"), None))
    assert (observed.has_label, observed.has_taint, observed.marked) == (True, False, True)
    observed = mark_state(
        node(taints=[RAW_TAINT]), Mark(None, TaintMark("dynsched.io/pressure", "true"))
    )
    assert (observed.has_label, observed.has_taint, observed.marked) == (False, True, True)
    observed = mark_state(node(labels=OTHER_LABELS, taints=OTHER_TAINTS), BOTH.mark)
    assert (observed.marked, observed.evidence, observed.conflict) == (False, None, None)


# Properties

WORDS = st.sampled_from(["a", "team", "example.com/x", "status-page", "statu", "dynsched.io/other"])
VALUES = st.sampled_from(["", "presure", "true", "blue"])
FOREIGN_TAINTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gpu", "node.kubernetes.io/not-ready", "dynsched.io/pressure"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
    },
    optional={"value": VALUES, "timeAdded": st.just("2026-11-20T12:00:00Z"), "x": st.integers()},
)
SOFT_FOREIGN_TAINTS = st.fixed_dictionaries(
    {"key": st.sampled_from(["gpu", "other.io/pressure"]), "effect": st.just("PreferNoSchedule")},
    optional={"value": VALUES},
)
RAW_NODES = st.builds(
    body,
    labels=st.dictionaries(WORDS, VALUES, max_size=4)
    | st.just({"status": "maintenance"})
    | st.just({"load": "low", "team": "blue"}),
    annotations=st.dictionaries(WORDS | st.just("kubectl.kubernetes.io/x"), st.text(max_size=3)),
    taints=st.lists(FOREIGN_TAINTS | SOFT_FOREIGN_TAINTS, max_size=4),
)
STEPS = st.tuples(st.sampled_from(list(CONFIGURATIONS.values())), st.booleans())


def foreign(raw: Body) -> str:
    """All of a node but what any of the configurations may put there, as text."""
    metadata = raw["metadata"]
    ours = {"status=presure", "status=hot", "load=high"}
    labels = metadata.get("labels", {}).items()
    taints = raw["spec"].get("taints") or []
    soft_keys = {"dynsched.io/pressure", "dynsched.io/hot"}
    return json.dumps(
        {
            "labels": [(key, value) for key, value in labels if f"{key}={value}" not in ours],
            "annotations": [
                pair
                for pair in metadata.get("annotations", {}).items()
                if pair[0] != "dynsched.io/pressure"
            ],
            "taints": [
                taint
                for taint in taints
                if not (taint["key"] in soft_keys and taint["effect"] == "PreferNoSchedule")
            ],
        }
    )


def patches_of(rules: RuleSet, raw: Body, *, wanted: bool) -> Iterable[NodePatch]:
    patch = planned(rules, project(raw), wanted=wanted)
    return [patch] if patch else []


@steady(300)
@given(raw=RAW_NODES, steps=st.lists(STEPS, max_size=6), last=st.sampled_from(list(MARKS)))
def test_no_history_touches_what_is_not_ours_and_prune_undoes_it(
    raw: Body, steps: list[tuple[RuleSet, bool]], last: str
) -> None:
    before = json.dumps(raw)
    now = raw
    for rules, wanted in steps:
        for patch in patches_of(rules, now, wanted=wanted):
            assert patch.body.keys() <= {"metadata", "spec"}
            assert patch.body["metadata"].keys() <= {"resourceVersion", "labels", "annotations"}
            assert patch.body["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"]
            assert patch.body["metadata"].get("annotations", {}).keys() <= {"dynsched.io/pressure"}
            assert patch.body["metadata"].get("labels", {}).keys() <= {"status", "load"}
            assert patch.body.get("spec", {}).keys() <= {"taints"}
            now = apply(now, patch)
        assert foreign(now) == foreign(raw)
        assert patches_of(rules, now, wanted=wanted) == []  # planning again gives nothing
    for patch in plan_prune([project(now)], MARKS[last].mark):
        now = apply(now, patch)
    assert without_version(now) == without_version(raw)
    assert json.dumps(raw) == before  # no input was changed on the way
