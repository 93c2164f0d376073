"""What changed between two answers of `/nodes`, as a watch tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dynsched.cli.node_tables import NODE_TITLES, in_order, node_row

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
_GAP: Final = 2
_GONE: Final = "no longer in the cluster"
_RELEASED: Final = "no longer marked, or no longer in the cluster"

Node = Mapping[str, Any]


class Change(NamedTuple):
    """What became of a node, in the words of Kubernetes' watches, and the node as it is now, or as
    it was last.
    """

    type: str
    node: Node


class Seen:
    """The nodes as they were told last."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def take(self, nodes: Iterable[Node]) -> list[Change]:
        """What a further answer changes, in the order in which nodes are shown."""
        now = {str(node["name"]): node for node in in_order(nodes)}
        changes = [
            Change(ADDED if name not in self._nodes else MODIFIED, node)
            for name, node in now.items()
            if name not in self._nodes or state(node) != state(self._nodes[name])
        ]
        gone = sorted(self._nodes.keys() - now.keys())
        changes += [Change(DELETED, self._nodes[name]) for name in gone]
        self._nodes = now
        return changes


def state(node: Node) -> tuple[object, ...]:
    """What of a node makes a new line when it changes. Values and ages change in each tick and do
    not; nor do numbers inside of reasons.
    """
    return (
        node["marked"],
        node["pressured"],
        node.get("early"),
        tuple(node["carries"]),
        bool(node["conflict"]),
        bool(node["withheld"]),
        bool(node["ineligible"]),
        node["due"] and node["due"]["action"],
        tuple((rule["rule"], rule["state"], rule["quality"]) for rule in node["rules"]),
    )


class Columns:
    """Lines of a table that grows: the widths are those of the first rows."""

    def __init__(self, payload: Mapping[str, Any], nodes: Iterable[Node]) -> None:
        rows = [NODE_TITLES, *(_cells(node, payload) for node in nodes)]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    @property
    def titles(self) -> str:
        """The first line."""
        return self._line(NODE_TITLES)

    def line(self, change: Change, payload: Mapping[str, Any], *, marked: bool) -> str:
        """A node as one line; ``marked``: the answers have marked nodes only."""
        cells = _cells(change.node, payload)
        if change.type == DELETED:
            cells = (cells[0], "-", "-", "-", _RELEASED if marked else _GONE)
        return self._line(cells)

    def _line(self, cells: Sequence[str]) -> str:
        padded = (cell.ljust(width + _GAP) for cell, width in zip(cells, self._widths, strict=True))
        return "".join(padded).rstrip()


def _cells(node: Node, payload: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(cell.plain for cell in node_row(node, payload))
