"""What the API server lists, compared with what we know of the nodes. Pure.

Within one history of etcd, a list of resourceVersion R shows every node in its last state up to R,
and no other node. So what we know of a node in a state up to R is either what the list shows, or
older. If it is newer than what the list shows, the list is of another history: etcd was restored
from a backup, and has given the same versions again since. What we know in a state after R says
nothing, for the list cannot know it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dynsched.engine.model import Node


class Seen(NamedTuple):
    """What a list shows of a node, as far as it is compared."""

    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All nodes by name, as of ``version``, the resourceVersion of the list."""

    version: str
    nodes: Mapping[str, Seen]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs, by the node's name.

    ``gone``: known, and not there any more; with the uid that is known. ``late``: listed in a newer
    state than the known one, or not known; it may be under way to us. ``impossible``: known in a
    state that the listed history never had.
    """

    gone: Mapping[str, str]
    late: Mapping[str, Seen]
    impossible: tuple[str, ...]


def compare(
    known: Mapping[str, Node], listing: Listing, undated: Collection[str] = ()
) -> Comparison:
    """Compare ``known``, as it was before the list was asked for, with the list.

    ``undated`` are the nodes whose known versions mean nothing, for they may be of another history.
    """
    gone: dict[str, str] = {}
    impossible: list[str] = []
    late = {name: seen for name, seen in listing.nodes.items() if name not in known}
    for name, node in known.items():
        seen, version = listing.nodes.get(name), node.resource_version
        is_dated = name not in undated
        if is_dated and seen == (node.uid, version):
            continue  # as nearly all: the versions as numbers take ten times as long
        if is_dated and is_older(listing.version, version):
            continue
        if seen is None or seen.uid != node.uid:
            gone[name] = node.uid
        if seen is None:
            continue
        if is_dated and is_older(seen.version, version):
            impossible.append(name)
        elif not is_dated or name in gone or not has_reached(node, seen):
            late[name] = seen
    return Comparison(gone, late, tuple(impossible))


def lacks_most(known: Collection[str], found: Comparison) -> bool:
    """Whether more than half of the ``known`` nodes are gone, or all of them. One such list may be
    wrong (of an API server that has only just begun, say); a second one shows it.
    """
    return 2 * len(found.gone) > len(known)


def has_reached(node: Node | None, seen: Seen) -> bool:
    """Whether what is known of the node is what a list showed, or newer."""
    return node is not None and not is_older(node.resource_version, seen.version)


def is_older(version: str, than: str) -> bool:
    """Whether resourceVersion ``version`` was given before ``than``, within one history of etcd.

    Resource versions compare as decimal integers (KEP-5504), also between two objects of one name,
    and between an object and a list. Where they are something else, nothing can be said: False.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def newest(*versions: str) -> str:
    """The newest of the versions that can be compared; empty when there is none."""
    return max((each for each in versions if each.isdecimal()), key=int, default="")
