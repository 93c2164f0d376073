"""Whatever a scheduler may send: an answer in its form, or a WireError; never anything else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from extender_support import World, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from dynsched.web.extender import wire

TEXT = st.text(max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["Pod", "pod", "Nodes", "nodes", "NodeNames", "nodeNames", "nodenames"])
POD = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"uid": TEXT})})
NODE = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": TEXT}, optional={"labels": JSON, "x": JSON})},
    optional={"status": JSON},
)
WORLD = World().tick()


@given(st.dictionaries(KEYS | TEXT, JSON, max_size=5) | JSON)
@settings(max_examples=300)
def test_any_json(body: Any) -> None:
    for ask in (WORLD.filter, WORLD.scores, WORLD.preempt):
        with contextlib.suppress(wire.WireError):
            ask(body)
    with contextlib.suppress(wire.WireError):
        wire.read_binding(raw(body))


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_any_bytes(body: bytes) -> None:
    for ask in (WORLD.filter, WORLD.scores, WORLD.preempt):
        with contextlib.suppress(wire.WireError):
            ask(body)


@given(st.lists(TEXT, max_size=8))
def test_every_name_comes_back_once(names: list[str]) -> None:
    found = WORLD.filter({"NodeNames": names})
    refused = found["FailedAndUnresolvableNodes"]
    assert found["NodeNames"] == [name for name in names if name not in refused]
    scored = json.loads(WORLD.extender.prioritize(raw({"NodeNames": names})))
    assert [entry["Host"] for entry in scored] == names
    assert all(type(entry["Score"]) is int and 0 <= entry["Score"] <= 10 for entry in scored)


@given(st.lists(NODE, max_size=4))
def test_whole_nodes_come_back_as_they_were(nodes: list[Any]) -> None:
    with contextlib.suppress(wire.WireError):  # labels that are no labels
        found = WORLD.filter({"Nodes": {"items": nodes}})
        refused = found["FailedAndUnresolvableNodes"]
        passed = [node for node in nodes if node["metadata"]["name"] not in refused]
        assert json.dumps(found["Nodes"]["items"]) == json.dumps(passed)


@given(
    st.dictionaries(
        TEXT,
        st.fixed_dictionaries(
            {
                "Pods": st.none()
                | st.lists(
                    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"uid": TEXT})})
                ),
                "NumPDBViolations": st.integers(0, 2**40),
            }
        ),
        max_size=4,
    )
)
def test_victims_keep_their_uids(victims: dict[str, Any]) -> None:
    found = WORLD.preempt({"NodeNameToVictims": victims})
    assert set(found) == set(victims) - {"d"}
    for name, kept in found.items():
        uids = [pod["metadata"]["uid"] for pod in victims[name]["Pods"] or ()]
        assert [pod["UID"] for pod in kept["Pods"]] == uids
        assert kept["NumPDBViolations"] == victims[name]["NumPDBViolations"]
    assert WORLD.preempt({"NodeNameToMetaVictims": found}) == found
