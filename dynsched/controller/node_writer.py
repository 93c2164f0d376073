"""Writes the patches of an evaluation to nodes, a few at a time. After a conflict it reads the node
and plans again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dynsched.controller.reporting import Reporter
from dynsched.core.disputes import Disputes
from dynsched.core.evaluate import Evaluation
from dynsched.core.guard import WriteBatch, WriteFailure, WritePace
from dynsched.core.marks import NodePatch, is_done
from dynsched.core.nodes import Node
from dynsched.core.tick import Leadership, WriteResult
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.leader import Elector, NoElection
from dynsched.util.errors import ClusterError, ConflictError, NotFoundError, NotPermittedError

logger = logging.getLogger(__name__)

AT_ONCE: Final = 20
"""Maximum number of writes in flight."""
CONFLICT_RETRIES: Final = 3
"""How often a node is read and planned again after a 409; then the next tick tries it."""
FAILURES_BEFORE_GIVING_UP: Final = 20
"""Number of failed writes after which a pass stops writing, to spare an overloaded API server."""


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes of one evaluation. ``leadership``: as it was when they began; ``planned`` and
    ``disputes``: see `Tick`.
    """

    leadership: Leadership
    planned: tuple[NodePatch, ...]
    batch: WriteBatch = field(default_factory=WriteBatch)
    result: WriteResult = field(default_factory=WriteResult)
    disputes: Mapping[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[WriteFailure, ...]:
        """Failed writes, including those of earlier ticks that are not retried yet."""
        return (*self.result.failures, *self.batch.refused)


@dataclass(eq=False)
class NodeWriter:
    """Writes nodes while this replica leads, at most ``guard.max_writes_per_minute``. ``dry_run``:
    the patches of the given ``cluster`` stay in this process.
    """

    cluster: NodeCluster
    leadership: Elector | NoElection
    reporter: Reporter
    dry_run: bool
    _pace: WritePace = field(default_factory=WritePace, init=False)
    _disputes: Disputes = field(default_factory=Disputes, init=False)

    def forget_disputes(self) -> None:
        """Forget the counted changes: under other rules, the same change may be due again."""
        self._disputes = Disputes()

    async def write(self, evaluation: Evaluation, began: float) -> Writes:
        """Send the patches that are due; a follower sends none. ``began``: when the work on the
        evaluation began, in monotonic seconds.
        """
        may_write, leader = self.leadership.may_write, self.leadership.leader
        leadership = Leadership(may_write, leader, self.dry_run)
        if self.dry_run:
            batch, _ = await self._send(evaluation, began)
            return Writes(leadership, batch.patches, batch)
        if not may_write:
            self.forget_disputes()
            return Writes(leadership, evaluation.patches)
        batch, result = await self._send(evaluation, began)
        disputes = self._disputes.after(result.applied, self.cluster.nodes(), began)
        return Writes(leadership, evaluation.patches, batch, result, disputes)

    async def _send(self, evaluation: Evaluation, began: float) -> tuple[WriteBatch, WriteResult]:
        per_minute = evaluation.rule_set.guard.max_writes_per_minute
        batch = self._pace.choose(evaluation.patches, per_minute, began)
        result = await write_all(
            self.cluster,
            batch.patches,
            replan=evaluation.patch_for_changed,
            on_written=self.reporter.change,
        )
        self._pace.refused(result.failures, result.untried, began)
        return batch, result


async def write_all(
    cluster: NodeCluster,
    patches: Sequence[NodePatch],
    *,
    replan: Callable[[Node], NodePatch | None],
    on_written: Callable[[Node, NodePatch], None],
) -> WriteResult:
    """Send every patch; one that fails does not stop the others.

    ``replan`` returns the patch for a node that has changed meanwhile, None if nothing is due.
    ``on_written`` takes the node as stored. After NotPermittedError (the Lease was lost), no more
    patches are sent, and those left do not count as failures.
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
                # Perhaps it was stored, and only the response was lost: then the mark counts.
                with contextlib.suppress(ClusterError):
                    await cluster.read(patch.node)
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
    """The node as stored, and the patch that was sent last; None if nothing is due any more, or
    the node changes too often. Raises NotPermittedError or ClusterError.
    """
    due = patch
    for _attempt in range(1 + CONFLICT_RETRIES):
        try:
            return await cluster.patch(due), due
        except ConflictError:
            fresh = await cluster.read(due.node)
            if fresh is None:
                return None
            again = replan(fresh)
            if again is None:
                # Perhaps our own patch was stored and only its answer was lost.
                return (fresh, due) if is_done(due, fresh) else None
            due = again
    text = "node %s changes too often; the next tick tries again"
    logger.info(text, patch.node, extra={"node": patch.node})
    return None
