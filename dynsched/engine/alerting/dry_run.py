"""What a dry run would have written so far: it decides and reports as if that had been written.

In a dry run a patch that is due stays due, and a guard that counts only real marks would neither
keep a mark nor delay a release. Therefore each pass decides on the nodes as the patches of the
earlier passes would have left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dynsched.engine.model import Node, NodePatch
from dynsched.rules import keys


@dataclass(frozen=True, slots=True)
class _NodeChange:
    """What patches would have changed on the node ``before``. None removes a key."""

    before: Node
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] | None = None

    def and_then(self, node: Node, body: Mapping[str, Any]) -> _NodeChange:
        """With one more patch, decided on when the node was really ``node``."""
        metadata = body["metadata"]
        return _NodeChange(
            node,
            {**self.labels, **metadata.get("labels", {})},
            {**self.annotations, **metadata.get("annotations", {})},
            _ours(body["spec"]["taints"] or ()) if "spec" in body else self.taints,
        )

    def on(self, node: Node) -> Node | None:
        """The node with the changes in it; None where it was replaced, or somebody has changed what
        they would have changed.
        """
        before = self.before
        if (
            node.uid != before.uid
            or any(node.labels.get(key) != before.labels.get(key) for key in self.labels)
            or any(node.annotations.get(k) != before.annotations.get(k) for k in self.annotations)
            or _ours(node.taints) != _ours(before.taints)
        ):
            return None
        ours = _ours(node.taints)
        theirs = [taint for taint in node.taints if taint not in ours]
        return replace(
            node,
            labels=_merged(node.labels, self.labels),
            annotations=_merged(node.annotations, self.annotations),
            taints=node.taints if self.taints is None else (*theirs, *self.taints),
            # As the API server would record it.
            owned=node.owned.union(key for key, value in self.labels.items() if value is not None),
        )


class PretendedWrites:
    """The patches of a dry run, kept beside the nodes that the API server has."""

    def __init__(self) -> None:
        self._changes: dict[str, _NodeChange] = {}
        self._real: Mapping[str, Node] = {}

    def nodes(self, real: Mapping[str, Node]) -> dict[str, Node]:
        """The ``real`` nodes, by name, as they would be after all that was written."""
        self._real = real
        there = {name: change for name, change in self._changes.items() if name in real}
        found = {name: change.on(real[name]) for name, change in there.items()}
        changed = {name: node for name, node in found.items() if node is not None}
        self._changes = {name: there[name] for name in changed}
        return {**real, **changed}

    def write(self, patches: Iterable[NodePatch]) -> None:
        """Count these patches, which were decided on the last ``nodes``, as written."""
        for patch in patches:
            node = self._real[patch.node]
            change = self._changes.get(patch.node, _NodeChange(node))
            self._changes[patch.node] = change.and_then(node, patch.body)


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **changes}.items() if value is not None}


def _ours(taints: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(t for t in taints if str(t.get("key", "")).startswith(keys.ANNOTATION_PREFIX))
