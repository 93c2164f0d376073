"""The marks on nodes while no dynsched instance is running, from the record on each node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from dynsched.core.marks import MarkState, carried_parts, mark_state
from dynsched.core.nodes import Node
from dynsched.kube.client import KubeClient
from dynsched.rules import keys
from dynsched.rules.labels import Mark, parse_label
from dynsched.util.errors import NotFoundError
from dynsched.util.formatting import format_time

_MARK: Final = Mark(parse_label(keys.DEFAULT_LABEL))


async def left_marks(client: KubeClient, node: str | None = None) -> dict[str, Any]:
    """Of all marked nodes, or of ``node``, as JSON. It needs only the right to list (get) nodes.
    Raises ClusterError.
    """
    found: Iterable[Node]
    if node is None:
        found = (await client.list_nodes()).values()
    elif (one := await client.read(node)) is not None:
        found = [one]
    else:
        raise NotFoundError(f"no node {node!r} in the cluster")
    states = [mark_state(each, _MARK) for each in found]
    marks = [_as_json(state) for state in states if state.has_our_keys]
    return {"nodes": sorted(marks, key=lambda each: each["name"]), "at": format_time(time.time())}


def _as_json(state: MarkState) -> dict[str, Any]:
    """``by``: None where nothing shows that dynsched put the mark there."""
    record, label = state.record, _MARK.label
    is_ours = record is not None or (label is not None and label.key in state.node.managed_labels)
    doubtful = [] if state.unproven is None else [f"label {state.unproven}"]
    return {
        "name": state.node.name,
        "carries": [*carried_parts(state, _MARK), *doubtful],
        "by": keys.FIELD_MANAGER if is_ours else None,
        "since": _time(record.since if record else None),
        "rules": [
            {**fired._asdict(), "since": _time(fired.since)}
            for fired in (record.fired if record else ())
        ],
    }


def _time(moment: float | None) -> str | None:
    return None if moment is None else format_time(moment)
