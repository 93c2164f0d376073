"""The loop: wake, query, evaluate, apply, publish."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dynsched.controller.apply import write_all
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.queries import PATIENCE, Queries
from dynsched.controller.reporting import Reporter
from dynsched.controller.restore import PastSources, past_evaluation
from dynsched.controller.step_down import StepDownTimer
from dynsched.core.disputes import Disputes
from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.health import is_answered, rules_health, why_unsuccessful
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.marks import Action
from dynsched.core.pace import WriteBatch, WritePace
from dynsched.core.samples import QueryResult
from dynsched.core.tick import Leadership, RulesStatus, Tick, WriteResult
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.leader import Elector, NoElection
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.rules.rule_set import RuleSet
from dynsched.util.stopping import pause, wait_for

logger = logging.getLogger(__name__)

REEVALUATE: Final = 1.0
"""Seconds between two evaluations at least, while pods are bound and end. With 2, more pods go to
the node that was the coolest before (docs/decisions/0022-the-order-is-a-kind-of-its-own.md)."""
POLL: Final = 0.25
"""Seconds between two looks whether pods were bound or ended."""
SHARE: Final = 10
"""Evaluations may take one part in so many of the time; else the next one comes later."""
CLOCK_STEP: Final = 5.0
"""Seconds; less is the clock's ordinary drift against the monotonic one."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What is evaluated: the answers of the rules' queries, ``at`` which time (Unix seconds); when
    (monotonic) the work on it began. ``again``: they were evaluated before.
    """

    rule_set: RuleSet
    answers: Mapping[str, QueryResult]
    at: float
    began: float
    status: RulesStatus
    again: bool = False


class _Writes(NamedTuple):
    """Who led when the writes began, what was to be sent, and what came of it."""

    leadership: Leadership
    batch: WriteBatch
    result: WriteResult = WriteResult()


class Evaluator:
    """Ticks, and what is remembered from one to the next: the last evaluation.

    ``histories``: the sources that remember the past, by the rules' ``source``. ``pods`` None:
    nothing is known of pods. With ``dry_run`` the ``cluster`` is one whose patches stay in this
    process.
    """

    def __init__(
        self,
        rules_file: RulesFile | FixedRules,
        *,
        queries: Queries,
        histories: PastSources,
        cluster: NodeCluster,
        reporter: Reporter,
        leadership: Elector | NoElection,
        publish: Callable[[Tick], Awaitable[None]],
        before_writes: Callable[[Evaluation, KnownPods], Awaitable[None]] | None = None,
        pods: PodTracking | None = None,
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules_file = rules_file
        self._queries = queries
        self._histories = histories
        self._cluster = cluster
        self._reporter = reporter
        self._leadership = leadership
        self._publish = publish
        self._before_writes = before_writes
        self._pods = pods
        self._dry_run = dry_run
        self._clock = clock
        self._monotonic = monotonic
        self._offset = clock() - monotonic()
        self._last: Evaluation | None = None
        self._inputs: _Inputs | None = None
        self._pace = WritePace()
        self._disputes = Disputes()
        self._step_down = StepDownTimer()
        self._last_success: dict[str, float] = {}
        self._past_errors: Mapping[str, str] = {}
        self._refused: str | None = None
        self._ticks = self._released = self._pod_changes = 0
        self._evaluated_at = self._took = 0.0

    async def run(self, stop: asyncio.Event, interval: float) -> None:
        """Tick every ``interval`` seconds, from start to start, until ``stop`` is set. A tick that
        takes longer is followed by the next at once; those that were missed are not made up for.
        """
        await wait_for(stop, lambda: self._cluster.synced)
        if not stop.is_set():
            await self.restore(interval)
        due = self._monotonic()
        while not stop.is_set():
            # The time at which it was due, not the one at which it came to run: else a tick that
            # starts a millisecond early would find `for` not yet over, and fire a tick too late.
            await self.tick(due, patience=PATIENCE * interval)
            due = max(due + interval, self._monotonic())
            await self._reevaluate_until(stop, due)

    async def restore(self, interval: float) -> None:
        """Rebuild the alerts as if ticks had gone on all along, every ``interval`` seconds."""
        self._follow_the_clock()
        rule_set = self._rules_file.rule_set
        if rule_set is not None:
            self._last, self._past_errors = await past_evaluation(
                self._histories, rule_set, self._cluster.nodes(), now=self._now(), interval=interval
            )

    async def tick(self, due: float | None = None, *, patience: float | None = None) -> Tick | None:
        """One pass, evaluated as of ``due`` (monotonic; None: now); None while no rules are in
        force. ``patience``: seconds for which queries are waited for; None: until all have ended.
        """
        self._follow_the_clock()
        self._inputs, self._released, began = None, 0, self._monotonic()
        at = self._offset + (began if due is None else due)
        status = await self._read_rules()
        rule_set = self._rules_file.rule_set
        if rule_set is None:
            if self._leadership.may_write:
                self._reporter.post_refusal(status.error)
            self._step_down_if_unanswered(sees=False)
            return None
        answers = await self._queries.ask(rule_set.rules, patience)
        self._note_successes(answers)
        self._inputs = _Inputs(rule_set, answers, at, began, status)
        tick = await self._evaluate(self._inputs)
        self._step_down_if_unanswered(sees=is_answered(rule_set, answers))
        return tick

    async def reevaluate(self) -> None:
        """Evaluate the last answers again, if something goes by the expected load, and pods were
        bound or ended since. It is evaluated at the time of the tick: values that are not new must
        not let `for` run out.
        """
        last = self._inputs
        if last is None or self._pods is None or not last.rule_set.follows_pods:
            return
        began = self._monotonic()
        is_due = began - self._evaluated_at >= max(REEVALUATE, SHARE * self._took)
        if is_due and self._pods.sequence != self._pod_changes:
            status = RulesStatus(error=last.status.error)
            await self._evaluate(replace(last, began=began, status=status, again=True))

    async def _evaluate(self, inputs: _Inputs) -> Tick:
        pods = NO_PODS
        if self._pods is not None and inputs.rule_set.uses_expected_load:
            pods = self._pods.known(self._now() - inputs.at)
        began = self._monotonic()
        # In a thread: HTTP should not wait for it.
        evaluation = await asyncio.to_thread(
            evaluate,
            inputs.rule_set,
            inputs.answers,
            self._cluster.nodes(),
            self._last,
            inputs.at,
            pods=pods,
            released=self._released,
        )
        # Kept even if a write raises.
        self._last, self._pod_changes = evaluation, pods.sequence
        self._evaluated_at = self._monotonic()
        self._took = self._evaluated_at - began
        if self._before_writes is not None:
            await self._before_writes(evaluation, pods)
        writes = await self._apply(inputs, evaluation)
        self._last = evaluation.with_delays(writes.batch.delayed).after_writes(
            self._cluster.nodes()
        )
        tick = self._tick(inputs, self._last, writes, pods)
        self._reporter.tick(tick)  # after the writes: no patch waits for log lines and Events
        await self._publish(tick)
        return tick

    async def _apply(self, inputs: _Inputs, evaluation: Evaluation) -> _Writes:
        """Send the patches that are due; on a follower, none."""
        may_write, leader = self._leadership.may_write, self._leadership.leader
        leadership = Leadership(may_write, leader, self._dry_run)
        if not (may_write or self._dry_run):
            return _Writes(leadership, WriteBatch(evaluation.patches))
        per_minute = inputs.rule_set.guard.max_writes_per_minute
        batch = self._pace.choose(evaluation.patches, per_minute, inputs.began)
        self._released += sum(patch.action is Action.RELEASE for patch in batch.patches)
        written = await write_all(
            self._cluster,
            batch.patches,
            replan=evaluation.patch_for_changed,
            on_written=self._reporter.change,
        )
        self._pace.refused(written.failures, written.untried, inputs.began)
        return _Writes(leadership, batch, WriteResult() if self._dry_run else written)

    def _tick(
        self, inputs: _Inputs, evaluation: Evaluation, writes: _Writes, pods: KnownPods
    ) -> Tick:
        leadership, batch, written = writes
        failures = (*written.failures, *batch.refused)
        past_errors, self._past_errors = self._past_errors, {}  # reported once
        self._ticks += 1
        return Tick(
            evaluation=evaluation,
            taken_at=self._clock(),
            number=self._ticks,
            duration=self._monotonic() - inputs.began,
            rules=rules_health(evaluation, inputs.answers, self._last_success, past_errors),
            writes=replace(written, failures=failures),
            planned=batch.patches if self._dry_run else evaluation.patches,
            delayed=len(batch.delayed),
            disputes=self._disputed(inputs, evaluation, writes),
            error=why_unsuccessful(
                inputs.rule_set, inputs.answers, failures, len(evaluation.patches)
            )
            or self._cluster.error
            or self._leadership.error,
            leadership=leadership,
            rules_status=inputs.status,
            queried=not inputs.again,
            pods=pods,
        )

    def _disputed(
        self, inputs: _Inputs, evaluation: Evaluation, writes: _Writes
    ) -> Mapping[str, str]:
        if inputs.status.reloaded:
            self._disputes.forget()
        if writes.leadership.leading and not self._dry_run:
            nodes = self._cluster.nodes()
            return self._disputes.leading(writes.result.applied, nodes, inputs.began)
        # By the expected load two replicas differ rightly: they see pods at different times.
        differ = () if inputs.rule_set.has_expected else evaluation.patches
        others = None if self._dry_run else writes.leadership.leader
        return self._disputes.following(differ, others, inputs.began)

    async def _read_rules(self) -> RulesStatus:
        """Read the rules file if it changed."""
        reloaded = await asyncio.to_thread(self._rules_file.changed)
        error, rule_set = self._rules_file.error, self._rules_file.rule_set
        before, self._refused = self._refused, error
        if reloaded and rule_set is not None:
            self._reporter.reloaded(rule_set, self._rules_file.warnings)
            return RulesStatus(error, reloaded=True)
        if error is None or error == before:
            return RulesStatus(error)
        self._reporter.refused(error, rule_set)
        return RulesStatus(error, refused=True)

    def _note_successes(self, answers: Mapping[str, QueryResult]) -> None:
        now, last = self._now(), self._last_success
        self._last_success = {
            name: now if found.error is None else last[name]
            for name, found in answers.items()
            if found.error is None or name in last
        }

    def _step_down_if_unanswered(self, *, sees: bool) -> None:
        leads = self._leadership.may_write
        if self._step_down.is_due(self._monotonic(), sees=sees, leads=leads):
            self._leadership.step_down()

    async def _reevaluate_until(self, stop: asyncio.Event, until: float) -> None:
        while not stop.is_set() and (rest := until - self._monotonic()) > 0:
            await pause(stop, min(rest, POLL))
            if not stop.is_set() and until - self._monotonic() > 0:
                await self.reevaluate()

    def _now(self) -> float:
        return self._offset + self._monotonic()

    def _follow_the_clock(self) -> None:
        """When the wall clock was set, or the machine slept, move what is remembered with it: a
        skipped hour must neither fire nor clear nor age an alert.
        """
        step = self._clock() - self._monotonic() - self._offset
        if abs(step) < CLOCK_STEP:
            return
        logger.warning("the clock was set by %+.0f s; alerts continue from where they were", step)
        self._offset += step
        if self._last is not None:
            self._last = self._last.shifted(step)
        self._last_success = {name: at + step for name, at in self._last_success.items()}
