"""What a dry run would have written so far: it decides and reports as if that had been written.

In a dry run a patch that is due stays due, and a guard that counts only real marks would neither
keep a mark nor delay a release. Therefore each pass decides on the nodes as the patches of the
earlier passes would have left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dynsched.engine.model import Node, NodePatch
from dynsched.rules import keys


@dataclass(frozen=True, slots=True)
class _Imagined:
    """``node``: as the patches would have left it. ``real``: as it was when last looked at."""

    real: Node
    node: Node


class Rehearsal:
    def __init__(self) -> None:
        self._imagined: dict[str, _Imagined] = {}
        self._real: Mapping[str, Node] = {}

    def nodes(self, real: Mapping[str, Node]) -> dict[str, Node]:
        """The nodes as they would be. A node that was replaced, and one on which somebody has
        changed what a patch would have changed, are as they are.
        """
        self._real = real
        kept = {}
        for name, imagined in self._imagined.items():
            node = _carried_over(imagined, real.get(name))
            if node is not None:
                kept[name] = _Imagined(real[name], node)
        self._imagined = kept
        return {**real, **{name: imagined.node for name, imagined in kept.items()}}

    def write(self, patches: Iterable[NodePatch]) -> None:
        """Count these patches, which were decided on the last ``nodes``, as written."""
        for patch in patches:
            real = self._real[patch.node]
            before = self._imagined.get(patch.node, _Imagined(real, real))
            self._imagined[patch.node] = _Imagined(real, _patched(before.node, patch.body))


def _carried_over(imagined: _Imagined, now: Node | None) -> Node | None:
    """The node as it is now with the imagined changes in it; None where they do not count."""
    real, node = imagined.real, imagined.node
    labels = _difference(real.labels, node.labels)
    annotations = _difference(real.annotations, node.annotations)
    if (
        now is None
        or now.uid != real.uid
        or any(now.labels.get(key) != real.labels.get(key) for key in labels)
        or any(now.annotations.get(key) != real.annotations.get(key) for key in annotations)
        or _ours(now.taints) != _ours(real.taints)
    ):
        return None
    theirs = [taint for taint in now.taints if not _is_ours(taint)]
    return replace(
        now,
        labels=_merged(now.labels, labels),
        annotations=_merged(now.annotations, annotations),
        taints=(*theirs, *_ours(node.taints)),
        owned=now.owned | _written(labels),
    )


def _patched(node: Node, body: Mapping[str, Any]) -> Node:
    metadata = body["metadata"]
    taints = body["spec"]["taints"] if "spec" in body else node.taints
    return replace(
        node,
        labels=_merged(node.labels, metadata.get("labels", {})),
        annotations=_merged(node.annotations, metadata.get("annotations", {})),
        taints=tuple(taints or ()),
        owned=node.owned | _written(metadata.get("labels", {})),
    )


def _written(labels: Mapping[str, str | None]) -> frozenset[str]:
    """The keys that the API server would record as set by us."""
    return frozenset(key for key, value in labels.items() if value is not None)


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **changes}.items() if value is not None}


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
    return {key: new.get(key) for key in {**old, **new} if old.get(key) != new.get(key)}


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return str(taint.get("key", "")).startswith(keys.ANNOTATION_PREFIX)


def _ours(taints: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(taint for taint in taints if _is_ours(taint))
