"""The lists of the order: what a pod gets of it.

A pod gets one list by chance: nodes in levels, the coolest first. Where one list cannot have all
nodes there are several, each with every nth node by rank, so that no pod grows by much.

All pods that are created between two writes of the order see the same one. kube-scheduler spreads
those of a ReplicaSet by itself, but not those of a Job: all would go to the same few nodes. For
them there are further lists, with the ranks as they will be when the first pods are placed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from dynsched.engine.model import Level, NodeList
from dynsched.engine.placing.score import FULL, SPREAD, TENTHS

LEVELS: Final = 20
"""In a list at most. With 10, nodes of unlike load share a level."""
FEWEST_LEVELS: Final = 5
"""Where a list is long and the names of nodes are too: its nodes are worth more than its levels."""
MAX_BYTES: Final = 1900
"""Of a list in a pod, as etcd keeps it; with what surrounds it, a pod grows by 2 KiB at most."""
MAX_NODES: Final = 1024
"""Of a pool in all lists together, the coolest: the object is written every few seconds."""
MAX_LENGTH: Final = 24
"""Nodes in a list: with more, bursts go to the same few nodes."""
FEW_NODES: Final = 15
"""Among so many or fewer, the hot ones too, the scheduler's spread of replicas counts more than
small differences of load: see `_levels`."""
MISSED: Final = 0.002
"""kube-scheduler looks at a share of many nodes for each pod. Where a pod has room, its list is so
long that no more than this share of pods finds none of its nodes there: 59 of 5,000."""
RISE: Final = 6.0
"""Points by which one pod of each list, the further ones too, raises the mean load. With more lists
single pods get worse nodes, with fewer a burst goes to too few nodes."""
MAX_LISTS: Final = 60
"""For one pod to choose from, in a pool: the bound in the definition of NodeOrder."""
MAX_POOLS: Final = 1000
"""Of which the object has lists."""
MAX_OBJECT: Final = 512 * 1024
"""Bytes of all lists, as etcd keeps them (JSON): it refuses 1.5 MiB. 5,000 nodes in pools fit, with
names of 63 characters."""
MAX_FURTHER: Final = 128 * 1024
"""Bytes of all further lists together."""
_BYTES_OF_LEVEL: Final = 44
"""In etcd (protobuf): weight, key, operator and the lengths of the parts."""
_BYTES_OF_NODE: Final = 2
"""Beside its name."""
_IN_JSON: Final = {"pool": 6, "list": 14, "level": 26, "node": 3}
"""Bytes of the object for one of them, beside names."""

Lists = tuple[NodeList, ...]
"""Of one pool."""


class Ranked(NamedTuple):
    """A node by its host name, its load, and what the next pod adds to it; in tenths of a point."""

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
    """The lists of each pool's coolest nodes, the coolest first; the ``further`` ones, as of
    `model.Order`; and the pools of the fewest nodes, for which the object has no room: their pods
    get the lists for pods that choose no pool. ``sizes``: by pool, how many nodes there are, those
    that are in no list too. ``threshold``: the load from which on a node is hot, in tenths.
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
    each = min(room, MAX_FURTHER) / max(1, sum(len(pools[pool]) for pool in found))
    for pool, lists in found.items():
        room = int(each * len(pools[pool])) - len(pool) - _IN_JSON["pool"]
        further = tuple(_further(pools[pool][:MAX_NODES], len(lists), threshold_of_few[pool], room))
        if further:
            more[pool] = further
    return found, more, tuple(left_out)


def _size(levels: NodeList) -> int:
    names = [name for level in levels for name in level.nodes]
    of_names = sum(map(len, names)) + len(names) * _IN_JSON["node"]
    return _IN_JSON["list"] + len(levels) * _IN_JSON["level"] + of_names


def node_lists(coolest: Sequence[Ranked], nodes: int, threshold_of_few: int = 0) -> Lists:
    """Of which each of these nodes, the coolest first, is in one, in a cluster of so many
    ``nodes``. ``threshold_of_few``: as of `_levels`.
    """
    listed = coolest[:MAX_NODES]
    count = _lists_needed(listed, nodes)
    return tuple(_levels(listed[at::count], threshold_of_few) for at in range(count))


def _lists_needed(listed: Sequence[Ranked], nodes: int) -> int:
    seen, longest = nodes_looked_at(nodes), MAX_LENGTH
    if seen < nodes:
        longest = max(longest, math.ceil(math.log(MISSED) / math.log(1 - seen / nodes)))
    names = sorted((node.host for node in listed), key=len, reverse=True)
    for number in range(math.ceil(len(listed) / longest), len(listed)):
        length = math.ceil(len(listed) / number)
        if _most_levels(names[:length]) >= min(FEWEST_LEVELS, length):
            return number
    return len(listed)


def _further(
    listed: Sequence[Ranked], count: int, threshold_of_few: int, room: int
) -> Iterator[NodeList]:
    """In rounds of ``count`` lists, of which each node is in one, while they take no more than
    ``room`` bytes. Each round has the ranks after one pod for each list before it was placed on
    the node that was the coolest then.
    """
    if not listed:
        return
    loads = np.array([node.load for node in listed], float)
    steps = np.array([max(1, node.step) for node in listed], float)
    wanted = RISE * TENTHS * len(listed) / steps.mean()
    for _ in range(1, min(round(wanted / count), MAX_LISTS // count)):
        for _ in range(count):
            coolest = loads.argmin()
            loads[coolest] += steps[coolest]
        ranks = np.argsort(loads, kind="stable").tolist()
        ranked = [Ranked(listed[at].host, round(loads.item(at))) for at in ranks]
        lists = [_levels(ranked[first::count], threshold_of_few) for first in range(count)]
        room -= sum(map(_size, lists))
        if room < 0:
            return
        yield from lists


def _most_levels(names: Sequence[str]) -> int:
    """As many as a pod has room for, beside the names."""
    of_names = sum(len(name) + _BYTES_OF_NODE for name in names)
    return min(LEVELS, len(names), (MAX_BYTES - of_names) // _BYTES_OF_LEVEL)


def _levels(nodes: Sequence[Ranked], threshold_of_few: int) -> NodeList:
    """By rank, in levels of equal length. A level's weight is the square of how far it is below the
    hottest, by load: 100 for the coolest. By equal steps a node that is far cooler would have
    little more than the next one, and kube-scheduler's spread of each workload's pods, which counts
    as much as the whole order, keeps them off nodes that are larger and so have most of them. A
    load beyond FULL counts as it: one node must not make all others look equal.

    A cluster of few nodes has several pods of each workload on each, and all on one would end with
    it. So there, where ``threshold_of_few`` is not 0, the spread decides while loads are no danger:
    those below half of it count as equal, and beyond it a weight is how far the level is below it.
    """
    count = _most_levels([node.host for node in nodes])
    bounds = [len(nodes) * level // count for level in range(count + 1)]
    levels = [nodes[begin:end] for begin, end in pairwise(bounds)]
    least = threshold_of_few // 2
    loads = [fmean(min(max(node.load, least), FULL) for node in level) for level in levels]
    apart = max(SPREAD * TENTHS, (threshold_of_few or loads[-1]) - loads[0])
    found, weight = [], 101
    for at, (level, load) in enumerate(zip(levels, loads, strict=True)):
        share = max(0.0, 1 - (load - loads[0]) / apart)
        share = share if threshold_of_few else share**2
        weight = max(count - at, min(weight - 1, round(100 * share)))
        found.append(Level(weight, tuple(node.host for node in level)))
    return tuple(found)
