"""The lists of the order: which nodes a pod prefers, and their size."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import EXAMPLE_RULES, NOON, Scene

from dynsched.core.load.expected import NO_PODS
from dynsched.core.load.pods import PodRequestTotals
from dynsched.core.nodes import Node
from dynsched.features.order.ranks import Order, compute_order, is_full
from dynsched.features.order.resource import spec_of
from dynsched.features.order.status import nodes_of
from dynsched.features.order.tiers import (
    MAX_BYTES,
    MAX_LENGTH,
    MAX_LISTS,
    MAX_NODES,
    MAX_OBJECT,
    MAX_OVERFLOW,
    MAX_POOLS,
    TIERS,
    NodeList,
    Pool,
    PreferenceTier,
    Ranked,
    lists_that_fit,
    node_lists,
    pool_of,
)
from dynsched.features.placing import equal_line
from dynsched.rules.keys import HOSTNAME_LABEL

LINE = 500


def order_of(scene: Scene, cpu: Mapping[str, float], at: float = NOON, **memory: float) -> Order:
    """The order after a tick with these loads."""
    tick = scene.tick(at, node_cpu=cpu, node_mem_usage=memory)
    found = compute_order(tick.evaluation, NO_PODS)
    assert found is not None
    return found


def ranked(count: int, length: int) -> list[Ranked]:
    return [Ranked(f"{n:0{length}d}", LINE + 1 + n, 60, LINE + 1 + n) for n in range(count)]


@given(st.integers(0, 3000), st.integers(4, 63))
def test_each_node_is_in_one_list_and_the_coolest_are_in_first_tiers(count, length) -> None:
    """If no node is below the line."""
    coolest = ranked(count, length)
    lists = node_lists(Pool(coolest, line=LINE), count)
    listed = [name for tiers in lists for tier in tiers for name in tier.nodes]
    names = [node.host for node in coolest[:MAX_NODES]]
    assert sorted(listed) == names
    # Each list prefers a different one of the coolest nodes.
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


def weight_of(tiers: NodeList, node: str) -> int:
    """The sum of weights that kube-scheduler's NodeAffinity gives a node."""
    return sum(tier.weight for tier in tiers if (node in tier.nodes) != tier.all_but)


@given(
    below=st.integers(0, 2000),
    above=st.lists(st.integers(LINE + 1, 1200), max_size=80),
    hot=st.integers(0, 60),
    length=st.integers(4, 63),
)
def test_nodes_below_the_line_are_equal_and_the_others_come_after_them(
    below, above, hot, length
) -> None:
    cool = [Ranked(f"c{n:0{length - 1}d}", n % LINE, 0, LINE) for n in range(below)]
    warm = [Ranked(f"w{n:0{length - 1}d}", at, 0, at) for n, at in enumerate(sorted(above))]
    hot_names = [f"h{n:0{length - 1}d}" for n in range(hot)]
    lists = node_lists(Pool([*cool, *warm], hot_names, LINE), below + len(above) + hot)
    if below and not above and not hot:
        assert lists == ((),)  # no preferences: all nodes are equally good
        return
    for tiers in lists:
        named = sum(len(name) for tier in tiers for name in tier.nodes)
        assert named + 40 * len(tiers) <= MAX_BYTES
        assert not any(weight_of(tiers, name) for name in hot_names)
        of_cool = {weight_of(tiers, node.host) for node in cool} - {0}
        assert of_cool <= {100}
        of_warm = [weight for node in warm if (weight := weight_of(tiers, node.host))]
        assert of_warm == sorted(of_warm, reverse=True)
        if any(tier.all_but for tier in tiers):
            assert len(lists) == 1
            assert of_cool == {100}
            assert weight_of(tiers, "joined-later") == 100
            assert len(of_warm) == len(warm)
            assert max(of_warm, default=0) < 100


@given(
    st.lists(st.integers(1, 1100), max_size=12), st.integers(0, 1100), st.sampled_from([4, 44, 63])
)
def test_the_object_fits_into_etcd_and_drops_the_smaller_pools_first(large, small, length):
    sizes = {"": 1000} | {f"large-{n}": size for n, size in enumerate(large)}
    sizes |= dict.fromkeys((f"small-{number:04}" for number in range(small)), 1)
    pools = {pool: Pool(ranked(size, length)) for pool, size in sizes.items()}
    lists, overflow = lists_that_fit(pools, 5000)
    spec = spec_of(Order(lists, overflow, "pool"), 0.0)
    written, of_overflow = (
        len(json.dumps(each, separators=(",", ":"))) for each in (spec, spec["further"])
    )
    assert written <= MAX_OBJECT + 100
    assert of_overflow <= MAX_OVERFLOW + 100
    assert lists.keys() <= pools.keys()
    assert overflow.keys() <= lists.keys()
    assert all(len(lists[pool]) + len(overflow[pool]) <= MAX_LISTS for pool in overflow)
    assert len(lists) <= MAX_POOLS
    assert "" in lists
    assert lists.keys() == pools.keys() or written > MAX_OBJECT * 0.8 or len(lists) == MAX_POOLS


def test_only_nodes_in_a_list_are_shown() -> None:
    """There are more nodes above the line than a pod has room for, and more below it than fit into
    the object.
    """
    nodes = [Node(f"n{number:04}") for number in range(MAX_NODES + 600)]
    order_of_cpu = {"score": {"node-cpu": 1}, "equal_below": 50}
    scene = Scene({**EXAMPLE_RULES, "order": order_of_cpu}, nodes)
    cpu = {node.name: 10.0 if at < MAX_NODES + 40 else 79.0 for at, node in enumerate(nodes)}
    order = order_of(scene, cpu)
    listed = {name for tiers in order.lists[""] for tier in tiers for name in tier.nodes}
    assert {each.node for each in nodes_of(order, "")} == listed
    assert len(listed) == MAX_NODES


def weights(*loads: int) -> list[int]:
    """The weights of nodes with these loads (tenths of a percent), all above the line."""
    nodes = [Ranked(str(number), load, 0, load) for number, load in enumerate(loads)]
    (tiers,) = node_lists(Pool(nodes), len(nodes))
    return [weight_of(tiers, node.host) for node in nodes]


def test_weights_depend_on_load() -> None:
    """Equal nodes have equal weights, and a far cooler node has a much higher one."""
    assert weights(200, 450, 600, 700) == [100, 25, 4, 1]
    assert weights(200, 200, 201, 700) == [100, 100, 99, 1]
    assert weights(200, 600, 700, 9000) == [100, 25, 14, 1]
    assert weights(200) == [100]
    assert node_lists(Pool([]), 4) == ()


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), max_size=60))
def test_overflow_lists_have_the_ranks_after_the_first_pods_are_placed(drawn) -> None:
    """Each round of lists has the ranks after one pod for each earlier list was placed, each on the
    node that was the coolest then.
    """
    nodes = [Ranked(f"n{at}", load, step, load) for at, (load, step) in enumerate(sorted(drawn))]
    _, overflow = lists_that_fit({"": Pool(nodes)}, len(nodes))
    of_round = len(node_lists(Pool([node._replace(counts_as=1) for node in nodes]), len(nodes)))
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
    if nodes:  # one pod for each list raises the mean load by 6 %
        wanted = 60 * len(nodes) ** 2 / sum(steps.values())
        assert abs(max(of_round, min(MAX_LISTS, wanted)) - of_round - len(more)) <= of_round / 2


def test_a_node_that_is_hot_according_to_any_rule_is_in_no_list_until_it_has_cooled() -> None:
    """The rule may have no weight in the order, and ``mark`` may be none. A node that only
    ``keep_firing_for`` keeps hot has cooled. Otherwise all pods would go to the remaining nodes.
    """
    kept = [{**each, "keep_firing_for": "2m"} for each in EXAMPLE_RULES["rules"]]
    rules = {**EXAMPLE_RULES, "rules": kept, "mark": "none"}
    nodes = [Node("a"), Node("b"), Node("c", labels={"kubernetes.io/hostname": "host-c"})]
    scene = Scene(rules, nodes)

    def preferred(at: float, **memory: float) -> list[str]:
        cpu = {"a": 90.0, "b": 10.0, "c": 50.0}
        (tiers,) = order_of(scene, cpu, at, **{"a": 10.0, "c": 10.0, **memory}).lists[""]
        return [name for name in ("a", "b", "host-c") if weight_of(tiers, name)]

    preferred(NOON - 60, b=99.0)
    assert preferred(NOON, b=99.0) == ["host-c"]
    assert preferred(NOON + 10, b=10.0) == ["b", "host-c"]


def test_a_node_with_an_impossible_load_is_in_the_middle() -> None:
    rules = [{**each, "full_at": 100} for each in EXAMPLE_RULES["rules"]]
    scene = Scene({**EXAMPLE_RULES, "rules": rules}, map(Node, "abcde"))
    cpu = {"a": -1200.0, "b": 808334905.0, "c": 10.0, "d": 50.0, "e": 70.0}
    order = order_of(scene, cpu)
    (tiers,) = order.lists[""]
    weights = [weight_of(tiers, name) for name in "abcde"]
    assert weights == [75, 74, 100, 73, 25]
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
def test_a_node_is_full_if_one_more_small_pod_has_no_room(requested, full) -> None:
    """The number of pods counts too. When 26 of 40 nodes had 110 pods, 13 of the 20 coolest were
    full.
    """
    room = {"pods": 110.0, "cpu": 8.0, "memory": 16 * 2.0**30}
    assert is_full(Node("a", allocatable=room), requested) is full
    assert not is_full(Node("a"), requested)  # its capacity is unknown


def test_a_node_that_no_preference_can_name_is_in_no_list() -> None:
    """kube-scheduler never places a pod whose preference contains an invalid label value."""
    labels = {"a": "a", "b": "other", "c": "c", "twin": "c", "empty": "", "long": "x" * 64}
    nodes = [Node(name, labels={HOSTNAME_LABEL: host}) for name, host in labels.items()]
    scene = Scene(EXAMPLE_RULES, nodes)
    scene.nodes |= {name: Node(name) for name in ("n" * 70, "without")}
    cpu = dict.fromkeys(scene.nodes, 60.0) | {"b": 70.0}
    order = order_of(scene, cpu)
    (tiers,) = order.lists[""]
    assert [tier.nodes for tier in tiers] == [("a",), ("other",)]
    assert order.loads == {"a": 600, "other": 700}
    none = {"hot": 0, "closed": 0, "full": 0}
    assert order.counts == {"ranked": 2, "unknown": 0, **none, "unnamed": 6}


def test_the_line_is_lower_if_nodes_are_warm_and_applies_to_every_rule() -> None:
    assert [equal_line(50, 10 * load) for load in (10, 50, 60, 80, 100)] == [
        *(500, 500, 400, 200),
        0,
    ]
    assert equal_line(0, 100) == 0
    score = {"node-cpu": 1, "node-mem-usage": 1}
    rules = {**EXAMPLE_RULES, "order": {"score": score, "equal_below": 50}}
    scene = Scene(rules, map(Node, "abc"))
    cpu, memory = {"a": 20.0, "b": 10.0, "c": 45.0}, {"a": 75.0, "b": 10.0, "c": 45.0}
    order = order_of(scene, cpu, **memory)
    assert order.lists[""] == (
        (PreferenceTier(100, ("a",), all_but=True), PreferenceTier(62, ("a",))),
    )
    assert [(each.node, each.equal) for each in nodes_of(order, "")] == [
        *(("b", True), ("c", True)),
        ("a", False),
    ]
    # A node that cannot be named could be hot, so the cool nodes are named instead.
    scene.nodes["d"] = Node("d", labels={})
    order = order_of(scene, cpu | {"d": 5.0}, NOON + 10, **memory)
    assert [tier.nodes for tiers in order.lists[""] for tier in tiers] == [("b", "c"), ("a",)]


def test_with_pack_the_most_loaded_nodes_below_the_line_come_first() -> None:
    rules = {**EXAMPLE_RULES, "order": {"score": {"node-cpu": 1}, "equal_below": 50, "pack": True}}
    scene = Scene(rules, map(Node, "abcd"))
    cpu = {"a": 5.0, "b": 30.0, "c": 48.0, "d": 65.0}
    order = order_of(scene, cpu, **cpu)
    assert [each.node for each in nodes_of(order, "")] == ["c", "b", "a", "d"]
    # Pods that kube-scheduler does not spread fill these nodes one after the other.
    full = pool_of([("c", 480, 50), ("b", 300, 50), ("e", 650, 50)], (), 500, 0, packs=True)
    _, overflow = lists_that_fit({"": full}, 3)
    assert [tiers[0].nodes for tiers in overflow[""]][:2] == [("b",), ("b",)]


def taint(text: str) -> dict[str, str]:
    """Parse ``key=value:effect``; the value may be missing."""
    key_and_value, _, effect = text.rpartition(":")
    key, _, value = key_and_value.partition("=")
    return {"key": key, "value": value, "effect": effect}


KARPENTER = "karpenter.sh/disrupted:NoSchedule"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler=1795000000:PreferNoSchedule"
GPU = "nvidia.com/gpu=present:NoSchedule"


@pytest.mark.parametrize(
    ("taints", "listed", "for_all"),
    [
        ({}, "abc", "abc"),
        *(
            ({"a": [closing]}, "bc", "bc")
            for closing in (
                *(KARPENTER, CANDIDATE, "ToBeDeletedByClusterAutoscaler=1795000000:NoSchedule"),
                *("ebs.csi.aws.com/agent-not-ready:NoExecute", "example.com/starts:NoSchedule"),
                *(f"node.cilium.io/agent-not-ready={effect}" for effect in (":NoExecute", ":")),
                *("node.kubernetes.io/unschedulable:NoSchedule", GPU),
            )
        ),
        ({"a": ["dynsched.io/pressure=true:PreferNoSchedule"]}, "abc", "abc"),
        # Pods of the pool tolerate the pool's own taint, also if one node lacks it.
        ({"a": [GPU], "b": [GPU], "c": [GPU]}, "abc", ""),
        ({"b": [GPU], "c": [GPU]}, "abc", "a"),
        ({"a": [GPU, "example.com/starts:NoExecute"], "b": [GPU], "c": [GPU]}, "bc", ""),
        # All nodes of a pool are about to be removed.
        ({"a": [KARPENTER], "b": [KARPENTER], "c": [KARPENTER]}, "", ""),
        ({"a": [CANDIDATE], "b": [CANDIDATE], "c": [CANDIDATE]}, "", ""),
    ],
)
@pytest.mark.parametrize("equal_below", [0, 50])
def test_a_node_that_is_closed_to_new_pods_is_in_no_list(
    taints, listed, for_all, equal_below
) -> None:
    """``d`` and ``e`` are in no pool. With ``equal_below`` a list says "all but"."""
    rules = EXAMPLE_RULES | {
        "guard": {"pool_label": "pool"},
        "order": {"score": {"node-cpu": 1}, "equal_below": equal_below},
    }
    nodes = [
        Node(name, labels={"pool": "p"}, taints=tuple(map(taint, taints.get(name, ()))))
        for name in "abc"
    ]
    scene = Scene(rules, [*nodes, Node("d"), Node("e")])
    cpu = {"a": 5.0, "b": 10.0, "c": 70.0, "d": 20.0, "e": 75.0}
    order = order_of(scene, cpu)
    for pool, want in ("p", listed), ("", for_all + "de"):
        tiers = order.lists[pool][0] if pool in order.lists else ()
        open_to = want if pool else want + "".join(set("abc") - taints.keys())
        assert {name for name in open_to if weight_of(tiers, name)} == set(want)
    # A soft taint does not keep pods off the node, so "all but" has to name it.
    soft = {name for name, of_node in taints.items() if CANDIDATE in of_node}
    for lists in order.lists.values():
        assert not any(weight_of(lists[0], name) for name in soft)
    assert order.counts["closed"] == 3 - len(listed)
