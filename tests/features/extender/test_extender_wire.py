"""Requests that a scheduler may send: valid ones are answered, all others are WireErrors."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from extender_support import World, raw
from hypothesis import example, given
from hypothesis import strategies as st

from dynsched.features.extender import wire

Drawn = st.SearchStrategy[Any]
Vary = Callable[[Drawn], Drawn]

WORLD = World().tick()
TEXT = st.sampled_from("abcd") | st.text(max_size=12)
HALVES = st.integers(-99, 99).map(lambda number: number + 0.5)
JSON: Drawn = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | HALVES | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def unchanged(good: Drawn) -> Drawn:
    return good


def mostly(good: Drawn) -> Drawn:
    return good | good | good | good | JSON


def some(vary: Vary, **values: Drawn) -> Drawn:
    return st.fixed_dictionaries({}, optional={key: vary(each) for key, each in values.items()})


def a_pod(vary: Vary) -> Drawn:
    spec = some(vary, schedulerName=st.none() | TEXT)
    return some(vary, metadata=some(vary, uid=TEXT), spec=st.none() | spec)


def candidates(vary: Vary) -> Drawn:
    metadata = {"name": vary(TEXT)}, {"labels": JSON, "uid": JSON}
    node = {"metadata": vary(st.fixed_dictionaries(metadata[0], optional=metadata[1]))}
    nodes = st.lists(vary(st.fixed_dictionaries(node, optional={"status": JSON})), max_size=4)
    return some(
        vary,
        Pod=a_pod(vary),
        Nodes=some(vary, items=st.none() | nodes, kind=JSON),
        NodeNames=st.none() | st.lists(vary(TEXT), max_size=6),
    )


def preemption(vary: Vary) -> Drawn:
    def victims(pod: Drawn) -> Drawn:
        pods, count = st.lists(vary(pod), max_size=3), st.integers(0, 2**63 - 1)
        of_node = some(vary, Pods=st.none() | pods, NumPDBViolations=count)
        return st.dictionaries(TEXT, st.none() | of_node, max_size=3)

    meta, whole = victims(some(vary, UID=TEXT)), victims(a_pod(vary))
    return some(vary, NodeNameToMetaVictims=meta, NodeNameToVictims=whole)


@given(candidates(unchanged))
@example({"Nodes": {"items": [{"metadata": {"name": name}, "x": [1.5]} for name in "adbd"]}})
@example({"Nodes": {"items": [{"metadata": {"name": "d"}}]}, "NodeNames": ["d", "a", "a"]})
def test_filter_and_prioritize_answer_candidates_in_every_form(body: Any) -> None:
    names, nodes = body.get("NodeNames"), body.get("Nodes")
    if names is None and nodes is None:
        with pytest.raises(wire.WireError):
            WORLD.filter(body)
        return
    items = (nodes or {}).get("items") or []
    hosts = names if names is not None else [item["metadata"]["name"] for item in items]
    passed = None  # if there are names, the nodes are ignored
    if names is None:
        passed = [item for item in items if item["metadata"]["name"] != "d"]
    filtered = WORLD.filter(body)
    assert filtered["NodeNames"] == (names and [name for name in names if name != "d"])
    assert json.dumps(filtered["Nodes"] and filtered["Nodes"]["items"]) == json.dumps(passed)
    found = json.loads(WORLD.extender.prioritize(raw(body)))
    assert [each["Host"] for each in found] == hosts
    assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in found)


@given(preemption(unchanged))
def test_preempt_answers_victims_in_every_form(body: Any) -> None:
    meta, whole = body.get("NodeNameToMetaVictims"), body.get("NodeNameToVictims")
    of_nodes = whole if meta is None else meta
    if of_nodes is None:
        with pytest.raises(wire.WireError):
            WORLD.preempt(body)
        return
    found = WORLD.preempt(body)
    assert list(found) == [node for node in of_nodes if node != "d"]
    for node, kept in found.items():
        of_node = of_nodes[node] or {}
        pods = of_node.get("Pods") or []
        if meta is None:
            uids = [pod.get("metadata", {}).get("uid", "") for pod in pods]
        else:
            uids = [pod.get("UID", "") for pod in pods]
        violations = of_node.get("NumPDBViolations", 0)
        assert kept == {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


@given(mostly(candidates(mostly)) | mostly(preemption(mostly)) | st.binary(max_size=60))
def test_no_request_causes_any_other_error(body: Any) -> None:
    sent = raw(body)
    for ask in (WORLD.filter, WORLD.scores, WORLD.preempt, wire.read_binding):
        with contextlib.suppress(wire.WireError):
            ask(sent)


def test_keys_in_lower_case_are_read_too() -> None:
    """Go's decoder accepts them too, and schedulers before Kubernetes 1.17 sent them."""
    names = ["a", "d"]
    for key in ("nodenames", "nodeNames"):
        assert WORLD.filter({"pod": {}, key: names})["NodeNames"] == ["a"]
    nodes = {"items": [{"metadata": {"name": name}} for name in names]}
    found = WORLD.filter({"pod": {}, "nodes": nodes})["Nodes"]["items"]
    assert found == [{"metadata": {"name": "a"}}]
    victims = {"pods": [{"uid": "u"}], "numPDBViolations": 1}
    body = {"nodeNameToMetaVictims": {"a": victims, "d": victims}}
    assert WORLD.preempt(body) == {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
