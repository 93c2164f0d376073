"""Whatever a scheduler may send: what has the form of a question is answered, and all else is a
WireError. The forms are written down here once more, in the plainest way.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from extender_support import World, raw
from hypothesis import example, given
from hypothesis import strategies as st

from dynsched.features.extender import wire

Form = Callable[[Any], bool]


def text(value: Any) -> bool:
    return isinstance(value, str)


def count(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def opt(form: Form) -> Form:
    return lambda value: value is None or form(value)


def many(form: Form) -> Form:
    return lambda value: isinstance(value, list) and all(map(form, value))


def of_each(form: Form) -> Form:
    return lambda value: isinstance(value, dict) and all(map(form, value.values()))


def struct(*required: str, **forms: Form) -> Form:
    return lambda value: (
        isinstance(value, dict)
        and all(key in value for key in required)
        and all(form(value[key]) for key, form in forms.items() if key in value)
    )


WITH_UID = struct(metadata=opt(struct(uid=text)))
POD = struct(metadata=opt(struct(uid=text)), spec=opt(struct(schedulerName=opt(text))))
ITEM = struct("metadata", metadata=struct("name", name=text))
NODES = struct(items=opt(many(ITEM)))


def victims(pod: Form) -> Form:
    return of_each(opt(struct(Pods=opt(many(pod)), NumPDBViolations=count)))


META_VICTIMS, VICTIMS = victims(struct(UID=text)), victims(WITH_UID)


WORLD = World().tick()


def answered(ask: Callable[[bytes], Any], body: Any) -> Any:
    try:
        return ask(raw(body))
    except wire.WireError:
        return None


def check_candidates(body: Any) -> None:
    filtered, scored = (answered(ask, body) for ask in (WORLD.filter, WORLD.extender.prioritize))
    names = nodes = None
    is_question = isinstance(body, dict) and opt(POD)(body.get("Pod"))
    if is_question:
        names, nodes = body.get("NodeNames"), body.get("Nodes")
        is_question = (names, nodes) != (None, None) and opt(many(text))(names)
    is_answered = is_question and (names is not None or NODES(nodes))
    assert [filtered is not None, scored is not None] == [is_answered] * 2
    items = (nodes.get("items") or []) if isinstance(nodes, dict) else []
    if filtered is not None:
        assert filtered["NodeNames"] == (names and [name for name in names if name != "d"])
        kept = filtered["Nodes"] and filtered["Nodes"]["items"]
        passed = None
        if names is None:  # else nobody looks at the nodes
            passed = [item for item in items if item["metadata"]["name"] != "d"]
        assert json.dumps(kept) == json.dumps(passed)
    if scored is not None:
        found = json.loads(scored)
        hosts = names if names is not None else [item["metadata"]["name"] for item in items]
        assert [each["Host"] for each in found] == hosts
        assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in found)


def check_victims(body: Any) -> None:
    found = answered(WORLD.preempt, body)
    meta, whole = (
        body.get(key) if isinstance(body, dict) else None
        for key in ("NodeNameToMetaVictims", "NodeNameToVictims")
    )
    asked, form = (whole, VICTIMS) if meta is None else (meta, META_VICTIMS)
    assert (found is not None) == (asked is not None and form(asked))
    if found is None:
        return
    assert list(found) == [node for node in asked if node != "d"]
    for node, kept in found.items():
        of_node = asked[node] or {}
        pods = of_node.get("Pods") or []
        if meta is None:
            uids = [(pod.get("metadata") or {}).get("uid", "") for pod in pods]
        else:
            uids = [pod.get("UID", "") for pod in pods]
        violations = of_node.get("NumPDBViolations", 0)
        assert kept == {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


TEXT = st.sampled_from("abcd") | st.text(max_size=12)
HALVES = st.integers(-99, 99).map(lambda number: number + 0.5)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | HALVES | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return good | good | good | good | JSON


def some(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={key: mostly(each) for key, each in values.items()})


METADATA = st.fixed_dictionaries({"name": TEXT}, optional={"labels": JSON, "uid": JSON})
A_NODE = st.fixed_dictionaries({"metadata": METADATA}, optional={"status": JSON})
A_LIST = st.none() | st.lists(A_NODE, max_size=4) | st.lists(mostly(A_NODE), max_size=3)
A_POD = some(metadata=some(uid=TEXT), spec=some(schedulerName=TEXT))
SOME_NODES = some(items=A_LIST, kind=JSON)
SOME_NAMES = st.none() | st.lists(TEXT, max_size=6)
CANDIDATES = some(Pod=A_POD, Nodes=SOME_NODES, NodeNames=SOME_NAMES)


def some_victims(pod: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pods, count = st.none() | st.lists(pod, max_size=3), st.integers(0, 2**63)
    return st.dictionaries(TEXT, st.none() | some(Pods=pods, NumPDBViolations=count), max_size=3)


PREEMPTION = some(
    NodeNameToMetaVictims=some_victims(some(UID=TEXT)), NodeNameToVictims=some_victims(A_POD)
)


@given(mostly(CANDIDATES))
@example({"Nodes": {"items": [{"metadata": {"name": name}, "x": [1.5]} for name in "adbd"]}})
@example({"Nodes": {"items": [{"metadata": {"name": "d"}}]}, "NodeNames": ["d", "a", "a"]})
def test_candidates_in_every_form_are_answered_and_nothing_else_is(body: Any) -> None:
    check_candidates(body)


@given(mostly(PREEMPTION))
def test_victims_in_every_form_are_answered_and_nothing_else_is(body: Any) -> None:
    check_victims(body)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_question_are_a_wire_error(body: bytes) -> None:
    for ask in (WORLD.filter, WORLD.scores, WORLD.preempt, wire.read_binding):
        with pytest.raises(wire.WireError):
            ask(body)


def test_keys_in_lower_case_are_read_too() -> None:
    """As Go's decoder reads them, and as schedulers before Kubernetes 1.17 sent them."""
    names = ["a", "d"]
    for key in ("nodenames", "nodeNames"):
        assert answered(WORLD.filter, {"pod": {}, key: names})["NodeNames"] == ["a"]
    nodes = {"items": [{"metadata": {"name": name}} for name in names]}
    assert answered(WORLD.filter, {"pod": {}, "nodes": nodes})["Nodes"]["items"] == [
        {"metadata": {"name": "a"}}
    ]
    victims = {"pods": [{"uid": "u"}], "numPDBViolations": 1}
    asked = {"nodeNameToMetaVictims": {"a": victims, "d": victims}}
    assert answered(WORLD.preempt, asked) == {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
