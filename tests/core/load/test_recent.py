"""Recently bound or ended pods: each counts once, for one window, in bounded memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from builders import named
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.load.pods import BoundPod, PodChange
from dynsched.core.load.recent import RecentPods, newly_bound
from dynsched.core.nodes import Node


def pod(uid: str, node: str = "a", cpu: float = 1.0, memory: float = 2.0) -> BoundPod:
    return BoundPod(uid, node, cpu, memory)


def on_nodes(recent: RecentPods, now: float) -> dict[str, int]:
    """The number of stored pods on each node that have not ended."""
    return dict(Counter(found.node for found, _, ended in recent.pods(now) if ended is None))


def test_pods_are_stored_until_the_window_has_passed() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.start("1", 0)
    recent.end(pod("of before", "b"), 30)
    assert tuple(recent.pods(59.5)) == ((pod("1"), 59.5, None), (pod("of before", "b"), None, 29.5))
    assert len(recent.pods(60)) == 1
    recent.window = 300  # a longer window keeps the stored pods
    assert len(recent.pods(329)) == 1
    assert len(recent.pods(330)) == len(recent) == 0


def test_a_pod_counts_for_half_a_minute_and_again_once_a_container_starts() -> None:
    """Otherwise pods that never start would keep their node's expected load high, and would cost
    their owner nothing. 38 such pods did.
    """
    recent = RecentPods(120)
    recent.add(pod("1"), 0)
    before = recent.sequence
    assert len(recent.pods(29.9)) == 1
    assert len(recent.pods(30)) == 0
    recent.add(pod("1", cpu=4.0), 45)  # an update of its requests
    assert len(recent.pods(50)) == 0
    recent.start("1", 60)
    recent.start("1", 70)  # a restart of the container
    assert tuple(recent.pods(100)) == ((pod("1", cpu=4.0), 40, None),)
    assert len(recent.pods(179.9)) == 1
    assert len(recent.pods(180)) == len(recent) == 0
    recent.start("1", 181)
    assert len(recent) == 0
    assert sum(change.sign for change in recent.changes_after(before)) == 0
    recent.add(pod("2"), 200)
    before = recent.sequence
    recent.never_ran("2")  # not a change: part of its load has faded already
    recent.never_ran("never seen")
    assert (tuple(recent.pods(200)), recent.changes_after(before)) == ((), [])


def test_changes_are_returned_in_order_after_any_sequence_number() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    first = recent.sequence
    recent.add(pod("2", node="b"), 10)
    recent.end(pod("1"), 20)
    recent.end(pod("of before"), 20)
    changes = [
        PodChange(pod("1"), 1),
        PodChange(pod("2", node="b"), 1),
        PodChange(pod("1"), -1),
        PodChange(pod("of before"), -1, is_recent=False),
    ]
    assert recent.changes_after(0) == changes
    assert recent.changes_after(first) == changes[1:]
    assert recent.changes_after(recent.sequence) == []
    recent.forget_changes(first)
    assert (recent.sequence, recent.changes_after(0)) == (4, changes[1:])
    assert recent.changes_after(2) == changes[2:]
    recent.forget_changes(99)
    assert (recent.sequence, recent.changes_after(0)) == (4, [])


def test_pods_of_a_deleted_or_replaced_node_no_longer_count() -> None:
    recent = RecentPods(60)
    before = named("a", "b", "c", uid="1")
    recent.follow(before)
    for name in before:
        recent.add(pod(f"on-{name}", node=name), 0)
        recent.end(pod(f"ended-on-{name}", node=name), 0)
    seen = recent.sequence
    recent.follow({**named("a", uid="1"), **named("b", uid="2")})
    assert {found.uid for found, _, _ in recent.pods(1)} == {"on-a", "ended-on-a"}
    gone = [(change.pod.uid, change.sign) for change in recent.changes_after(seen)]
    assert gone == [("on-b", -1), ("on-c", -1)]
    recent.add(pod("new", node="b"), 2)
    recent.add(pod("ahead", node="unheard-of"), 2)  # the pod watch is ahead of the node watch
    recent.follow(named("a", "b", "unheard-of", uid="1") | named("b", uid="2"))
    assert on_nodes(recent, 2) == {"a": 1, "b": 1, "unheard-of": 1}


@pytest.mark.parametrize("how", ["bound", "removed", "ended", "assumed", "moved"])
def test_memory_is_bounded_and_the_oldest_go_first(how: str) -> None:
    recent = RecentPods(60, most=100)
    for number in range(1000):
        uid, node = str(number), f"n{number}"
        recent.add(replace(pod(uid, node), assumed=how in ("assumed", "moved")), 0)
        if how == "removed":
            recent.remove(uid)
        elif how == "ended":
            recent.end(pod(uid, node), 0)
        elif how == "moved":
            recent.add(pod(uid, "b"), 0)
    assert len(recent) <= 100
    assert len(recent.changes_after(0)) <= 100
    assert recent.sequence >= 1000
    if how == "bound":
        assert set(on_nodes(recent, 0)) == {f"n{number}" for number in range(900, 1000)}


@pytest.mark.parametrize(
    ("steps", "after", "nodes"),
    [
        ("assumed:a", 59.9, {"a": 1}),
        ("assumed:a", 60, {}),  # its binding was never observed
        ("assumed:a observed:a", 29.9, {"a": 1}),
        ("assumed:a observed:b", 29.9, {"b": 1}),
        ("observed:a assumed:b", 29.9, {"a": 1}),  # an observed binding takes precedence
        ("assumed:a ended:a", 0, {}),
        ("observed:a ended:a observed:a", 0, {}),
        ("observed:a gone:a", 0, {}),
    ],
)
def test_a_pod_whose_binding_is_assumed_and_observed_counts_once(
    steps: str, after: float, nodes: Any
) -> None:
    recent = RecentPods(90)
    _follow(recent, [("u", *step.split(":")[::-1]) for step in steps.split()])
    assert on_nodes(recent, after) == nodes


def _follow(recent: RecentPods, steps: Iterable[tuple[str, str, str]]) -> None:
    """Apply steps, each of which is a pod's UID, its node, and an event."""
    for uid, node, what in steps:
        if what == "gone":
            recent.remove(uid)
        elif what == "ended":
            recent.end(pod(uid, node), 0)
        else:
            recent.add(replace(pod(uid, node), assumed=what == "assumed"), 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from("xyz"),
            st.sampled_from(["observed", "observed", "assumed", "ended"]),
        ),
        max_size=30,
    )
)
def test_the_changes_add_up_to_the_stored_pods(steps) -> None:
    """A pod that ended, and whose binding was not stored, counts as minus one."""
    recent = RecentPods(90)
    _follow(recent, steps)
    changes, pods = Counter[str](), Counter[str]()
    for change in recent.changes_after(0):
        changes[change.pod.node] += change.sign
    for found, bound, ended in recent.pods(0):
        pods[found.node] += (bound is not None) - (ended is not None)
    assert all(changes[name] == pods[name] for name in "xyz")


def test_each_observed_binding_is_newly_bound_once() -> None:
    pods = RecentPods()
    pods.follow({name: Node(name) for name in "abc"})
    pods.add(BoundPod("1", "a", assumed=True), 0.0)
    assert newly_bound(pods.changes_after(0)) == []
    pods.add(BoundPod("1", "a"), 1.0)  # the assumed binding is observed
    pods.add(BoundPod("1", "a", cpu=2.0), 2.0)  # an update of its requests
    pods.add(BoundPod("2", "b"), 3.0)
    pods.end(BoundPod("2", "b"), 4.0)
    assert newly_bound(pods.changes_after(0)) == ["a", "b"]
