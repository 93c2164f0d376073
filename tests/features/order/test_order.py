"""The lists of the order: which nodes a pod prefers, and how much of it a pod carries."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import EXAMPLE_RULES, NOON, Scene

from dynsched.core.load.expected import NO_PODS
from dynsched.core.load.pods import PodRequestTotals
from dynsched.core.nodes import Node
from dynsched.features.order.ranks import Order, compute_order, is_full
from dynsched.features.order.resource import spec_of
from dynsched.features.order.tiers import (
    FEW_NODES,
    MAX_LENGTH,
    MAX_LISTS,
    MAX_NODES,
    MAX_OBJECT,
    MAX_OVERFLOW,
    MAX_POOLS,
    TIERS,
    Ranked,
    lists_that_fit,
    node_lists,
)
from dynsched.rules.keys import HOSTNAME_LABEL

THRESHOLD = 800


def ranked(count: int, length: int) -> list[Ranked]:
    return [Ranked(f"{number:0{length}d}", number, 60) for number in range(count)]


@given(st.integers(0, 3000), st.integers(4, 63))
def test_each_node_is_in_one_list_the_coolest_in_the_first_tier_of_one(count, length) -> None:
    coolest = ranked(count, length)
    lists = node_lists(coolest, count)
    listed = [name for tiers in lists for tier in tiers for name in tier.nodes]
    names = [node.host for node in coolest[:MAX_NODES]]
    assert sorted(listed) == names
    # A pod of any list prefers one of the coolest: as many of them as there are lists.
    first = {tiers[0].nodes[0] for tiers in lists}
    assert first == set(names[: len(lists)])
    for tiers in lists:
        weights = [tier.weight for tier in tiers]
        assert len(tiers) <= TIERS
        assert weights == sorted(set(weights), reverse=True)
        assert weights[0] == 100
        assert weights[-1] >= 1
        in_list = [name for tier in tiers for name in tier.nodes]
        assert in_list == sorted(in_list)
        assert len(in_list) <= MAX_LENGTH


@given(
    st.lists(st.integers(1, 1100), max_size=12), st.integers(0, 1100), st.sampled_from([4, 44, 63])
)
def test_the_object_has_a_size_that_etcd_takes_and_the_larger_pools_stay(large, small, length):
    sizes = {"": 1000} | {f"large-{n}": size for n, size in enumerate(large)}
    sizes |= dict.fromkeys((f"small-{number:04}" for number in range(small)), 1)
    pools = {pool: ranked(size, length) for pool, size in sizes.items()}
    lists, overflow, left_out = lists_that_fit(pools, sizes | {"": 5000}, THRESHOLD)
    spec = spec_of(Order(lists, overflow, "pool"), 0.0)
    written, of_overflow = (
        len(json.dumps(each, separators=(",", ":"))) for each in (spec, spec["further"])
    )
    assert written <= MAX_OBJECT + 100
    assert of_overflow <= MAX_OVERFLOW + 100
    assert {*lists, *left_out} == set(pools)
    assert overflow.keys() <= lists.keys()
    assert all(len(lists[pool]) + len(overflow[pool]) <= MAX_LISTS for pool in overflow)
    assert len(lists) <= MAX_POOLS
    assert "" in lists
    assert not left_out or written > MAX_OBJECT * 0.8 or len(lists) == MAX_POOLS


def weights(*loads: int, hot: int = 0) -> list[int]:
    """The weights of nodes with these loads (tenths of a percent), with ``hot`` other nodes."""
    nodes = [Ranked(str(number), load) for number, load in enumerate(loads)]
    lists, _, _ = lists_that_fit({"": nodes}, {"": len(nodes) + hot}, THRESHOLD)
    (tiers,) = lists[""]
    assert [tier.nodes for tier in tiers] == [(node.host,) for node in nodes]
    return [tier.weight for tier in tiers]


def test_weights_are_by_load() -> None:
    """Equal nodes have nearly the same weight, and one that is far cooler much more."""
    many = [700] * (FEW_NODES - 2)
    assert weights(200, 450, 600, *many)[:4] == [100, 25, 14, 13]
    assert weights(200, 200, 201, *many)[:4] == [100, 99, 98, 13]
    assert weights(200, 600, *many, 9000)[:2] == [100, 25]
    assert weights(200) == [100]
    assert node_lists([], 4) == ()


def test_where_all_but_few_of_many_nodes_are_hot_the_weights_are_by_load_still() -> None:
    assert weights(300, 350, 400, hot=FEW_NODES) == [100, 25, 1]


def test_few_nodes_that_are_far_below_the_threshold_have_nearly_the_same_weight() -> None:
    assert weights(300, 350, 400) == [100, 99, 98]
    assert weights(200, 400, 600) == [100, 99, 50]
    assert weights(500, 600, 700, 790, 900) == [100, 67, 33, 3, 1]


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), max_size=60))
def test_overflow_lists_are_the_order_when_pods_are_placed(drawn) -> None:
    """Each round is the order after one pod for each list before it, each on the coolest node."""
    nodes = sorted((Ranked(f"n{at}", *each) for at, each in enumerate(drawn)), key=lambda n: n.load)
    lists, overflow, _ = lists_that_fit({"": nodes}, {"": len(nodes)}, THRESHOLD)
    of_round = len(lists[""])
    loads = {node.host: node.load for node in nodes}
    steps = {node.host: max(1, node.step) for node in nodes}
    more = overflow.get("", ())
    rounds = [more[at : at + of_round] for at in range(0, len(more), max(1, of_round))]
    for each in rounds:
        assert len(each) == of_round
        for _ in range(of_round):
            coolest = min(loads, key=loads.__getitem__)
            loads[coolest] += steps[coolest]
        listed = [name for tiers in each for tier in tiers for name in tier.nodes]
        assert sorted(listed) == sorted(loads)
        first = sorted(loads[tiers[0].nodes[0]] for tiers in each)
        assert first == sorted(loads.values())[:of_round]
    if nodes:  # as many lists as pods that raise the mean load by 6 %
        wanted = 60 * len(nodes) ** 2 / sum(steps.values())
        assert abs(max(of_round, min(MAX_LISTS, wanted)) - of_round - len(more)) <= of_round / 2


def test_a_node_that_is_hot_by_any_rule_is_in_no_list_until_it_has_cooled() -> None:
    """Also by a rule that the order does not weigh, and where no node is marked. What
    ``keep_firing_for`` keeps hot has cooled: without it all pods would go to the others.
    """
    kept = [{**each, "keep_firing_for": "2m"} for each in EXAMPLE_RULES["rules"]]
    rules = {**EXAMPLE_RULES, "rules": kept, "mark": "none"}
    nodes = [Node("a"), Node("b"), Node("c", labels={"kubernetes.io/hostname": "host-c"})]
    scene = Scene(rules, nodes)

    def listed(at: float, **memory: float) -> list[tuple[str, ...]]:
        cpu = {"a": 90.0, "b": 10.0, "c": 50.0}
        tick = scene.tick(at, node_cpu=cpu, node_mem_usage={"a": 10.0, "c": 10.0, **memory})
        order = compute_order(tick.evaluation, NO_PODS)
        assert order is not None
        return [tier.nodes for tiers in order.lists[""] for tier in tiers]

    listed(NOON - 60, b=99.0)
    assert listed(NOON, b=99.0) == [("host-c",)]
    assert listed(NOON + 10, b=10.0) == [("b",), ("host-c",)]


def test_a_load_that_cannot_be_is_in_the_middle() -> None:
    rules = [{**each, "full_at": 100} for each in EXAMPLE_RULES["rules"]]
    scene = Scene({**EXAMPLE_RULES, "rules": rules}, map(Node, "abcde"))
    cpu = {"a": -1200.0, "b": 808334905.0, "c": 10.0, "d": 50.0, "e": 70.0}
    order = compute_order(scene.tick(NOON, node_cpu=cpu, node_mem_usage={}).evaluation, NO_PODS)
    assert order is not None
    listed = [name for tiers in order.lists[""] for tier in tiers for name in tier.nodes]
    assert sorted(listed) == ["a", "b", "c", "d", "e"]
    assert (listed[0], listed[-1]) == ("c", "e")
    assert (order.counts["unknown"], sorted(order.loads)) == (2, ["c", "d", "e"])


@pytest.mark.parametrize(
    ("requested", "full"),
    [
        (PodRequestTotals(), False),
        (PodRequestTotals(109, 7.9, 15.8 * 2**30), False),
        (PodRequestTotals(110), True),
        (PodRequestTotals(1, 7.95), True),
        (PodRequestTotals(1, 0.0, 15.9 * 2**30), True),
    ],
)
def test_a_node_is_full_where_one_small_pod_more_has_no_room(requested, full) -> None:
    """By their number too: where 26 of 40 nodes had 110 pods, 13 of the 20 coolest were full."""
    room = {"pods": 110.0, "cpu": 8.0, "memory": 16 * 2.0**30}
    assert is_full(Node("a", allocatable=room), requested) is full
    assert not is_full(Node("a"), requested)  # it does not say what it has


def test_a_node_that_no_preference_can_name_is_in_no_list() -> None:
    """kube-scheduler never places a pod that prefers what no label value can be."""
    labels = {"a": "a", "b": "other", "c": "c", "twin": "c", "empty": "", "long": "x" * 64}
    nodes = [Node(name, labels={HOSTNAME_LABEL: host}) for name, host in labels.items()]
    scene = Scene(EXAMPLE_RULES, nodes)
    scene.nodes |= {name: Node(name) for name in ("n" * 70, "without")}
    cpu = dict.fromkeys(scene.nodes, 10.0) | {"b": 20.0}
    order = compute_order(scene.tick(NOON, node_cpu=cpu, node_mem_usage={}).evaluation, NO_PODS)
    assert order is not None
    (tiers,) = order.lists[""]
    assert [tier.nodes for tier in tiers] == [("a",), ("other",)]
    assert order.loads == {"a": 100, "other": 200}
    none = {"hot": 0, "closed": 0, "full": 0}
    assert order.counts == {"ranked": 2, "unknown": 0, **none, "unnamed": 6}
