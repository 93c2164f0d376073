from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from builders import node, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.guard import Selection, count_of, is_eligible, select
from dynsched.core.model import Node, Verdict
from dynsched.core.rule_fields import Limit
from dynsched.core.sections import GuardRules

Heat = Mapping[str, float | None]
"""Node name -> how far over its threshold; None for a cool one."""


def verdict(name: str, heat: float | None) -> Verdict:
    return Verdict(
        name,
        pressured=heat is not None,
        since=None if heat is None else 0.0,
        severity=heat or 0.0,
        alerts=(),
    )


def choose(heat: Heat, marked: Iterable[str] = (), **guard: Any) -> Selection:
    """A selection of nodes without labels; no limits but those that are named."""
    rules = rule_set(guard={"max_marked": "100%", "max_releases": "100%", **guard}).guard
    return select(
        [node(name) for name in heat],
        {name: verdict(name, value) for name, value in heat.items()},
        frozenset(marked),
        rules,
    )


def names(text: str) -> frozenset[str]:
    return frozenset(text)


# Eligible nodes

MASTER = {"node-role.kubernetes.io/master": ""}
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize(
    ("labels", "section", "eligible"),
    [
        ({}, {}, True),
        ({"node-role.kubernetes.io/worker": ""}, {}, True),
        (CONTROL_PLANE, {}, False),
        (MASTER, {}, False),
        ({"node-role.kubernetes.io/master": "true"}, {}, False),
        (MASTER, {"include_control_plane": True}, True),
        (CONTROL_PLANE, {"include_control_plane": True}, True),
        ({"dynsched.io/ignore": "true"}, {}, False),
        ({"dynsched.io/ignore": "false"}, {}, True),
        ({"dynsched.io/ignore": ""}, {}, True),
        ({"dynsched.io/ignore": "true", **MASTER}, {"include_control_plane": True}, False),
        ({"pool": "batch"}, {"selector": "pool=batch"}, True),
        ({"pool": "web"}, {"selector": "pool=batch"}, False),
        ({}, {"selector": "pool=batch"}, False),
        ({}, {"selector": "pool!=web"}, True),
        ({"pool": "batch", **MASTER}, {"selector": "pool=batch"}, False),
        ({"pool": "batch", "dynsched.io/ignore": "true"}, {"selector": "pool=batch"}, False),
    ],
)
def test_eligible(labels: dict[str, str], section: dict[str, Any], *, eligible: bool) -> None:
    assert is_eligible(node(labels=labels), rule_set(nodes=section).nodes) is eligible


# The cap

TEN_HOT = {name: 1 + number / 10 for number, name in enumerate("abcdefghij")}  # j is the hottest


@pytest.mark.parametrize(
    ("max_marked", "marked"),
    [
        ("50%", "fghij"),
        ("30%", "hij"),
        ("29%", "ij"),
        ("100%", "abcdefghij"),
        ("0%", ""),
        (0, ""),
        (1, "j"),
        (3, "hij"),
        (99, "abcdefghij"),
    ],
)
def test_the_hottest_are_marked_up_to_the_cap(max_marked: str | int, marked: str) -> None:
    selection = choose(TEN_HOT, max_marked=max_marked)
    assert selection.marked == names(marked)
    rest = names("abcdefghij") - names(marked)
    reason = f"not marked: guard.max_marked is {max_marked}"
    assert selection.withheld == dict.fromkeys(rest, reason)
    assert selection.capped == (frozenset([""]) if rest else frozenset())


def test_the_cap_is_a_share_of_the_eligible_nodes_not_of_the_hot_ones() -> None:
    heat = {"a": 0.1, "b": 0.2, "c": None, "d": None}
    assert choose(heat, max_marked="50%") == Selection(names("ab"), {}, frozenset())


def test_cool_nodes_are_never_marked() -> None:
    assert choose({"a": None, "b": None}) == Selection(frozenset(), {}, frozenset())


def test_no_nodes() -> None:
    assert choose({}) == Selection(frozenset(), {}, frozenset())


def test_a_single_node_under_half_is_never_marked_and_says_why() -> None:
    selection = choose({"a": 2.0}, max_marked="50%")
    assert selection.marked == frozenset()
    assert selection.withheld == {"a": "not marked: guard.max_marked is 50%"}


def test_equally_hot_nodes_are_taken_by_name() -> None:
    assert choose(dict.fromkeys("dbca", 0.5), max_marked=2).marked == names("ab")


@pytest.mark.parametrize(
    ("newcomer", "marked"),
    [
        pytest.param(0.5, "z", id="equally hot"),
        pytest.param(0.55, "z", id="a little hotter"),
        pytest.param(0.6, "z", id="hotter by the bonus exactly"),
        pytest.param(0.61, "a", id="clearly hotter"),
    ],
)
def test_a_marked_node_keeps_its_place_before_one_about_as_hot(
    newcomer: float, marked: str
) -> None:
    heat = {"z": 0.5, "a": newcomer}
    before = choose(heat, marked="z", max_marked=1).marked
    assert choose(heat, marked=before, max_marked=1).marked == names(marked)


def test_a_place_is_free_only_when_its_mark_is_gone() -> None:
    """The release may fail, or come after the new mark: there would be one too many."""
    heat = {"z": 0.1, "a": 0.9}
    selection = choose(heat, marked="z", max_marked=1)
    assert selection.marked == frozenset()
    assert selection.withheld == dict.fromkeys("az", "not marked: guard.max_marked is 1")
    assert selection.capped == frozenset([""])
    assert choose(heat, marked="", max_marked=1).marked == names("a")


# Pools


def in_pools(pools: Mapping[str, Heat], marked: Iterable[str] = (), **guard: Any) -> Selection:
    nodes = [
        node(name, labels={"pool": pool} if pool else {})
        for pool, heat in pools.items()
        for name in heat
    ]
    verdicts = {
        name: verdict(name, value) for heat in pools.values() for name, value in heat.items()
    }
    rules = rule_set(guard={"max_releases": "100%", "pool_label": "pool", **guard}).guard
    return select(nodes, verdicts, frozenset(marked), rules)


def test_the_cap_counts_in_each_pool() -> None:
    selection = in_pools(
        {
            "gpu": {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4},
            "web": {"e": 9, "f": 8, "g": None, "h": None},
            "": {"i": 5, "j": 6},
        },
        max_marked="50%",
    )
    assert selection.marked == names("cdefj")
    assert selection.withheld.keys() == names("abi")
    assert selection.capped == {"gpu", ""}


def test_without_a_pool_label_all_nodes_are_one_pool() -> None:
    selection = in_pools(
        {"gpu": {"a": 0.1, "b": 0.2}, "web": {"c": 9, "d": 8}}, max_marked="50%", pool_label=None
    )
    assert selection.marked == names("cd")
    assert selection.capped == {""}


def test_releases_are_counted_over_all_pools() -> None:
    pools = {"x": {"a": None, "b": None}, "y": {"c": None, "d": None}}
    assert len(in_pools(pools, marked="abcd", max_releases=1).marked) == 3


# Releases

EIGHT_COOL: dict[str, float | None] = dict.fromkeys("abcdefgh")


@pytest.mark.parametrize(
    ("max_releases", "ticks"),
    [
        ("25%", "cdefgh defgh efgh fgh gh h -"),
        ("50%", "efgh gh h -"),
        ("100%", "-"),
        (3, "defgh gh -"),
        ("1%", "bcdefgh cdefgh defgh"),
        ("0%", "bcdefgh cdefgh defgh"),
        (0, "bcdefgh cdefgh defgh"),
        (99, "-"),
    ],
)
def test_cooled_nodes_do_not_return_as_one_herd(max_releases: str | int, ticks: str) -> None:
    marked = names("abcdefgh")
    for expected in ticks.replace("-", "").split(" "):
        selection = choose(EIGHT_COOL, marked=marked, max_releases=max_releases)
        assert selection.marked == names(expected)
        reason = f"release delayed: guard.max_releases is {max_releases}"
        assert selection.withheld == dict.fromkeys(expected, reason)
        assert selection.capped == frozenset()
        marked = selection.marked


def test_nodes_that_are_still_hot_count_for_the_share_and_stay() -> None:
    heat = {**dict.fromkeys("abcd"), **dict.fromkeys("efgh", 0.5)}
    selection = choose(heat, marked="abcdefgh", max_releases="25%")
    assert selection.marked == names("cdefgh")
    assert selection.withheld.keys() == names("cd")


def test_what_waits_for_its_release_counts_under_the_cap() -> None:
    heat = {"a": None, "b": None, "x": 0.9, "y": 0.8}
    selection = choose(heat, marked="ab", max_marked=2, max_releases=1)
    assert selection.marked == names("b")
    assert selection.withheld == {
        "b": "release delayed: guard.max_releases is 1",
        "x": "not marked: guard.max_marked is 2",
        "y": "not marked: guard.max_marked is 2",
    }
    assert selection.capped == frozenset()  # there will be room: the cluster is not hot as a whole
    assert choose(heat, marked="b", max_marked=2, max_releases=1).marked == names("x")


def test_a_lowered_cap_releases_the_coolest_first_and_step_by_step() -> None:
    marked = names("abcdefghij")
    seen = []
    for _ in range(4):
        marked = choose(TEN_HOT, marked=marked, max_marked=4, max_releases=2).marked
        seen.append("".join(sorted(marked)))
    assert seen == ["cdefghij", "efghij", "ghij", "ghij"]


def test_cool_nodes_go_before_hot_ones_over_the_cap() -> None:
    heat = {"a": 0.1, "b": 0.2, "c": None, "d": None}
    assert choose(heat, marked="abcd", max_marked=1, max_releases=2).marked == names("ab")


def test_nothing_is_added_while_more_than_the_cap_are_marked() -> None:
    heat = {"a": None, "b": None, "c": None, "x": 9}
    assert choose(heat, marked="abc", max_marked=1, max_releases=1).marked == names("bc")


# Properties

LIMITS = st.sampled_from(["0%", "1%", "25%", "50%", "99%", "100%", 0, 1, 2, 5])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], dict[str, Verdict], frozenset[str], GuardRules]:
    size = draw(st.integers(0, 12))
    pool = st.sampled_from(["", "x", "y"])
    heat = st.none() | st.sampled_from([0.0, 0.1, 0.15, 0.2, 0.5]) | st.floats(0, 5)
    nodes, verdicts, marked = [], {}, set()
    for number in range(size):
        name, label = f"n{number}", draw(pool)
        nodes.append(node(name, labels={"pool": label} if label else {}))
        verdicts[name] = verdict(name, draw(heat))
        if draw(st.booleans()):
            marked.add(name)
    guard = {
        "max_marked": draw(LIMITS),
        "max_releases": draw(LIMITS),
        "pool_label": draw(st.none() | st.just("pool")),
    }
    return nodes, verdicts, frozenset(marked), rule_set(guard=guard).guard


def by_pool(nodes: Iterable[Node], guard: GuardRules) -> dict[str, set[str]]:
    pools: dict[str, set[str]] = {}
    for each in nodes:
        pool = each.labels.get("pool", "") if guard.pool_label else ""
        pools.setdefault(pool, set()).add(each.name)
    return pools


@steady(600)
@given(clusters())
def test_what_always_holds(
    cluster: tuple[list[Node], dict[str, Verdict], frozenset[str], GuardRules],
) -> None:
    nodes, verdicts, before, guard = cluster
    result = select(nodes, verdicts, before, guard)
    hot = {name for name, found in verdicts.items() if found.pressured}
    # only known nodes; only hot ones are added; only cool ones wait; only hot ones are refused
    assert result.marked <= verdicts.keys()
    assert result.marked - before <= hot
    assert result.withheld.keys() == (result.marked - hot) | (hot - result.marked)
    # few leave at once, and one always may
    gone = before - result.marked
    allowed = max(1, count_of(guard.max_releases, len(before)))
    assert len(gone) <= allowed
    if before - hot:
        assert gone
    # the cap
    for pool, names_in_it in by_pool(nodes, guard).items():
        cap = count_of(guard.max_marked, len(names_in_it))
        now, then = result.marked & names_in_it, before & names_in_it
        assert len(now) <= max(cap, len(then))
        if now - then:
            assert len(now) <= cap
            assert len(now | then) <= cap  # also when none of the releases comes through
        assert (pool in result.capped) == (len(hot & names_in_it) > cap)
        # no free place stays empty while a hot node wants it
        if (hot - result.marked - before) & names_in_it:
            assert len(now | then) >= cap


@steady(200)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    cluster: tuple[list[Node], dict[str, Verdict], frozenset[str], GuardRules],
    chance: random.Random,
) -> None:
    nodes, verdicts, before, guard = cluster
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    reordered = {each.name: verdicts[each.name] for each in shuffled}
    assert select(shuffled, reordered, sorted(before), guard) == select(
        nodes, verdicts, before, guard
    )


@steady(200)
@given(clusters())
def test_it_comes_to_rest_with_the_hottest_marked(
    cluster: tuple[list[Node], dict[str, Verdict], frozenset[str], GuardRules],
) -> None:
    nodes, verdicts, marked, guard = cluster
    for _ in range(len(nodes) + 1):
        result = select(nodes, verdicts, marked, guard)
        marked = result.marked
    assert select(nodes, verdicts, marked, guard).marked == marked
    for names_in_pool in by_pool(nodes, guard).values():
        hot = {name for name in names_in_pool if verdicts[name].pressured}
        mine = marked & names_in_pool
        assert mine <= hot
        assert len(mine) == min(len(hot), count_of(guard.max_marked, len(names_in_pool)))
        if mine and hot - mine:
            coolest = min(verdicts[name].severity for name in mine)
            assert all(verdicts[name].severity <= coolest + 0.1 + 1e-9 for name in hot - mine)


@pytest.mark.parametrize(
    ("limit", "total", "number"),
    [
        (Limit(0.5, is_share=True), 10, 5),
        (Limit(0.5, is_share=True), 3, 1),
        (Limit(0.5, is_share=True), 1, 0),
        (Limit(0.29, is_share=True), 100, 29),  # in floats 28.999999999999996
        (Limit(0.07, is_share=True), 100, 7),
        (Limit(1, is_share=True), 7, 7),
        (Limit(0, is_share=True), 7, 0),
        (Limit(3), 10, 3),
        (Limit(3), 2, 2),
        (Limit(0), 5, 0),
        (Limit(10**400), 5, 5),
    ],
)
def test_limits(limit: Limit, total: int, number: int) -> None:
    assert count_of(limit, total) == number


@steady(300)
@given(st.integers(0, 100), st.integers(0, 5000))
def test_a_share_is_never_more_than_said_and_never_a_whole_node_less(
    share: int, total: int
) -> None:
    number = count_of(Limit(share / 100, is_share=True), total)
    assert number == share * total // 100
