"""The lists of the order: the preferences that a pod gets.

A pod gets one list by chance: nodes in tiers, the coolest first. Where one list cannot have all
nodes there are several, each with every nth node by rank, so that no pod grows by much.

All pods that are created between two writes of the order see the same one. kube-scheduler spreads
the pods of a ReplicaSet by itself, but not those of a Job: all would go to the same few nodes. They
get overflow lists, with the ranks as they will be when the first pods are placed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from dynsched.features.placing import FULL, TENTHS

SPREAD: Final = 10.0
"""Percent: loads that differ by less count as if they were this far apart."""
TIERS: Final = 20
"""In a list at most. With 10, nodes of unlike load share a tier."""
FEWEST_TIERS: Final = 5
"""In a long list of long names at least: more nodes are worth more than more tiers."""
MAX_BYTES: Final = 1900
"""Size of a list in a pod, as etcd stores it; with its frame a pod grows by at most 2 KiB."""
MAX_NODES: Final = 1024
"""In all lists of a pool together, the coolest: the object is written every few seconds."""
MAX_LENGTH: Final = 24
"""Nodes in a list: with more, bursts go to the same few nodes."""
FEW_NODES: Final = 15
"""In a pool of at most this size, hot nodes included, the scheduler's spread of replicas counts
more than small differences of load: see `_tiers`."""
MISSED: Final = 0.002
"""kube-scheduler looks at a share of many nodes for each pod. Where a pod has room, its list is so
long that no more than this share of pods finds none of its nodes there: 59 of 5,000."""
RISE: Final = 6.0
"""Percent by which one pod for each list, overflow lists included, raises the mean load. With more
lists single pods get worse nodes; with fewer a burst goes to too few nodes."""
MAX_LISTS: Final = 60
"""In a pool, overflow lists included: the bound in the definition of NodeOrder."""
MAX_POOLS: Final = 1000
MAX_OBJECT: Final = 512 * 1024
"""Bytes of all lists in JSON, as etcd stores them: it refuses 1.5 MiB. 5,000 nodes in pools fit,
with names of 63 characters."""
MAX_OVERFLOW: Final = 128 * 1024
"""Bytes of all overflow lists together."""
_BYTES_OF_TIER: Final = 44
"""In etcd (protobuf): weight, key, operator and the lengths of the parts."""
_BYTES_OF_NODE: Final = 2
"""In addition to its name."""
_IN_JSON: Final = {"pool": 6, "list": 14, "tier": 26, "node": 3}
"""Bytes of the object for one of each, without names."""


class PreferenceTier(NamedTuple):
    """Nodes that are preferred alike; ``weight`` 1 to 100."""

    weight: int
    nodes: tuple[str, ...]


NodeList = tuple[PreferenceTier, ...]
"""The preferences that one pod gets."""
Lists = tuple[NodeList, ...]
"""The lists of one pool."""


class Ranked(NamedTuple):
    """The host name of a node, its load, and what the next pod adds to it (tenths of a percent)."""

    host: str
    load: int
    step: int = 0


def nodes_looked_at(nodes: int) -> int:
    """How many of a cluster's nodes kube-scheduler looks at for one pod (``numFeasibleNodesToFind``
    in its source, where ``percentageOfNodesToScore`` is not set).
    """
    return min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))


def lists_that_fit(
    pools: Mapping[str, Sequence[Ranked]], sizes: Mapping[str, int], threshold: int
) -> tuple[dict[str, Lists], dict[str, Lists], tuple[str, ...]]:
    """The lists of each pool's coolest nodes, the coolest first; the overflow lists; and the pools
    of the fewest nodes, for which the object has no room: their pods get the lists for pods that
    choose no pool. ``sizes``: the number of nodes of each pool, also of those in no list.
    ``threshold``: the load from which on a node is hot, in tenths of a percent.
    """
    found, more = dict[str, Lists](), dict[str, Lists]()
    threshold_of_few = {pool: threshold if size <= FEW_NODES else 0 for pool, size in sizes.items()}
    left_out, room = [], MAX_OBJECT
    for pool in sorted(pools, key=lambda pool: (pool != "", -len(pools[pool]), pool)):
        lists = node_lists(pools[pool], sizes[""], threshold_of_few[pool])
        size = len(pool) + _IN_JSON["pool"] + sum(map(_size, lists))
        if size > room or len(found) == MAX_POOLS:
            left_out.append(pool)
        else:
            found[pool] = lists
            room -= size
    each = min(room, MAX_OVERFLOW) / max(1, sum(len(pools[pool]) for pool in found))
    for pool, lists in found.items():
        room = int(each * len(pools[pool])) - len(pool) - _IN_JSON["pool"]
        overflow = tuple(
            _overflow(pools[pool][:MAX_NODES], len(lists), threshold_of_few[pool], room)
        )
        if overflow:
            more[pool] = overflow
    return found, more, tuple(left_out)


def _size(tiers: NodeList) -> int:
    names = [name for tier in tiers for name in tier.nodes]
    of_names = sum(map(len, names)) + len(names) * _IN_JSON["node"]
    return _IN_JSON["list"] + len(tiers) * _IN_JSON["tier"] + of_names


def node_lists(coolest: Sequence[Ranked], nodes: int, threshold_of_few: int = 0) -> Lists:
    """Each of these nodes, the coolest first, in one list. ``nodes``: the size of the cluster;
    ``threshold_of_few``: see `_tiers`.
    """
    listed = coolest[:MAX_NODES]
    count = _lists_needed(listed, nodes)
    return tuple(_tiers(listed[at::count], threshold_of_few) for at in range(count))


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


def _overflow(
    listed: Sequence[Ranked], count: int, threshold_of_few: int, room: int
) -> Iterator[NodeList]:
    """In rounds of ``count`` lists that together have each node once, up to ``room`` bytes. The
    ranks of a round are those after one pod for each list before it was placed on the node that was
    the coolest then.
    """
    if not listed:
        return
    steps = [max(1, node.step) for node in listed]
    # By load, then by rank before: the heap's first is the coolest.
    heap = [(node.load, at) for at, node in enumerate(listed)]
    heapq.heapify(heap)
    wanted = RISE * TENTHS * len(listed) / fmean(steps)
    for _ in range(1, min(round(wanted / count), MAX_LISTS // count)):
        for _ in range(count):
            load, at = heap[0]
            heapq.heapreplace(heap, (load + steps[at], at))
        ranked = [Ranked(listed[at].host, load) for load, at in sorted(heap)]
        lists = [_tiers(ranked[first::count], threshold_of_few) for first in range(count)]
        room -= sum(map(_size, lists))
        if room < 0:
            return
        yield from lists


def _most_tiers(names: Sequence[str]) -> int:
    """The number of tiers for which a pod has room, next to the names."""
    of_names = sum(len(name) + _BYTES_OF_NODE for name in names)
    return min(TIERS, len(names), (MAX_BYTES - of_names) // _BYTES_OF_TIER)


def _tiers(nodes: Sequence[Ranked], threshold_of_few: int) -> NodeList:
    """By rank, in tiers of equal length. A tier's weight is the square of its distance in load to
    the hottest tier, scaled so that the coolest has 100. With equal steps a node that is far cooler
    would have little more than the next one. kube-scheduler's spread of a workload's pods, which
    counts as much as the whole order, would keep pods off larger nodes, which have most of them. A
    load above FULL counts as FULL: one node must not make all others look equal.

    In a small pool every node has several pods of each workload; if all were on one node, they
    would end with it. So where ``threshold_of_few`` is not 0, the spread decides while loads are no
    danger: below half of this threshold they count as equal, and above it the weight is linear.
    """
    count = _most_tiers([node.host for node in nodes])
    bounds = [len(nodes) * tier // count for tier in range(count + 1)]
    tiers = [nodes[begin:end] for begin, end in pairwise(bounds)]
    least = threshold_of_few // 2
    loads = [fmean(min(max(node.load, least), FULL) for node in tier) for tier in tiers]
    apart = max(SPREAD * TENTHS, (threshold_of_few or loads[-1]) - loads[0])
    found, weight = [], 101
    for at, (tier, load) in enumerate(zip(tiers, loads, strict=True)):
        share = max(0.0, 1 - (load - loads[0]) / apart)
        share = share if threshold_of_few else share**2
        weight = max(count - at, min(weight - 1, round(100 * share)))
        found.append(PreferenceTier(weight, tuple(node.host for node in tier)))
    return tuple(found)
