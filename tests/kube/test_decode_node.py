"""Decoding of raw Nodes, also malformed ones, and the store of the decoded nodes."""

from datetime import UTC, datetime

import pytest

from dynsched.core.nodes import Node
from dynsched.kube.cluster import NodeStore
from dynsched.kube.decode_node import node_of, quantity
from dynsched_sim.examples import make_node


def node(name: str = "a", version: str = "1", uid: str = "u", **labels: str) -> Node:
    return Node(name=name, uid=uid, resource_version=version, labels=labels)


def test_the_fields_that_are_kept_of_a_node() -> None:
    raw = make_node("worker-3", 6)
    raw["metadata"] |= {"uid": "u-3", "resourceVersion": "42"}
    raw["metadata"]["annotations"] = {"dynsched.io/pressure": "{}", "other.io/x": "y" * 1000}
    raw["spec"]["taints"] = [
        {"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "c", "effect": "NoExecute", "unheardOf": {"x": 1}},
    ]
    raw["status"]["allocatable"] = {"cpu": "3920m", "memory": "7901212Ki", "pods": "110"}
    raw["metadata"]["creationTimestamp"] = "2026-11-20T12:00:00Z"

    found = node_of(raw)

    assert found is not None
    assert (found.name, found.uid, found.resource_version) == ("worker-3", "u-3", "42")
    assert found.labels == raw["metadata"]["labels"]
    assert found.annotations == {"dynsched.io/pressure": "{}"}
    assert list(found.taints) == raw["spec"]["taints"]
    assert ("InternalIP", "10.0.0.7") in found.addresses
    assert found.allocatable == {"cpu": 3.92, "memory": 7901212 * 1024, "pods": 110}
    assert found.created == datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "raw",
    [
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "a", "labels": None, "annotations": None}, "spec": {"taints": None}},
        {"metadata": {"name": "a"}, "status": {"addresses": [{}, {"type": "X"}]}},
        {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "many", "memory": None}}},
    ],
)
def test_missing_and_unreadable_fields_of_a_node_are_left_out(raw) -> None:
    assert node_of(raw) == Node(name="a")


@pytest.mark.parametrize(
    "raw",
    [
        *(None, [], "a", {}, {"metadata": None}, {"metadata": {"name": ""}}),
        {"metadata": {"name": "a"}, "spec": {"taints": 1}},
        {"metadata": {"name": "a", "labels": {"x": 3}}},
        {"metadata": {"name": "a", "annotations": {"x": 3}}},
        {"metadata": {"name": "a"}, "status": {"addresses": [{"type": "X", "address": 1}]}},
    ],
)
def test_an_object_that_cannot_be_a_node_is_ignored(raw) -> None:
    assert node_of(raw) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8.0),
        ("7910m", 7.91),
        ("0.1", 0.1),
        ("100u", 0.0001),
        ("31737028Ki", 31737028 * 1024.0),
        ("2Gi", 2.0 * 2**30),
        ("1e3", 1000.0),
        ("12E", 12e18),
        ("1500M", 1.5e9),
        (4, 4.0),
        ("", None),
        ("many", None),
        ("1Xi", None),
        ("NaN", None),
        ("-1", None),
        ("Infinity", None),
        ("9" * 400, None),
        (True, None),
        (None, None),
        ([], None),
    ],
)
def test_a_quantity_is_parsed(text, number) -> None:
    assert quantity(text) == number


def test_an_older_state_does_not_overwrite_a_newer_one() -> None:
    store = NodeStore()
    store.offer(node(version="9"))
    store.offer(node(version="10", status="presure"))
    store.offer(node(version="9"))
    assert store.nodes()["a"].labels == {"status": "presure"}


def test_a_new_node_replaces_a_deleted_one_of_the_same_name_in_any_order_of_events() -> None:
    store = NodeStore()
    store.offer(node(version="5", uid="old"))
    store.offer(node(version="8", uid="new"))
    store.offer(node(version="6", uid="old"))
    store.drop("a", "old")
    assert store.nodes()["a"].uid == "new"
    store.drop("a", "new")
    assert not store.nodes()


def test_an_answer_to_our_own_patch_does_not_bring_a_deleted_node_back() -> None:
    store = NodeStore()
    store.offer(node(version="5"), only_known=True)
    assert not store.nodes()


def test_a_list_is_correct_except_for_nodes_that_changed_since_the_request() -> None:
    """Also if its versions are lower, as after a restore of etcd."""
    store = NodeStore()
    for name in ("restored", "changed", "gone", "new-namesake"):
        store.offer(node(name, version="50"))
    before = store.changes
    store.offer(node("changed", version="60"))
    store.offer(node("came", version="61"))
    listed = {name: node(name, version="7") for name in ("restored", "changed", "added")}
    store.correct(listed, before)
    versions = {name: each.resource_version for name, each in store.nodes().items()}
    assert versions == {"restored": "7", "changed": "60", "came": "61", "added": "7"}
    assert store.synced


def test_a_mapping_of_nodes_never_changes_after_it_was_returned() -> None:
    store = NodeStore()
    store.offer(node("a"))
    before = store.nodes()
    assert store.nodes() is before
    store.offer(node("b"))
    store.drop("a", "u")
    assert set(before) == {"a"}
    assert set(store.nodes()) == {"b"}
    with pytest.raises(TypeError):
        before["c"] = node("c")
