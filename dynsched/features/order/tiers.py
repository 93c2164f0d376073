"""Makes the lists of the order: the preferences that a pod gets.

Nodes whose load is below a line are equally good, and kube-scheduler chooses among them. If few
nodes are above the line, one list says "all but these". Otherwise each pod gets one of several
lists at random. A list has every nth node by rank, in tiers, the coolest first, so that no pod
grows by much.

All pods that are created between two writes of the order see the same order. kube-scheduler spreads
the pods of a ReplicaSet by itself, but not those of a Job: all would go to the same few nodes. So
these pods choose among overflow lists too, which rank the nodes as if the first pods were placed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import Final, NamedTuple

from dynsched.features.placing import FULL, TENTHS

SPREAD: Final = 10.0
"""Percent. The range of loads that weights are scaled to is at least this wide."""
TIERS: Final = 20
"""Maximum tiers in a list. With 10, nodes of different load share a tier."""
FEWEST_TIERS: Final = 5
"""A long list of long names has at least this many tiers. More nodes are worth more than more
tiers."""
MAX_BYTES: Final = 1900
"""Maximum size of a list in a pod, as etcd stores it. With the fields around the list, a pod grows
by at most 2 KiB."""
MAX_NODES: Final = 1024
"""Maximum nodes in all lists of a pool together, because the object is written every few seconds.
The coolest are taken."""
MAX_LENGTH: Final = 24
"""Maximum nodes in a list (but see MISSED): with more, bursts go to the same few nodes."""
FEW_NODES: Final = 15
"""In a pool of at most this size, hot nodes included, spreading replicas is more important than
small differences of load: see `pool_of`."""
MISSED: Final = 0.002
"""In a large cluster, kube-scheduler looks at only a share of the nodes for each pod. If a pod has
room, its list is so long (59 of 5,000 nodes) that at most this share of pods finds none of the
list's nodes among them."""
RISE: Final = 6.0
"""Percent. The number of lists, overflow lists included, is the number of pods that raise the mean
load by this much. With more lists, single pods get worse nodes; with fewer, a burst goes to too few
nodes."""
MAX_LISTS: Final = 60
"""Maximum lists of a pool, overflow lists included, as in the CRD of NodeOrder."""
MAX_POOLS: Final = 1000
MAX_OBJECT: Final = 512 * 1024
"""Maximum bytes of all lists in JSON, as etcd stores them. etcd refuses 1.5 MiB. 5,000 nodes in
pools fit, with names of 63 characters."""
MAX_OVERFLOW: Final = 128 * 1024
"""Maximum bytes of all overflow lists together."""
_BYTES_OF_TIER: Final = 44
"""In etcd (protobuf), without names: weight, key, operator and the lengths of the parts."""
_BYTES_OF_NODE: Final = 2
"""In etcd, in addition to its name."""
_IN_JSON: Final = {"pool": 6, "list": 14, "tier": 26, "node": 3}
"""Bytes in the object's JSON for one of each, without names."""


class PreferenceTier(NamedTuple):
    """Nodes with one weight (1 to 100): ``nodes``, or with ``all_but`` all others."""

    weight: int
    nodes: tuple[str, ...]
    all_but: bool = False


NodeList = tuple[PreferenceTier, ...]
"""The preferences that one pod gets. Empty if all nodes are equally good."""
Lists = tuple[NodeList, ...]
"""The lists of one pool."""


class Ranked(NamedTuple):
    """A node by host name. In tenths of a percent: its load, the load that the next pod adds, and
    what the load counts as in its pool.
    """

    host: str
    load: int
    step: int = 0
    counts_as: int = 0


class Pool(NamedTuple):
    """The nodes of a pool. Loads are in tenths of a percent.

    ``ranked``: the nodes that new pods may go to, the best first. ``avoided``: host names of nodes
    that pods could go to but should not, such as hot ones. ``line``: loads below it count as it.
    ``packs_below``: among loads below it, the highest comes first. ``threshold_of_few``: in a small
    pool, the load of a node at each rule's threshold; else 0. ``has_unnamed``: a node of the pool
    cannot be named, so that "all but" could include a hot one.
    """

    ranked: Sequence[Ranked]
    avoided: Sequence[str] = ()
    line: int = 0
    packs_below: int = 0
    threshold_of_few: int = 0
    has_unnamed: bool = False


def pool_of(
    nodes: Iterable[tuple[str, int, int]],
    avoided: Sequence[str],
    line: int,
    threshold_of_few: int,
    *,
    packs: bool = False,
    has_unnamed: bool = False,
) -> Pool:
    """Rank ``nodes``, each given as host name, load, and the load that the next pod adds.

    In a small pool every node has several pods of each workload. If all were on one node, they
    would end with it. So if ``threshold_of_few`` is not 0, kube-scheduler's spreading decides while
    loads are harmless: the line is at least half of this threshold. A pool that ``packs`` has no
    line.
    """
    packs_below, line = (line, 0) if packs else (0, max(line, threshold_of_few // 2))
    counted = [
        Ranked(host, load, step, max(_packed(load, packs_below), line))
        for host, load, step in nodes
    ]
    ranked = sorted(counted, key=attrgetter("counts_as", "load", "host"))
    return Pool(ranked, avoided, line, packs_below, threshold_of_few, has_unnamed)


def _packed(load: int, packs_below: int) -> int:
    return packs_below - load if load < packs_below else load


def nodes_looked_at(nodes: int) -> int:
    """The number of a cluster's nodes that kube-scheduler looks at for one pod
    (``numFeasibleNodesToFind`` in its source), if ``percentageOfNodesToScore`` is not set.
    """
    return min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))


def lists_that_fit(
    pools: Mapping[str, Pool], nodes: int
) -> tuple[dict[str, Lists], dict[str, Lists]]:
    """The lists and the overflow lists of each pool that the object has room for, larger pools
    first. Pods of the other pools get the lists for pods that choose no pool. ``nodes``: the size
    of the cluster.
    """
    found, more, room = dict[str, Lists](), dict[str, Lists](), MAX_OBJECT
    for pool in sorted(pools, key=lambda pool: (pool != "", -len(pools[pool].ranked), pool)):
        lists = node_lists(pools[pool], nodes)
        size = len(pool) + _IN_JSON["pool"] + sum(map(_size, lists))
        if size <= room and len(found) < MAX_POOLS:
            found[pool] = lists
            room -= size
    each = min(room, MAX_OVERFLOW) / max(1, sum(len(pools[pool].ranked) for pool in found))
    for pool in found:
        room = int(each * len(pools[pool].ranked)) - len(pool) - _IN_JSON["pool"]
        overflow = tuple(_overflow(pools[pool], nodes, room))
        if overflow:
            more[pool] = overflow
    return found, more


def _size(tiers: NodeList) -> int:
    names = [name for tier in tiers for name in tier.nodes]
    of_names = sum(map(len, names)) + len(names) * _IN_JSON["node"]
    return _IN_JSON["list"] + len(tiers) * _IN_JSON["tier"] + of_names


def node_lists(pool: Pool, nodes: int) -> Lists:
    """One list for all pods if few nodes are above the line. Otherwise lists of the coolest nodes,
    with each node in one list. ``nodes``: the size of the cluster.
    """
    short = _all_but_above(pool)
    if short is not None:
        return (short,)
    listed = pool.ranked[:MAX_NODES]
    count = _lists_needed(listed, nodes)
    return tuple(_tiers(listed[at::count], pool.threshold_of_few) for at in range(count))


def _all_but_above(pool: Pool) -> NodeList | None:
    """A list of "all but" the nodes above the line and the avoided ones. It is shorter than a list
    of the nodes below, and also right for nodes that join later. None if no node is below the line,
    if a node cannot be named, or if a pod has no room for the list.
    """
    above = [node for node in pool.ranked if node.counts_as > pool.line]
    if pool.has_unnamed or len(above) == len(pool.ranked):
        return None
    others = (*pool.avoided, *(node.host for node in above))
    if not others:
        return ()
    # The weights depend on the distance from the nodes below the line, which are not named.
    _, *tiers = _tiers([Ranked("", 0, counts_as=pool.line), *above], pool.threshold_of_few)
    found = (PreferenceTier(100, others, all_but=True), *tiers)
    size = sum(len(name) + _BYTES_OF_NODE for tier in found for name in tier.nodes)
    return found if size + len(found) * _BYTES_OF_TIER <= MAX_BYTES else None


def _lists_needed(listed: Sequence[Ranked], nodes: int) -> int:
    seen, longest = nodes_looked_at(nodes), MAX_LENGTH
    if seen < nodes:
        longest = max(longest, math.ceil(math.log(MISSED) / math.log(1 - seen / nodes)))
    names = sorted((node.host for node in listed), key=len, reverse=True)
    for number in range(math.ceil(len(listed) / longest), len(listed)):
        length = math.ceil(len(listed) / number)
        if _most_tiers(names[:length]) >= min(FEWEST_TIERS, length):
            return number
    return len(listed)


def _overflow(pool: Pool, nodes: int, room: int) -> Iterator[NodeList]:
    """The overflow lists, up to ``room`` bytes, in rounds. The lists of a round together have each
    node once. Ranks assume that one pod for each earlier list was placed, each on the node that was
    the coolest then. No nodes count as equal: kube-scheduler does not spread these pods.
    """
    listed = pool.ranked[:MAX_NODES]
    if not listed:
        return
    count = _lists_needed(listed, nodes)
    steps = [max(1, node.step) for node in listed]
    loads = [node.load for node in listed]
    # By load, then by original rank: the next pod goes to the first of the heap.
    heap = [(_packed(load, pool.packs_below), at) for at, load in enumerate(loads)]
    heapq.heapify(heap)
    wanted = RISE * TENTHS * len(listed) / fmean(steps)
    for _ in range(1, min(round(wanted / count), MAX_LISTS // count)):
        for _ in range(count):
            at = heap[0][1]
            loads[at] += steps[at]
            heapq.heapreplace(heap, (_packed(loads[at], pool.packs_below), at))
        ranked = [Ranked(listed[at].host, load, counts_as=load) for load, at in sorted(heap)]
        lists = [_tiers(ranked[first::count], pool.threshold_of_few) for first in range(count)]
        room -= sum(map(_size, lists))
        if room < 0:
            return
        yield from lists


def _most_tiers(names: Sequence[str]) -> int:
    """The maximum number of tiers for which a pod has room in addition to the names."""
    of_names = sum(len(name) + _BYTES_OF_NODE for name in names)
    return min(TIERS, len(names), (MAX_BYTES - of_names) // _BYTES_OF_TIER)


def _tiers(nodes: Sequence[Ranked], threshold_of_few: int) -> NodeList:
    """Divide ``nodes``, which are sorted by rank, into tiers.

    The nodes that count as much as the first one are the first tier. The others are in tiers of
    equal length. A tier's weight is the square of its distance in load to the hottest tier, scaled
    so that the coolest has 100. With equal steps, a far cooler node would have little more weight
    than the next one. kube-scheduler's spreading of a workload's pods, which counts as much as the
    whole order, would then keep pods off larger nodes, which have most of the pods. In a small pool
    the weight is proportional to the distance to the pool's threshold. A load above FULL counts as
    FULL, so that one node does not make all others look equal.
    """
    equal = sum(node.counts_as == nodes[0].counts_as for node in nodes)
    rest = nodes[equal:]
    count = 1 + min(max(1, _most_tiers([node.host for node in nodes]) - 1), len(rest))
    bounds = [len(rest) * tier // (count - 1) for tier in range(count)] if rest else []
    tiers = [nodes[:equal], *(rest[begin:end] for begin, end in pairwise(bounds))]
    loads = [sum(min(node.counts_as, FULL) for node in tier) / len(tier) for tier in tiers]
    apart = max(SPREAD * TENTHS, (threshold_of_few or loads[-1]) - loads[0])
    found, weight = [], 101
    for at, (tier, load) in enumerate(zip(tiers, loads, strict=True)):
        share = max(0.0, 1 - (load - loads[0]) / apart)
        share = share if threshold_of_few else share**2
        weight = max(count - at, min(weight - 1, round(100 * share)))
        found.append(PreferenceTier(weight, tuple(node.host for node in tier)))
    return tuple(found)
