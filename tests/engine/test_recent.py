"""Pods that were bound or ended a moment ago: each once, for one window, in bounded memory."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from builders import named
from hypothesis import given
from hypothesis import strategies as st

from dynsched.engine.load.recent import TO_START, RecentPods
from dynsched.engine.pod_values import BoundPod, PodChange


def pod(uid: str, node: str = "a", cpu: float = 1.0, memory: float = 2.0) -> BoundPod:
    return BoundPod(uid, node, cpu, memory)


def on_nodes(recent: RecentPods, now: float) -> dict[str, int]:
    """How many pods are on each node, of those that are remembered."""
    return dict(Counter(found.node for found, _, ended in recent.pods(now) if ended is None))


def test_pods_are_remembered_until_the_window_has_passed() -> None:
    recent = RecentPods(60)
    recent.add(pod("1"), 0)
    recent.start("1", 0)
    recent.end(pod("of before", "b"), 30)
    assert tuple(recent.pods(59.5)) == ((pod("1"), 59.5, None), (pod("of before", "b"), None, 29.5))
    assert len(recent.pods(60)) == 1
    recent.window = 300  # a longer one keeps what is remembered
    assert len(recent.pods(329)) == 1
    assert len(recent.pods(330)) == len(recent) == 0


def test_a_pod_counts_for_half_a_minute_and_again_from_the_start_of_a_container_on() -> None:
    """One that is never started would hold its node's load up: 38 of them, at no cost."""
    recent = RecentPods(120)
    recent.add(pod("1"), 0)
    before = recent.sequence
    assert len(recent.pods(29.9)) == 1
    assert len(recent.pods(30)) == 0
    recent.add(pod("1", cpu=4.0), 45)  # its requests are corrected
    assert len(recent.pods(50)) == 0
    recent.start("1", 60)
    recent.start("1", 70)  # a container that was started again
    assert tuple(recent.pods(100)) == ((pod("1", cpu=4.0), 40, None),)
    assert len(recent.pods(179.9)) == 1
    assert len(recent.pods(180)) == len(recent) == 0
    recent.start("1", 181)
    assert len(recent) == 0
    assert sum(change.sign for change in recent.changes_after(before)) == 0


def test_a_pod_that_never_ran_is_forgotten_and_takes_nothing_off() -> None:
    """What it counted has faded. The extender counts by the changes, each in full."""
    recent = RecentPods(300)
    recent.add(pod("1"), 0)
    before = recent.sequence
    recent.never_ran("1")
    recent.never_ran("never seen")
    assert tuple(recent.pods(150)) == ()
    assert recent.changes_after(before) == []


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
    gone = [(change.pod.uid, change.sign) for change in recent.changes_after(seen)]
    assert gone == [("on-b", -1), ("on-c", -1)]
    recent.add(pod("new", node="b"), 2)
    assert on_nodes(recent, 2) == {"a": 1, "b": 1}


def test_a_pod_on_a_node_that_the_watch_has_yet_to_tell_of_counts() -> None:
    recent = RecentPods(60)
    recent.follow(named("a", uid="1"))
    recent.add(pod("1", node="new"), 0)
    for nodes in (named("a", uid="1"), named("a", "new", uid="1"), named("a", "new", uid="1")):
        recent.follow(nodes)
        assert on_nodes(recent, 1) == {"new": 1}


def test_of_nodes_that_came_and_went_nothing_is_kept() -> None:
    recent = RecentPods(60)
    for number in range(500):
        recent.add(pod(str(number), node=f"n{number}"), 100.0 * number)
        recent.end(pod(f"other-{number}", node=f"n{number}"), 100.0 * number)
        recent.forget_changes(recent.sequence)
    recent.pods(100_000.0)
    assert (len(recent), len(recent._order), recent.changes_after(0)) == (0, 0, [])


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

    pod: BoundPod
    bound: float | None
    ended: float | None = None
    started: bool = False


class Model:
    """What `RecentPods` should remember, worked out without its queues. ``totals``: the sum of the
    changes that it should have told of, in cores by node.
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
            elif one.pod.assumed and now - last >= ASSUMED_FOR:
                self.remove(uid)

    def count(self, pod: BoundPod, sign: int) -> None:
        self.totals[pod.node] += sign * int(pod.cpu)

    def remove(self, uid: str) -> None:
        one = self.known.pop(uid, None)
        if one is not None and one.ended is None:
            self.count(one.pod, -1)

    def end(self, pod: BoundPod, now: float) -> None:
        one = self.known.get(pod.uid)
        if one is None:
            self.known[pod.uid] = Known(pod, None, ended=now)
            self.count(pod, -1)
        elif one.pod.assumed:
            self.remove(pod.uid)
        elif one.ended is None:
            one.ended = now
            self.count(one.pod, -1)

    def add(self, pod: BoundPod, now: float) -> None:
        one = self.known.get(pod.uid)
        if one is not None and (one.ended is not None or (pod.assumed and not one.pod.assumed)):
            return
        is_new = one is None or (one.pod.assumed and not pod.assumed)
        self.remove(pod.uid)
        bound, started = now if is_new or one is None else one.bound, bool(one and one.started)
        self.known[pod.uid] = Known(pod, bound, started=started)
        self.count(pod, 1)

    def pods(self, now: float) -> dict[str, tuple[BoundPod, float | None, float | None]]:
        def ago(then: float | None) -> float | None:
            return None if then is None else now - then

        return {
            uid: (one.pod, ago(one.bound), ago(one.ended))
            for uid, one in self.known.items()
            if one.started
            or one.pod.assumed
            or one.ended is not None
            or (one.bound is not None and now - one.bound < TO_START)
        }

    def start(self, uid: str, now: float) -> None:
        one = self.known.get(uid)
        if one and one.ended is None and not one.pod.assumed and not one.started:
            one.bound, one.started = now, True


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from("xyz"),
            st.sampled_from([0, 0, 10, 30, 59, 60, 90]),
            st.sampled_from(["told", "told", "assumed", "assumed", "gone", "ended", "started"]),
            st.sampled_from([1.0, 4.0]),
        ),
        max_size=30,
    )
)
def test_what_is_remembered_is_what_happened(steps) -> None:
    """And the changes add up to it, but for pods whose window has passed."""
    recent, model = RecentPods(WINDOW), Model()
    now = 0.0
    for uid, node, pause, what, cpu in steps:
        now += pause
        recent.pods(now)
        model.pass_to(now)
        told = replace(pod(uid, node, cpu), assumed=what == "assumed")
        if what == "gone":
            recent.remove(uid)
            model.remove(uid)
        elif what == "ended":
            recent.end(told, now)
            model.end(told, now)
        elif what == "started":
            recent.start(uid, now)
            model.start(uid, now)
        else:
            recent.add(told, now)
            model.add(told, now)
        found = {pod.uid: (pod, bound, ended) for pod, bound, ended in recent.pods(now)}
        assert found == model.pods(now)
        totals: Counter[str] = Counter()
        for change in recent.changes_after(0):
            totals[change.pod.node] += change.sign * int(change.pod.cpu)
        assert all(totals[name] == model.totals[name] for name in "xyz")
