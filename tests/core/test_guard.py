from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import pytest
from builders import rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.guard import (
    INCUMBENT_BONUS,
    MarkCandidate,
    WriteBatch,
    WriteFailure,
    WritePace,
    count_of,
    decide_marks,
)
from dynsched.core.marks import Action, MarkDecision, NodePatch
from dynsched.rules.fields import IntOrPercent
from dynsched.rules.sections import GuardRules


def candidate(
    name: str, heat: float | None, *, marked: bool = False, may_mark: bool = True, pool: str = ""
) -> MarkCandidate:
    """``heat`` is how far the node is over its threshold; None if it is cool."""
    return MarkCandidate(name, pool, heat is not None, marked, may_mark, heat or 0.0)


def decided(
    nodes: Iterable[MarkCandidate],
    guard: GuardRules | None = None,
    *,
    released: int = 0,
    closed: Mapping[str, int] = {},
    **options: Any,
) -> MarkDecision:
    """The decision about ``nodes``, which include those that are neither hot nor marked.

    There are no limits except those in ``options``. ``closed`` is the number of nodes per pool that
    accept no pods now.
    """
    nodes, limits = list(nodes), {"max_marked": "100%", "max_releases": "100%", **options}
    sizes = Counter(each.pool for each in nodes if each.may_mark)
    concerned = [each for each in nodes if each.hot or each.marked]
    open_sizes = sizes - Counter(closed)
    guard = guard or rule_set(guard=limits).guard
    return decide_marks(guard, concerned, sizes, open_sizes, released)


def read(heat: str, marked: Iterable[str] = ()) -> list[MarkCandidate]:
    """Parse ``a5 b-``: node a is five tenths over its threshold, b is cool."""
    found = []
    for name, *rest in heat.split():
        text = "".join(rest)
        value = None if text == "-" else float(text) / 10
        found.append(candidate(name, value, marked=name in marked))
    return found


def names(text: str) -> frozenset[str]:
    return frozenset(text)


@pytest.mark.parametrize(
    ("heat", "before", "guard", "marked", "limited"),
    [
        ("", "", {}, "", ""),
        ("a- b-", "", {}, "", ""),
        ("a1 b2 c- d-", "", {"max_marked": "50%"}, "ab", ""),  # a share of all nodes
        ("a20", "", {"max_marked": "50%"}, "", "a"),
        ("d5 b5 c5 a5", "", {"max_marked": 2}, "ab", "cd"),
        # a marked node keeps its place if another is about as hot
        ("z5 a5", "z", {"max_marked": 1}, "z", "a"),
        ("z5 a6", "z", {"max_marked": 1}, "z", "a"),
        # a place is free only when its mark is gone, because the release may fail or be delayed
        ("z5 a6.1", "z", {"max_marked": 1}, "", "az"),
        ("z5 a6.1", "", {"max_marked": 1}, "a", "z"),
        # nodes that are still hot count in the base of the share of releases, and stay marked
        ("a- b- c- d- e5 f5 g5 h5", "abcdefgh", {"max_releases": "25%"}, "cdefgh", "cd"),
        # marks that wait for their release count toward the cap
        ("a- b- x9 y8", "ab", {"max_marked": 2, "max_releases": 1}, "b", "bxy"),
        ("a- b- x9 y8", "b", {"max_marked": 2, "max_releases": 1}, "x", "y"),
        ("a- b- c- x9", "abc", {"max_marked": 1, "max_releases": 1}, "bc", "bcx"),
        # cool nodes are released before hot ones over the cap
        ("a1 b2 c- d-", "abcd", {"max_marked": 1, "max_releases": 2}, "ab", ""),
    ],
)
def test_which_nodes_are_marked(heat, before, guard, marked, limited) -> None:
    decision = decided(read(heat, before), **guard)
    assert (decision.marked, decision.limited.keys()) == (names(marked), names(limited))
    for name, why in decision.limited.items():
        key = "max_releases" if name in decision.marked else "max_marked"
        assert f"guard.{key} is {guard[key]}" in why


def test_the_cap_applies_to_each_pool_and_the_limit_of_releases_to_all_nodes() -> None:
    pools = {"gpu": "a1 b2 c3 d4", "web": "e90 f80 g- h-", "": "i50 j60"}
    nodes = [
        candidate(each.name, each.severity if each.hot else None, marked=each.marked, pool=pool)
        for pool, heat in pools.items()
        for each in read(heat, "gh")
    ]
    decision = decided(nodes, max_marked="50%", max_releases=1)
    assert decision.marked == names("cdhj")
    assert decision.limited.keys() == names("abefhi")
    assert decision.capped == {"gpu", ""}


@pytest.mark.parametrize(
    ("heat", "before", "closed", "marked", "limited"),
    [
        ("a1 b2 c- d- e- f-", "", 2, "ab", ""),
        ("a1 b2 c3 d- e- f-", "", 2, "bc", "a"),  # two of the four that accept pods
        ("a1 b2 c3 d- e- f-", "", 6, "", "abc"),
        ("a1 b2 c3 d- e- f-", "abc", 2, "abc", ""),  # existing marks stay
        ("a1 b2 c3 d- e- f-", "abc", 6, "abc", ""),
        ("a1 b2 c- d- e- f-", "abc", 6, "ab", ""),  # a node that has cooled is released as usual
        ("a1 b2 c3 d4 e- f-", "abc", 6, "abc", "d"),
        # a hotter node waits until the marks above the cap are released and there is a place
        ("a1 b2 c3 d9 e- f-", "abc", 2, "c", "abd"),
        ("c3 d9 a- b- e- f-", "c", 2, "cd", ""),
    ],
)
def test_nodes_that_accept_no_pods_now_lower_the_cap_but_release_no_mark(
    heat, before, closed, marked, limited
) -> None:
    decision = decided(read(heat, before), closed={"": closed}, max_marked="50%")
    assert (decision.marked, decision.limited.keys()) == (names(marked), names(limited))
    assert decision.capped == ({""} if limited else set())


@pytest.mark.parametrize(("released", "gone"), [(0, 2), (1, 2), (2, 0), (5, 0)])
def test_marks_released_earlier_in_the_tick_count(released: int, gone: int) -> None:
    """A quarter of eight marks may be released in a tick: when two are gone, the other six stay."""
    nodes = read("a- b- c- d- e- f- g- h-"[: 24 - 3 * released], "abcdefgh")
    decision = decided(nodes, released=released, max_releases="25%")
    assert len(nodes) - len(decision.marked) == max(0, gone - released)


LIMITS = st.sampled_from(["0%", "1%", "25%", "50%", "99%", "100%", 0, 1, 2, 5])
HEAT = st.none() | st.sampled_from([0.0, 0.1, 0.15, 0.2, 0.5]) | st.floats(0, 5)
GUARDS = st.builds(
    lambda marked, releases: rule_set(guard={"max_marked": marked, "max_releases": releases}).guard,
    LIMITS,
    LIMITS,
)


@st.composite
def clusters(draw: st.DrawFn) -> list[MarkCandidate]:
    return [
        candidate(
            f"n{number}",
            draw(HEAT),
            marked=draw(st.booleans()),
            may_mark=draw(st.sampled_from([True, True, True, False])),
            pool=draw(st.sampled_from(["", "x", "y"])),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


CLOSED = st.dictionaries(st.sampled_from(["", "x", "y"]), st.integers(0, 5))


@steady(300)
@given(clusters(), GUARDS, st.just({}) | CLOSED)
def test_invariants_of_a_mark_decision(
    nodes: list[MarkCandidate], guard: GuardRules, closed: dict[str, int]
) -> None:
    result = decided(nodes, guard, closed=closed)
    # the order of the nodes does not matter
    assert decided(nodes[::-1], guard, closed=closed) == result
    allowed = [each for each in nodes if each.may_mark]
    hot = {each.name for each in allowed if each.hot}
    before = {each.name for each in allowed if each.marked}
    # only hot nodes get a mark or are refused one; only cool nodes wait for their release
    assert result.marked - before <= hot
    assert result.limited.keys() == (result.marked - hot) | (hot - result.marked)
    # the releases are limited, but one is always allowed
    gone = before - result.marked
    assert len(gone) <= max(1, count_of(guard.max_releases, len(before)))
    assert gone or not before - hot
    for pool in {each.pool for each in nodes}:
        here = {each.name for each in allowed if each.pool == pool}
        there = {each.name for each in nodes if each.pool == pool and each.marked}
        now, most = result.marked & here, count_of(guard.max_marked, len(here))
        cap = count_of(guard.max_marked, max(0, len(here) - closed.get(pool, 0)))
        if now - before:  # holds even if every release fails
            assert len(now | there) <= cap
        assert pool in result.capped or len(hot & here) <= most
        assert pool not in result.capped or len(hot & here) > cap
        # no place stays free while a hot node waits
        if (hot - result.marked - before) & here:
            assert len(now | there) >= cap


@steady(100)
@given(clusters(), GUARDS, CLOSED)
def test_decisions_converge_to_marks_on_the_hottest_nodes(
    nodes: list[MarkCandidate], guard: GuardRules, closed: dict[str, int]
) -> None:
    """After that, nodes that accept no pods for a moment change nothing."""
    heat = {each.name: each.severity for each in nodes}
    nodes = [each for each in nodes if each.may_mark]  # other marks go, whatever the guard allows
    for _ in range(len(nodes) + 1):
        marked = decided(nodes, guard).marked
        nodes = [
            candidate(n.name, n.severity if n.hot else None, marked=n.name in marked, pool=n.pool)
            for n in nodes
        ]
    assert decided(nodes, guard).marked == marked
    assert decided(nodes, guard, closed=closed).marked == marked
    for pool in {each.pool for each in nodes}:
        here = [each for each in nodes if each.pool == pool]
        hot = {each.name for each in here if each.hot}
        mine = {each.name for each in here if each.marked}
        assert mine <= hot
        assert len(mine) == min(len(hot), count_of(guard.max_marked, len(here)))
        if mine and hot - mine:
            coolest = min(heat[name] for name in mine)
            assert max(heat[name] for name in hot - mine) <= coolest + INCUMBENT_BONUS + 1e-9


def test_a_share_is_rounded_down_to_whole_nodes_exactly() -> None:
    for share, total in product(range(101), (*range(120), 999, 5000)):
        assert count_of(IntOrPercent(share / 100, is_share=True), total) == share * total // 100


# The rate limit of writes, their order, and the backoff after failures.


def patch(node: str, action: Action = Action.MARK) -> NodePatch:
    return NodePatch(node, action, {"metadata": {}}, "because")


def release(node: str) -> NodePatch:
    return patch(node, Action.RELEASE)


def choose(
    pace: WritePace, due: Iterable[NodePatch], now: float, per_minute: int = 240
) -> WriteBatch:
    return pace.choose(tuple(due), per_minute, now)


def sent(chosen: WriteBatch) -> str:
    return " ".join(one.node for one in chosen.patches)


@pytest.mark.parametrize("interval", [2, 10, 30, 60])
def test_load_that_moves_between_hundreds_of_nodes_stays_within_the_bound(interval: int) -> None:
    """The rate reaches the bound, however long the tick interval is."""
    pace, due = WritePace(), [release(str(number)) for number in range(500)]
    batches = [choose(pace, due, now) for now in range(0, 180, interval)]
    counts = [len(each.patches) for each in batches]
    assert all(len(each.patches) + len(each.delayed) == 500 for each in batches)
    assert (counts[0], set(counts[1:])) == (240, {4 * interval})
    assert len(choose(pace, due, 3600).patches) == 240  # at most one minute's, after any pause


def test_new_marks_are_written_at_once_and_other_writes_wait_longer_for_them() -> None:
    pace = WritePace()
    hot = [patch(f"h{number}") for number in range(300)]
    chosen = choose(pace, [release("e"), *hot], 0.0)
    assert chosen.patches == tuple(hot)
    assert chosen.delayed == {"e": "not written yet: guard.max_writes_per_minute is 240"}
    for now in (5.0, 10.0, 15.0):
        assert sent(choose(pace, [release("e")], now)) == ""
        assert sent(choose(pace, [release("e"), patch("h")], now)) == "h"
    assert sent(choose(pace, [release("e")], 16.1)) == "e"


def test_new_marks_come_first() -> None:
    order, due = [], [release("a"), release("b"), patch("repaired", Action.REPAIR), patch("hot")]
    pace = WritePace()
    choose(pace, map(release, "123456"), -10, per_minute=6)
    for now in range(0, 60, 10):
        chosen = choose(pace, due, now, per_minute=6)
        order.append(sent(chosen))
        due = [one for one in due if one.node in chosen.delayed]
    assert order == ["hot", "a", "b", "repaired", "", ""]


def test_a_failing_write_is_retried_with_growing_pauses() -> None:
    pace, tried = WritePace(), []
    failure = WriteFailure("a", "403")
    for now in range(0, 300, 2):
        chosen = choose(pace, [patch("a"), patch("b")], now)
        assert "b" in sent(chosen)
        if "a" in sent(chosen):
            tried.append(now)
            pace.refused([failure], [], now)
        else:
            assert chosen.refused == (WriteFailure("a", "403", again=True),)
    assert tried == [0, 6, 16, 36, 76, 136, 196, 256]
