"""The marks on nodes while no dynsched is running: what the evidence on each node says."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from dynsched.engine.model import Node
from dynsched.engine.nodes.mark_state import MarkState, carried, mark_state
from dynsched.kube.client import KubeClient
from dynsched.rules import keys
from dynsched.rules.labels import Mark, parse_label
from dynsched.util.errors import NotFoundError
from dynsched.util.formatting import format_time

_MARK: Final = Mark(parse_label(keys.DEFAULT_LABEL))


async def left_marks(client: KubeClient, node: str | None = None) -> dict[str, Any]:
    """Of all marked nodes, or of ``node``, as JSON. It needs the right to list (get) nodes alone.
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
    told = [_told(state) for state in states if state.touched]
    return {"nodes": sorted(told, key=lambda each: each["name"]), "at": format_time(time.time())}


def _told(state: MarkState) -> dict[str, Any]:
    """``by``: None where nothing shows that dynsched put the mark there."""
    evidence, label = state.evidence, _MARK.label
    is_ours = evidence is not None or (label is not None and label.key in state.node.owned)
    doubtful = [] if state.unproven is None else [f"label {state.unproven}"]
    return {
        "name": state.node.name,
        "carries": [*carried(state, _MARK), *doubtful],
        "by": keys.FIELD_MANAGER if is_ours else None,
        "since": _time(evidence.since if evidence else None),
        "rules": [
            {**fired._asdict(), "since": _time(fired.since)}
            for fired in (evidence.fired if evidence else ())
        ],
    }


def _time(moment: float | None) -> str | None:
    return None if moment is None else format_time(moment)
