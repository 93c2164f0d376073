"""Just-bound pods: each once, for one window, in bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest
from builders import named
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.bound import NONE, Bound, BoundPod, BoundPods


def pod(uid: str, node: str = "a", cpu: float = 1.0, memory: float = 2.0) -> BoundPod:
    return BoundPod(uid, node, cpu, memory)


def test_pods_count_until_the_window_has_passed() -> None:
    bound = BoundPods(60)
    bound.add(pod("1"), 0)
    bound.add(pod("2"), 30)
    assert bound.sums(59.9) == {"a": Bound(2, 2.0, 4.0)}
    assert bound.sums(60) == {"a": Bound(1, 1.0, 2.0)}
    assert bound.sums(90) == {}
    assert len(bound) == 0


def test_a_pod_counts_once_whoever_tells_of_it() -> None:
    bound = BoundPods(60)
    bound.add(pod("1"), 0)
    bound.add(pod("1"), 50)
    assert bound.sums(50) == {"a": Bound(1, 1.0, 2.0)}
    assert bound.sums(60) == {}


def test_what_is_known_later_corrects_the_requests_and_not_the_time() -> None:
    bound = BoundPods(60)
    bound.add(pod("1", cpu=0.1), 0)
    bound.add(pod("1", cpu=4.0), 5)
    assert bound.sums(5) == {"a": Bound(1, 4.0, 2.0)}
    assert bound.sums(60) == {}


def test_what_was_told_is_not_undone_by_a_question_that_comes_late() -> None:
    bound = BoundPods(60)
    bound.add(pod("u", "b", cpu=4.0), 0)
    bound.add(BoundPod("u", "a", assumed=True), 1)
    assert bound.sums(1) == {"b": Bound(1, 4.0, 2.0)}


def test_a_pod_that_waited_counts_from_its_binding_on() -> None:
    bound = BoundPods(60)
    bound.add(BoundPod("u", "a", assumed=True), 0)
    bound.add(pod("u", "b"), 59)
    assert set(bound.sums(118)) == {"b"}
    assert not bound.sums(119)


def test_a_deleted_pod_counts_no_longer() -> None:
    bound = BoundPods(60)
    bound.add(pod("1"), 0)
    bound.remove("1")
    bound.remove("never seen")
    assert bound.sums(0) == {}
    bound.add(pod("1", node="b"), 1)
    assert bound.sums(2) == {"b": Bound(1, 1.0, 2.0)}


def test_changes_are_told_once_to_each_reader_and_an_end_is_a_change() -> None:
    bound = BoundPods(60)
    first, second = bound.reader(), bound.reader()
    assert first.changes(0) == {}
    bound.add(pod("1"), 0)
    bound.add(pod("2", node="b"), 10)
    for reader in (first, second):
        assert reader.changes(10) == {"a": Bound(1, 1.0, 2.0), "b": Bound(1, 1.0, 2.0)}
        assert reader.changes(11) == {}
    assert first.changes(60) == {"a": NONE}


def test_who_reads_the_sums_has_read_the_changes() -> None:
    bound = BoundPods(60)
    reader = bound.reader()
    bound.add(pod("1"), 0)
    assert reader.sums(0) == {"a": Bound(1, 1.0, 2.0)}
    assert reader.changes(1) == {}


@pytest.mark.parametrize("asks", ["nobody", "by changes", "by sums"])
def test_of_nodes_that_came_and_went_nothing_is_kept(asks: str) -> None:
    bound = BoundPods(60)
    reader = bound.reader() if asks != "nobody" else None
    for number in range(500):
        bound.add(pod(str(number), node=f"n{number}"), 100.0 * number)
        if asks == "by changes":
            reader.changes(100.0 * number)
        elif asks == "by sums":
            reader.sums(100.0 * number)
    bound.sums(100_000.0)
    kept = {name for value in vars(bound).values() for name in _names_in(value)}
    assert not kept
    assert reader is None or len(reader.changed) <= 1


def _names_in(value: object) -> Iterable[str]:
    entries = value if isinstance(value, Collection) and not isinstance(value, str) else ()
    return (entry for entry in entries if isinstance(entry, str) and entry.startswith("n"))


def test_pods_of_a_node_that_was_deleted_or_replaced_count_no_longer() -> None:
    bound = BoundPods(60)
    reader = bound.reader()
    before = named("a", "b", "c", uid="1")
    bound.follow(before)
    for name in before:
        bound.add(pod(f"on-{name}", node=name), 0)
    assert set(reader.changes(0)) == {"a", "b", "c"}
    bound.follow({**named("a", uid="1"), **named("b", uid="2")})
    assert bound.sums(1) == {"a": Bound(1, 1.0, 2.0)}
    assert reader.changes(1) == {"b": NONE, "c": NONE}
    bound.add(pod("new", node="b"), 2)
    assert set(bound.sums(2)) == {"a", "b"}


def test_a_pod_on_a_node_that_the_watch_has_yet_to_tell_of_counts() -> None:
    bound = BoundPods(60)
    bound.follow(named("a", uid="1"))
    bound.add(pod("1", node="new"), 0)
    for nodes in (named("a", uid="1"), named("a", "new", uid="1"), named("a", "new", uid="1")):
        bound.follow(nodes)
        assert set(bound.sums(1)) == {"new"}


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    bound = BoundPods(60, most=100)
    for number in range(1000):
        bound.add(pod(str(number), node=f"n{number}"), 0)
    assert len(bound) == 100
    assert set(bound.sums(0)) == {f"n{number}" for number in range(900, 1000)}


def test_memory_is_bounded_when_pods_come_and_go() -> None:
    bound = BoundPods(60, most=100)
    for number in range(1000):
        bound.add(pod(str(number)), 0)
        bound.remove(str(number))
    assert len(bound._order) <= 100


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from("xyz"),
            st.integers(0, 20),
            st.sampled_from(["told", "told", "assumed", "gone"]),
        ),
        max_size=30,
    )
)
def test_the_sums_are_those_of_the_pods(steps: list[tuple[str, str, int, str]]) -> None:
    bound = BoundPods(30)
    known: dict[str, tuple[str, float, bool]] = {}
    now = 0.0
    for uid, node, pause, what in steps:
        now += pause
        known = {name: found for name, found in known.items() if found[1] > now}
        _, ends, assumed = known.get(uid, ("", now + 30, True))
        if what == "gone":
            bound.remove(uid)
            known.pop(uid, None)
        else:
            bound.add(replace(pod(uid, node), assumed=what == "assumed"), now)
            if what == "told":
                known[uid] = (node, now + 30 if assumed else ends, False)
            elif assumed:
                known[uid] = (node, ends, True)
        expected: dict[str, int] = {}
        for where, _, _ in known.values():
            expected[where] = expected.get(where, 0) + 1
        assert {name: found.pods for name, found in bound.sums(now).items()} == expected
