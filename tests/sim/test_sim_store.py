"""The simulated API server's store: versions, history, and the past that it can still tell."""

from typing import Any

import pytest

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
