"""Pods that were bound or ended a moment ago: each once, for one window, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pytest
from builders import named
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.pods import BoundPod, PodChange
from dynsched.core.recent import RecentPods


def pod(uid: str, node: str = "a", cpu: float = 1.0, memory: float = 2.0) -> BoundPod:
    return BoundPod(uid, node, cpu, memory)


def on_nodes(recent: RecentPods, now: float) -> dict[str, int]:
    """How many pods are on each node, of those that are remembered."""
    return dict(Counter(found.node for found, _, ended in recent.pods(now) if ended is None))


def test_pods_are_remembered_until_the_window_has_passed() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.add(pod("2"), 30)
    assert tuple(recent.pods(59.5)) == ((pod("1"), 59.5, None), (pod("2"), 29.5, None))
    assert tuple(recent.pods(60)) == ((pod("2"), 30, None),)
    assert tuple(recent.pods(90)) == ()
    assert len(recent) == 0


def test_a_longer_window_keeps_what_is_remembered() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.window = 300
    assert on_nodes(recent, 299) == {"a": 1}
    assert on_nodes(recent, 300) == {}


def test_a_pod_counts_once_whoever_tells_of_it() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.add(pod("1"), 50)
    assert tuple(recent.pods(50)) == ((pod("1"), 50, None),)
    assert tuple(recent.pods(60)) == ()


def test_what_is_known_later_corrects_the_requests_and_not_the_time() -> None:
    recent = RecentPods(60)
    recent.add(pod("1", cpu=0.1), 0)
    recent.add(pod("1", cpu=4.0), 5)
    assert tuple(recent.pods(5)) == ((pod("1", cpu=4.0), 5, None),)
    assert tuple(recent.pods(60)) == ()


def test_what_was_observed_is_not_undone_by_a_question_that_comes_late() -> None:
    recent = RecentPods(60)
    recent.add(pod("u", "b", cpu=4.0), 0)
    recent.add(BoundPod("u", "a", assumed=True), 1)
    assert tuple(recent.pods(1)) == ((pod("u", "b", cpu=4.0), 1, None),)


def test_a_pod_that_waited_counts_from_its_binding_on() -> None:
    recent = RecentPods(60)
    recent.add(BoundPod("u", "a", assumed=True), 0)
    recent.add(pod("u", "b"), 59)
    assert on_nodes(recent, 118) == {"b": 1}
    assert not on_nodes(recent, 119)


def test_an_assumed_pod_that_is_never_bound_counts_for_60_seconds_however_long_the_window() -> None:
    recent = RecentPods(300)
    recent.add(BoundPod("u", "a", assumed=True), 0)
    assert on_nodes(recent, 59) == {"a": 1}
    assert on_nodes(recent, 60) == {}


def test_an_assumed_pod_that_counts_no_longer_is_not_taken_off_again_when_it_is_bound() -> None:
    """Who counts by the changes took it off when its time was over."""
    recent = RecentPods(300)
    recent.add(BoundPod("u", "a", assumed=True), 0)
    recent.pods(60)
    before = recent.sequence
    recent.add(pod("u", "b"), 61)
    assert recent.changes_after(before) == [PodChange(pod("u", "b"), 1)]


def test_an_assumed_pod_that_ends_was_never_there() -> None:
    recent = RecentPods(300)
    recent.add(BoundPod("u", "a", assumed=True), 0)
    recent.end(pod("u"), 1)
    assert tuple(recent.pods(1)) == ()


def test_a_pod_that_ends_is_remembered_for_one_window_from_then_on() -> None:
    recent = RecentPods(60)
    recent.add(pod("new"), 0)
    recent.end(pod("new"), 50)
    recent.end(pod("of before", "b"), 50)
    assert tuple(recent.pods(59)) == ((pod("new"), 59, 9), (pod("of before", "b"), None, 9))
    assert len(recent.pods(109)) == 2
    assert tuple(recent.pods(110)) == ()


def test_a_pod_ends_once_and_is_not_bound_again() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.end(pod("1"), 1)
    recent.end(pod("1"), 2)
    recent.add(pod("1"), 3)
    assert tuple(recent.pods(3)) == ((pod("1"), 3, 2),)


def test_a_pod_that_is_removed_was_never_there() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.remove("1")
    recent.remove("never seen")
    assert tuple(recent.pods(0)) == ()
    recent.add(pod("1", node="b"), 1)
    assert on_nodes(recent, 2) == {"b": 1}


def test_a_pod_that_never_ran_is_forgotten_and_takes_nothing_off() -> None:
    """What it counted has faded. The extender counts by the changes, each in full."""
    recent = RecentPods(300)
    recent.add(pod("1"), 0)
    before = recent.sequence
    recent.never_ran("1")
    recent.never_ran("never seen")
    assert tuple(recent.pods(150)) == ()
    assert recent.changes_after(before) == []


def test_bindings_are_counted_by_a_window_of_their_own() -> None:
    recent = RecentPods(300)
    recent.add(pod("1"), 0)
    recent.add(pod("2"), 30)
    recent.add(BoundPod("3", "a", assumed=True), 30)
    recent.end(pod("of before"), 30)
    assert recent.counts(60, 40) == {"a": 2}
    assert recent.counts(60, 60) == {"a": 1}
    recent.end(pod("2"), 60)
    assert recent.counts(60, 60) == {}


# --- changes ---


def test_changes_are_told_in_their_order_from_any_place() -> None:
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


def test_a_pod_that_moves_is_one_less_there_and_one_more_here() -> None:
    recent = RecentPods(60)
    assumed = BoundPod("u", "a", assumed=True)
    recent.add(assumed, 0)
    recent.add(pod("u", "b"), 1)
    assert recent.changes_after(1) == [PodChange(assumed, -1), PodChange(pod("u", "b"), 1)]


def test_what_is_told_twice_is_no_change() -> None:
    recent = RecentPods(60)
    for _ in range(2):
        recent.add(pod("1"), 0)
    for _ in range(2):
        recent.end(pod("1"), 0)
    assert recent.sequence == 2


def test_that_a_window_has_passed_is_no_change() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    assert tuple(recent.pods(100)) == ()
    assert recent.sequence == 1


def test_forgotten_changes_keep_the_numbers_of_the_others() -> None:
    recent = RecentPods(60)
    for number in range(5):
        recent.add(pod(str(number)), 0)
    recent.forget_changes(3)
    assert recent.sequence == 5
    assert [change.pod.uid for change in recent.changes_after(0)] == ["3", "4"]
    assert [change.pod.uid for change in recent.changes_after(4)] == ["4"]
    recent.forget_changes(99)
    assert recent.sequence == 5
    assert recent.changes_after(0) == []


# --- nodes ---


def test_pods_of_a_node_that_was_deleted_or_replaced_count_no_longer() -> None:
    recent = RecentPods(60)
    before = named("a", "b", "c", uid="1")
    recent.follow(before)
    for name in before:
        recent.add(pod(f"on-{name}", node=name), 0)
        recent.end(pod(f"ended-on-{name}", node=name), 0)
    seen = recent.sequence
    recent.follow({**named("a", uid="1"), **named("b", uid="2")})
    assert {found.uid for found, _, _ in recent.pods(1)} == {"on-a", "ended-on-a"}
    assert [(change.pod.uid, change.sign) for change in recent.changes_after(seen)] == [
        ("on-b", -1),
        ("on-c", -1),
    ]
    recent.add(pod("new", node="b"), 2)
    assert on_nodes(recent, 2) == {"a": 1, "b": 1}


def test_a_pod_on_a_node_that_the_watch_has_yet_to_tell_of_counts() -> None:
    recent = RecentPods(60)
    recent.follow(named("a", uid="1"))
    recent.add(pod("1", node="new"), 0)
    for nodes in (named("a", uid="1"), named("a", "new", uid="1"), named("a", "new", uid="1")):
        recent.follow(nodes)
        assert on_nodes(recent, 1) == {"new": 1}


# --- memory ---


def test_of_nodes_that_came_and_went_nothing_is_kept() -> None:
    recent = RecentPods(60)
    for number in range(500):
        recent.add(pod(str(number), node=f"n{number}"), 100.0 * number)
        recent.end(pod(f"other-{number}", node=f"n{number}"), 100.0 * number)
        recent.forget_changes(recent.sequence)
    recent.pods(100_000.0)
    assert not {name for value in vars(recent).values() for name in _names_in(value)}


def _names_in(value: object) -> Iterable[object]:
    return value if isinstance(value, Collection) and not isinstance(value, str) else ()


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    recent = RecentPods(60, most=100)
    for number in range(1000):
        recent.add(pod(str(number), node=f"n{number}"), 0)
    assert len(recent) == 100
    assert set(on_nodes(recent, 0)) == {f"n{number}" for number in range(900, 1000)}


@pytest.mark.parametrize("how", ["removed", "ended", "assumed", "moved"])
def test_memory_is_bounded_when_pods_come_and_go(how: str) -> None:
    recent = RecentPods(60, most=100)
    for number in range(1000):
        uid = str(number)
        recent.add(replace(pod(uid), assumed=how in ("assumed", "moved")), 0)
        if how == "removed":
            recent.remove(uid)
        elif how == "ended":
            recent.end(pod(uid), 0)
        elif how == "moved":
            recent.add(pod(uid, "b"), 0)
    assert len(recent) <= 100
    assert len(recent._order) <= 100
    assert len(recent._journal) <= 100
    assert recent.sequence >= 1000
    assert len(recent.changes_after(0)) <= 100


WINDOW = 90.0
ASSUMED_FOR = 60.0


@dataclass
class Known:
    """What the model knows of a pod."""

    node: str
    bound: float | None
    assumed: bool = False
    ended: float | None = None


class Model:
    """What `RecentPods` should remember, worked out without its queues. ``totals``: the sum of the
    changes that it should have told of, by node.
    """

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.totals: Counter[str] = Counter()

    def pass_to(self, now: float) -> None:
        for uid, one in list(self.known.items()):
            last = one.bound if one.ended is None else one.ended
            assert last is not None
            if now - last >= WINDOW:  # no change: the metrics show the pod by now
                del self.known[uid]
            elif one.assumed and now - last >= ASSUMED_FOR:
                self.remove(uid)

    def remove(self, uid: str) -> None:
        one = self.known.pop(uid, None)
        if one is not None and one.ended is None:
            self.totals[one.node] -= 1

    def end(self, uid: str, node: str, now: float) -> None:
        one = self.known.get(uid)
        if one is None:
            self.known[uid] = Known(node, None, ended=now)
            self.totals[node] -= 1
        elif one.assumed:
            self.remove(uid)
        elif one.ended is None:
            one.ended = now
            self.totals[one.node] -= 1

    def add(self, uid: str, node: str, now: float, *, assumed: bool) -> None:
        one = self.known.get(uid)
        if one is not None and (one.ended is not None or (assumed and not one.assumed)):
            return
        is_new = not assumed and (one is None or one.assumed)
        self.remove(uid)
        bound = now if one is None or is_new else one.bound
        self.known[uid] = Known(node, bound, assumed=assumed)
        self.totals[node] += 1

    def pods(self, now: float) -> dict[str, tuple[str, float | None, float | None]]:
        return {
            uid: (
                one.node,
                None if one.bound is None else now - one.bound,
                None if one.ended is None else now - one.ended,
            )
            for uid, one in self.known.items()
        }


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from("xyz"),
            st.integers(0, 40),
            st.sampled_from(["told", "told", "assumed", "gone", "ended"]),
        ),
        max_size=30,
    )
)
def test_what_is_remembered_is_what_happened(steps: list[tuple[str, str, int, str]]) -> None:
    """And the changes add up to it, but for pods whose window has passed."""
    recent, model = RecentPods(WINDOW), Model()
    now = 0.0
    for uid, node, pause, what in steps:
        now += pause
        recent.pods(now)
        model.pass_to(now)
        told = replace(pod(uid, node), assumed=what == "assumed")
        if what == "gone":
            recent.remove(uid)
            model.remove(uid)
        elif what == "ended":
            recent.end(told, now)
            model.end(uid, node, now)
        else:
            recent.add(told, now)
            model.add(uid, node, now, assumed=told.assumed)
        found = {pod.uid: (pod.node, bound, ended) for pod, bound, ended in recent.pods(now)}
        assert found == model.pods(now)
        totals: Counter[str] = Counter()
        for change in recent.changes_after(0):
            totals[change.pod.node] += change.sign
        assert {name: totals[name] for name in "xyz"} == {
            name: model.totals[name] for name in "xyz"
        }
