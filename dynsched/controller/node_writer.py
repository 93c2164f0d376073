"""From one evaluation to the nodes: which patches are sent now, a few at a time, each conflict read
and planned again, and what became of them.
"""

from __future__ import annotations

import asyncio
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
"""Writes in flight."""
CONFLICT_RETRIES: Final = 3
"""How often a 409 is read and planned again; after that the next pass sees to it."""
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
        """Also those of earlier ticks that are not tried again yet."""
        return (*self.result.failures, *self.batch.refused)


@dataclass(eq=False)
class NodeWriter:
    """Writes nodes while this replica leads, at most ``guard.max_writes_per_minute``. With
    ``dry_run`` the ``cluster`` is one whose patches stay in this process.
    """

    cluster: NodeCluster
    leadership: Elector | NoElection
    reporter: Reporter
    dry_run: bool
    _pace: WritePace = field(default_factory=WritePace, init=False)
    _disputes: Disputes = field(default_factory=Disputes, init=False)

    def forget_disputes(self) -> None:
        """With other rules, the same may rightly be due again."""
        self._disputes = Disputes()

    async def write(self, evaluation: Evaluation, began: float) -> Writes:
        """Send the patches that are due; on a follower, none. ``began``: when the work on the
        evaluation began, on the monotonic clock.
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
    more, or when the node changes faster than we can follow. NotPermittedError, ClusterError.
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
                # Nothing is due because it was our own patch, of which the answer was lost?
                return (fresh, due) if is_done(due, fresh) else None
            due = again
    text = "node %s changes too often; the next tick tries again"
    logger.info(text, patch.node, extra={"node": patch.node})
    return None
