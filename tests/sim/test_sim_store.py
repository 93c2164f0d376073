"""The simulated API server's store: versions, history, and the past that it can still tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched.sim.apiserver.objects import Objects, PatchType, Preconditions, Write
from dynsched.sim.apiserver.resources import EVENTS, LEASES, NAMESPACES, NODES
from dynsched.sim.apiserver.schema import normalise
from dynsched.sim.apiserver.status import ApiError
from dynsched.sim.apiserver.store import Change, ChangeType, GoneError, Store
from dynsched.sim.nodes import make_node


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def names(store: Store, at: int | None = None) -> list[str]:
    return [entry.name for entry in store.entries(NODES, at)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def objects() -> Objects:
    return Objects(Store())


def test_every_write_takes_one_version_of_all_resources(store: Store) -> None:
    first = store.put(NODES, node("a"))
    second = store.put(LEASES, {"metadata": {"name": "l", "namespace": "default"}})
    third = store.put(NODES, node("a", x="1"))
    assert (second.version, third.version) == (first.version + 1, first.version + 2)
    assert store.version == third.version
    assert third.decode()["metadata"]["resourceVersion"] == str(third.version)


def test_objects_are_listed_in_the_order_of_their_keys(store: Store) -> None:
    for name in ("b", "a-b", "a", "a.b"):
        store.put(NODES, node(name))
    assert names(store) == ["a", "a-b", "a.b", "b"]
    for namespace, name in (("x", "b"), ("a", "z"), ("x", "a")):
        store.put(EVENTS, {"metadata": {"name": name, "namespace": namespace}})
    assert [e.key for e in store.entries(EVENTS)] == ["a/z", "x/a", "x/b"]


def test_the_past_can_be_listed_as_it_was(store: Store) -> None:
    start = store.put(NODES, node("a", x="1")).version
    store.put(NODES, node("b"))
    changed = store.put(NODES, node("a", x="2")).version
    a = store.get(NODES, "", "a")
    assert a is not None
    store.delete(NODES, a)
    assert names(store) == ["b"]
    assert names(store, changed) == ["a", "b"]
    assert [e.labels for e in store.entries(NODES, changed)] == [{"x": "2"}, {}]
    assert [e.labels for e in store.entries(NODES, start)] == [{"x": "1"}]
    assert names(store, start - 1) == []


def test_changes_are_told_in_order_with_what_they_replaced(store: Store) -> None:
    start = store.put(NODES, node("a", x="1")).version
    store.put(EVENTS, {"metadata": {"name": "e", "namespace": "default"}})
    second = store.put(NODES, node("a", x="2"))
    store.delete(NODES, second)
    changed, deleted = store.changes(NODES, start)
    assert (changed.type, changed.entry.labels) == (ChangeType.MODIFIED, {"x": "2"})
    assert changed.previous is not None
    assert changed.previous.labels == {"x": "1"}
    assert (deleted.type, deleted.version) == (ChangeType.DELETED, store.version)
    assert deleted.entry.decode()["metadata"]["labels"] == {"x": "2"}
    assert store.changes(NODES, store.version) == ()


def test_a_full_history_forgets_the_oldest_first() -> None:
    store = Store(history=3)
    versions = [store.put(NODES, node("a", x=str(i))).version for i in range(5)]
    assert len(store.changes(NODES, versions[1])) == 3
    with pytest.raises(GoneError):
        store.changes(NODES, versions[0])
    with pytest.raises(GoneError):
        store.entries(NODES, versions[0])
    assert store.changes(LEASES, 0) == ()  # each resource has a history of its own


def test_compaction_forgets_all(store: Store) -> None:
    before = store.put(NODES, node("a")).version
    store.put(NODES, node("b"))
    store.compact()
    with pytest.raises(GoneError):
        store.changes(NODES, before)
    assert store.changes(NODES, store.version) == ()
    assert names(store) == names(store, store.version) == ["a", "b"]
    store.put(NODES, node("c"))
    assert len(store.changes(NODES, store.version - 1)) == 1


def test_listeners_hear_at_once_until_they_stop(store: Store) -> None:
    heard: list[Change] = []
    stop = store.subscribe(NODES, heard.append)
    entry = store.put(NODES, node("a"))
    store.put(LEASES, {"metadata": {"name": "l", "namespace": "default"}})
    assert [(c.type, c.entry) for c in heard] == [(ChangeType.ADDED, entry)]
    stop()
    store.put(NODES, node("b"))
    assert len(heard) == 1


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


# --- the verbs, without HTTP --------------------------------------------------------------------


def test_a_new_cluster_has_the_usual_namespaces(objects: Objects) -> None:
    found = [n["metadata"]["name"] for n in objects.all(NAMESPACES)]
    assert found == ["default", "kube-node-lease", "kube-public", "kube-system"]


def test_objects_can_be_written_without_a_connection(objects: Objects) -> None:
    written = objects.create("nodes", make_node("a", 1), how=Write(manager="kubelet"))
    assert written.body["metadata"]["managedFields"][0]["manager"] == "kubelet"
    objects.patch("nodes", "a", {"metadata": {"labels": {"status": "presure"}}})
    assert objects.get("nodes", "a")["metadata"]["labels"]["status"] == "presure"
    status = Write(subresource="status")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    objects.patch("nodes", "a", ready, how=status, kind=PatchType.STRATEGIC)
    conditions = {c["type"]: c["status"] for c in objects.get("nodes", "a")["status"]["conditions"]}
    assert conditions["Ready"] == "False"
    assert conditions["DiskPressure"] == "False"
    assert objects.delete("nodes", "a") is None
    with pytest.raises(ApiError, match='nodes "a" not found') as refused:
        objects.get("nodes", "a")
    assert refused.value.code == 404


def test_what_is_given_out_is_a_copy(objects: Objects) -> None:
    objects.create("nodes", node("a", x="1"))
    objects.get("nodes", "a")["metadata"]["labels"]["x"] = "2"
    assert objects.get("nodes", "a")["metadata"]["labels"] == {"x": "1"}


def test_a_refused_write_changes_nothing(objects: Objects) -> None:
    objects.create("nodes", node("a"))
    version = objects.store.version
    for attempt in (
        lambda: objects.create("nodes", node("a")),
        lambda: objects.patch("nodes", "a", {"spec": {"taints": [{"key": "x"}]}}),
        lambda: objects.patch("nodes", "a", {"metadata": {"resourceVersion": "1"}}),
        lambda: objects.replace("nodes", "a", {"metadata": {"name": "b"}}),
        lambda: objects.delete("nodes", "a", only_if=Preconditions(uid="x")),
    ):
        with pytest.raises(ApiError):
            attempt()
    assert objects.store.version == version


def test_deleting_a_namespace_empties_it(objects: Objects) -> None:
    objects.create("namespaces", {"metadata": {"name": "n"}})
    objects.create("leases", {"metadata": {"name": "l"}}, "n")
    objects.delete("namespaces", "n")
    assert objects.all("leases") == []
    with pytest.raises(ApiError, match='namespaces "n" not found'):
        objects.create("leases", {"metadata": {"name": "l"}}, "n")


# --- node bodies --------------------------------------------------------------------------------


def _addresses(body: dict[str, Any]) -> Iterator[str]:
    return (a["address"] for a in body["status"]["addresses"] if a["type"] != "Hostname")


def test_nodes_by_the_thousand_are_told_apart_by_their_addresses() -> None:
    bodies = [make_node(f"n{i}", i) for i in range(6000)]
    found = [address for body in bodies for address in _addresses(body)]
    assert len(set(found)) == len(found)
    assert all(0 <= int(part) <= 255 for address in found for part in address.split("."))


def test_a_node_is_padded_to_the_size_asked_for() -> None:
    store = Store()
    body = make_node("a", 1, size=9000)
    raw = store.put(NODES, normalise(NODES, body)).raw
    assert 9000 <= len(raw) <= 9500
    assert len(store.put(NODES, normalise(NODES, make_node("b"))).raw) < 3000
