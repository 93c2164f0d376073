"""The simulated API server's store: versions, history, and the past that it can still tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched_sim.apiserver.resources import LEASES, NODES
from dynsched_sim.apiserver.store import GoneError, Store


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
