"""Carrying out a plan: many patches, a few at a time, each conflict read and planned again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from dynsched.core.marks import NodePatch, is_done
from dynsched.core.nodes import Node
from dynsched.core.pace import WriteFailure
from dynsched.core.tick import WriteResult
from dynsched.kube.cluster import NodeCluster
from dynsched.util.errors import ClusterError, ConflictError, NotFoundError, NotPermittedError

logger = logging.getLogger(__name__)

AT_ONCE: Final = 20
"""Writes in flight."""
CONFLICT_RETRIES: Final = 3
"""How often a 409 is read and planned again; after that the next pass sees to it."""
FAILURES_BEFORE_GIVING_UP: Final = 20
"""Number of failed writes after which a pass stops writing, to spare an overloaded API server."""


async def write_all(
    cluster: NodeCluster,
    patches: Sequence[NodePatch],
    *,
    replan: Callable[[Node], NodePatch | None],
    on_written: Callable[[Node, NodePatch], None],
) -> WriteResult:
    """Send every patch. ``replan`` gives what is due on a node that changed meanwhile;
    ``on_written`` gets the node as stored. One that fails does not stop the others. After
    NotPermittedError (the Lease was lost) none is sent, and none counts as a failure.
    """
    applied: list[NodePatch] = []
    failures: list[WriteFailure] = []
    untried: list[NodePatch] = []
    permitted = True
    queue = iter(patches)

    async def work() -> None:
        nonlocal permitted
        for patch in queue:
            if not permitted:
                return
            if len(failures) >= FAILURES_BEFORE_GIVING_UP:
                untried.append(patch)
                continue
            try:
                done = await _write(cluster, patch, replan)
            except NotPermittedError:
                permitted = False
            except NotFoundError:
                continue  # deleted between plan and apply: there is nothing left to mark
            except ClusterError as error:
                failures.append(WriteFailure(patch.node, str(error)))
            else:
                if done is not None:
                    node, sent = done
                    applied.append(sent)
                    on_written(node, sent)

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(patches)))))
    return WriteResult(tuple(applied), tuple(failures), tuple(untried))


async def _write(
    cluster: NodeCluster, patch: NodePatch, replan: Callable[[Node], NodePatch | None]
) -> tuple[Node, NodePatch] | None:
    """The node as stored and the patch that was sent in the end; None when nothing is due any
    more, or when the node changes faster than we can follow. NotPermittedError; ClusterError
    also when no change is to be seen that the conflicts could come from.
    """
    due, changed = patch, False
    for _attempt in range(1 + CONFLICT_RETRIES):
        try:
            return await cluster.patch(due), due
        except ConflictError:
            fresh = await cluster.read(due.node)
            if fresh is None:
                return None
            again = replan(fresh)
            if again is None:
                # Nothing is due because it was our own patch, of which the answer was lost?
                return (fresh, due) if is_done(due, fresh) else None
            changed = changed or again.version != due.version
            due = again
    if not changed:
        raise ClusterError(
            "it was refused as changed (409), and a read shows it unchanged; is one of several API "
            "servers behind, or a cache in front of them?"
        )
    text = "node %s changes too often; the next tick tries again"
    logger.info(text, patch.node, extra={"node": patch.node})
    return None
