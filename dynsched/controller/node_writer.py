"""From one evaluation to the nodes: which patches are sent now, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynsched.controller.apply import write_all
from dynsched.controller.reporting import Reporter
from dynsched.core.disputes import Disputes
from dynsched.core.evaluate import Evaluation
from dynsched.core.marks import Action, NodePatch
from dynsched.core.pace import WriteBatch, WriteFailure, WritePace
from dynsched.core.tick import Leadership, WriteResult
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.leader import Elector, NoElection


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


class NodeWriter:
    """Writes nodes while this replica leads, at most ``guard.max_writes_per_minute``. With
    ``dry_run`` the ``cluster`` is one whose patches stay in this process.
    """

    def __init__(
        self,
        cluster: NodeCluster,
        leadership: Elector | NoElection,
        reporter: Reporter,
        *,
        dry_run: bool,
    ) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._reporter = reporter
        self._dry_run = dry_run
        self._pace = WritePace()
        self._disputes = Disputes()
        self.released = 0
        """Marks that were released since the last `begin_tick`."""

    def begin_tick(self, *, rules_changed: bool) -> None:
        """Count releases anew; with other rules, disputes too."""
        self.released = 0
        if rules_changed:
            self._disputes.forget()

    async def write(self, evaluation: Evaluation, began: float) -> Writes:
        """Send the patches that are due; on a follower, none. ``began``: when the work on the
        evaluation began, on the monotonic clock.
        """
        may_write, leader = self._leadership.may_write, self._leadership.leader
        leadership = Leadership(may_write, leader, self._dry_run)
        if self._dry_run:
            batch, _ = await self._send(evaluation, began)
            return Writes(leadership, batch.patches, batch)
        if not may_write:
            # By the expected load two replicas differ rightly: they see pods at different times.
            differ = () if evaluation.rule_set.has_expected else evaluation.patches
            disputes = self._disputes.following(differ, leader, began)
            return Writes(leadership, evaluation.patches, disputes=disputes)
        batch, result = await self._send(evaluation, began)
        disputes = self._disputes.leading(result.applied, self._cluster.nodes(), began)
        return Writes(leadership, evaluation.patches, batch, result, disputes)

    async def _send(self, evaluation: Evaluation, began: float) -> tuple[WriteBatch, WriteResult]:
        per_minute = evaluation.rule_set.guard.max_writes_per_minute
        batch = self._pace.choose(evaluation.patches, per_minute, began)
        self.released += sum(patch.action is Action.RELEASE for patch in batch.patches)
        result = await write_all(
            self._cluster,
            batch.patches,
            replan=evaluation.patch_for_changed,
            on_written=self._reporter.change,
        )
        self._pace.refused(result.failures, result.untried, began)
        return batch, result
