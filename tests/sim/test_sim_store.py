"""The simulated API server's store: versions, history, and the past that it can still tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched_sim.apiserver.api_errors import ApiError
from dynsched_sim.apiserver.objects import Objects
from dynsched_sim.apiserver.resources import LEASES, NODES
from dynsched_sim.apiserver.schema import normalise
from dynsched_sim.apiserver.store import GoneError, Store
from dynsched_sim.examples import make_node


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def test_a_full_history_forgets_the_oldest_first() -> None:
    store = Store(history=3)
    versions = [store.put(NODES, node("a", x=str(i))).version for i in range(5)]
    assert len(store.changes(NODES, versions[1])) == 3
    with pytest.raises(GoneError):
        store.changes(NODES, versions[0])
    with pytest.raises(GoneError):
        store.entries(NODES, versions[0])
    assert store.changes(LEASES, 0) == ()  # each resource has a history of its own


_STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "delete"])))


@given(_STEPS)
def test_undoing_the_history_gives_every_state_there_was(steps: list[tuple[str, str]]) -> None:
    store = Store()
    states = {store.version: store.entries(NODES)}
    for name, step in steps:
        entry = store.get(NODES, "", name)
        if step == "put":
            store.put(NODES, node(name, x=str(store.version)))
        elif entry is not None:
            store.delete(NODES, entry)
        states[store.version] = store.entries(NODES)
    for version, state in states.items():
        assert store.entries(NODES, version) == state


def test_what_is_given_out_is_a_copy_and_a_namespace_must_be_there() -> None:
    objects = Objects(Store())
    objects.create("nodes", node("a", x="1"))
    objects.get("nodes", "a")["metadata"]["labels"]["x"] = "2"
    assert objects.get("nodes", "a")["metadata"]["labels"] == {"x": "1"}
    with pytest.raises(ApiError, match='namespaces "n" not found'):
        objects.create("leases", {"metadata": {"name": "l"}}, "n")


def test_nodes_are_told_apart_by_their_addresses_and_as_large_as_asked_for() -> None:
    bodies = [make_node(f"n{i}", i) for i in range(6000)]
    every = [a for body in bodies for a in body["status"]["addresses"]]
    found = [a["address"] for a in every if a["type"] != "Hostname"]
    assert len(set(found)) == len(found)
    assert all(0 <= int(part) <= 255 for address in found for part in address.split("."))
    for size, least, most in ((9000, 9000, 9500), (0, 0, 3000)):
        body = make_node("a", 1, size=size) if size else make_node("b")
        assert least <= len(Store().put(NODES, normalise(NODES, body)).raw) <= most
