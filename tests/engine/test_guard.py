from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from builders import node, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine import decide
from dynsched.engine.alerting.alerts import Verdicts, no_alerts
from dynsched.engine.alerting.guard import Selection, count_of
from dynsched.engine.model import Node, Verdict
from dynsched.engine.nodes.eligibility import is_eligible
from dynsched.engine.nodes.inventory import take_inventory
from dynsched.rules.fields import Limit
from dynsched.rules.sections import GuardRules

Heat = Mapping[str, float | None]
"""Node name -> how far over its threshold; None for a cool one."""


def verdict(name: str, heat: float | None) -> Verdict:
    return Verdict(
        name,
        hot=heat is not None,
        since=None if heat is None else 0.0,
        severity=heat or 0.0,
        alerts=(),
    )


def choose(heat: Heat, marked: Iterable[str] = (), **guard: Any) -> Selection:
    """A selection of nodes without labels; no limits but those that are named."""
    return selected({name: verdict(name, value) for name, value in heat.items()}, marked, **guard)


def selected(verdicts: Mapping[str, Verdict], marked: Iterable[str], **guard: Any) -> Selection:
    rules = rule_set(guard={"max_marked": "100%", "max_releases": "100%", **guard}).guard
    return select(map(node, verdicts), verdicts, marked, rules)


def select(
    nodes: Iterable[Node], verdicts: Mapping[str, Verdict], marked: Iterable[str], guard: GuardRules
) -> Selection:
    by_name = {each.name: each for each in nodes}
    rules = rule_set().model_copy(update={"guard": guard})
    seen = replace(take_inventory(by_name, rules), marked=frozenset(marked))
    found = [verdicts[name] for name in by_name]
    hot = np.array([each.hot for each in found], np.bool_)
    severity = np.array([each.severity for each in found], np.float64)
    return decide.select(seen, Verdicts(no_alerts(), hot, severity, severity))


def names(text: str) -> frozenset[str]:
    return frozenset(text)


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


@pytest.mark.parametrize(
    ("heat", "before", "guard", "marked", "withheld"),
    [
        ("", "", {}, "", ""),
        ("a- b-", "", {}, "", ""),
        ("a1 b2 c- d-", "", {"max_marked": "50%"}, "ab", ""),  # a share of all, not of the hot ones
        ("a20", "", {"max_marked": "50%"}, "", "a"),
        ("d5 b5 c5 a5", "", {"max_marked": 2}, "ab", "cd"),
        # a marked node keeps its place before one about as hot
        ("z5 a5", "z", {"max_marked": 1}, "z", "a"),
        ("z5 a6", "z", {"max_marked": 1}, "z", "a"),
        # a place is free only when its mark is gone: the release may fail, or come later
        ("z5 a6.1", "z", {"max_marked": 1}, "", "az"),
        ("z5 a6.1", "", {"max_marked": 1}, "a", "z"),
        # nodes that are still hot count for the share of releases, and stay
        ("a- b- c- d- e5 f5 g5 h5", "abcdefgh", {"max_releases": "25%"}, "cdefgh", "cd"),
        # what waits for its release counts under the cap
        ("a- b- x9 y8", "ab", {"max_marked": 2, "max_releases": 1}, "b", "bxy"),
        ("a- b- x9 y8", "b", {"max_marked": 2, "max_releases": 1}, "x", "y"),
        ("a- b- c- x9", "abc", {"max_marked": 1, "max_releases": 1}, "bc", "bcx"),
        # cool nodes go before hot ones over the cap
        ("a1 b2 c- d-", "abcd", {"max_marked": 1, "max_releases": 2}, "ab", ""),
    ],
)
def test_which_nodes_are_marked(heat, before, guard, marked, withheld) -> None:
    """``heat``: tenths over the threshold, ``-`` for a cool node."""
    verdicts = {}
    for name, *rest in heat.split():
        text = "".join(rest)
        verdicts[name] = verdict(name, None if text == "-" else float(text) / 10)
    selection = selected(verdicts, before, **guard)
    assert (selection.marked, selection.withheld.keys()) == (names(marked), names(withheld))


def test_the_cap_counts_in_each_pool_and_releases_over_all() -> None:
    pools: dict[str, Heat] = {
        "gpu": {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4},
        "web": {"e": 9, "f": 8, "g": None, "h": None},
        "": {"i": 5, "j": 6},
    }
    labels = {name: {"pool": pool} for pool, heat in pools.items() for name in heat if pool}
    verdicts = {n: verdict(n, value) for heat in pools.values() for n, value in heat.items()}
    nodes = [node(name, labels=labels.get(name)) for name in verdicts]
    guard = rule_set(guard={"pool_label": "pool", "max_marked": "50%", "max_releases": 1}).guard
    selection = select(nodes, verdicts, "gh", guard)
    assert selection.marked == names("cdhj")
    assert selection.withheld.keys() == names("abefhi")
    assert selection.capped == {"gpu", ""}
    assert select(nodes, verdicts, (), rule_set().guard).capped == {""}


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


LIMITS = st.sampled_from(["0%", "1%", "25%", "50%", "99%", "100%", 0, 1, 2, 5])


Cluster = tuple[list[Node], dict[str, Verdict], frozenset[str], GuardRules]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
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


@steady(300)
@given(clusters())
def test_what_always_holds(cluster: Cluster) -> None:
    nodes, verdicts, before, guard = cluster
    result = select(nodes, verdicts, before, guard)
    # the order of the input does not matter
    backwards = dict(reversed(verdicts.items()))
    assert select(nodes[::-1], backwards, before, guard) == result
    hot = {name for name, found in verdicts.items() if found.hot}
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


@steady(100)
@given(clusters())
def test_it_comes_to_rest_with_the_hottest_marked(cluster: Cluster) -> None:
    nodes, verdicts, marked, guard = cluster
    for _ in range(len(nodes) + 1):
        result = select(nodes, verdicts, marked, guard)
        marked = result.marked
    assert select(nodes, verdicts, marked, guard).marked == marked
    for names_in_pool in by_pool(nodes, guard).values():
        hot = {name for name in names_in_pool if verdicts[name].hot}
        mine = marked & names_in_pool
        assert mine <= hot
        assert len(mine) == min(len(hot), count_of(guard.max_marked, len(names_in_pool)))
        if mine and hot - mine:
            coolest = min(verdicts[name].severity for name in mine)
            assert all(verdicts[name].severity <= coolest + 0.1 + 1e-9 for name in hot - mine)


def test_a_share_is_never_more_than_said_and_never_a_whole_node_less() -> None:
    for share, total in product(range(101), (*range(120), 999, 5000)):
        assert count_of(Limit(share / 100, is_share=True), total) == share * total // 100
