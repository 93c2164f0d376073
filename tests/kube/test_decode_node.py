"""From raw Nodes, odd ones too, to what is kept of them; and the store that keeps it."""

from datetime import UTC, datetime

import pytest

from dynsched.core.nodes import Node
from dynsched.kube.cluster import NodeStore
from dynsched.kube.decode_node import node_of, quantity
from dynsched_sim.examples import make_node


def node(name: str = "a", version: str = "1", uid: str = "u", **labels: str) -> Node:
    return Node(name=name, uid=uid, resource_version=version, labels=labels)


def test_what_is_kept_of_a_node() -> None:
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
def test_a_node_of_which_little_can_be_read(raw) -> None:
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
def test_what_is_not_as_a_node_is_no_node(raw) -> None:
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
def test_quantities(text, number) -> None:
    assert quantity(text) == number


def test_an_older_state_does_not_overwrite_a_newer_one() -> None:
    store = NodeStore()
    store.offer(node(version="9"))
    store.offer(node(version="10", status="presure"))
    store.offer(node(version="9"))
    assert store.nodes()["a"].labels == {"status": "presure"}


def test_a_namesake_replaces_a_deleted_node_in_whatever_order_the_events_come() -> None:
    store = NodeStore()
    store.offer(node(version="5", uid="old"))
    store.offer(node(version="8", uid="new"))
    store.offer(node(version="6", uid="old"))
    store.drop("a", "old")
    assert store.nodes()["a"].uid == "new"
    store.drop("a", "new")
    assert not store.nodes()


def test_our_own_answers_do_not_bring_a_deleted_node_back() -> None:
    store = NodeStore()
    store.offer(node(version="5"), only_known=True)
    assert not store.nodes()


def test_a_list_is_right_but_for_what_changed_since_it_was_asked_for() -> None:
    """Also where its versions are lower, as those of an etcd that was restored."""
    store = NodeStore()
    for name in ("restored", "changed", "gone", "new-namesake"):
        store.offer(node(name, version="50"))
    asked = store.changes
    store.offer(node("changed", version="60"))
    store.offer(node("came", version="61"))
    listed = {name: node(name, version="7") for name in ("restored", "changed", "added")}
    store.correct(listed, asked)
    versions = {name: each.resource_version for name, each in store.nodes().items()}
    assert versions == {"restored": "7", "changed": "60", "came": "61", "added": "7"}
    assert store.synced


def test_a_mapping_that_was_handed_out_stays_as_it_was() -> None:
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
