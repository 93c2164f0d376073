"""The loop: wake, query, evaluate, apply, publish."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dynsched.controller.node_writer import NodeWriter, Writes
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.queries import PATIENCE, Queries
from dynsched.controller.reporting import Reporter
from dynsched.controller.restore import PastSources, past_evaluation
from dynsched.controller.step_down import StepDownTimer
from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.health import is_answered, rules_health, why_unsuccessful
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.samples import QueryResult
from dynsched.core.tick import RulesStatus, Tick
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.leader import Elector, NoElection
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.rules.rule_set import RuleSet
from dynsched.util.stopping import pause, wait_for

logger = logging.getLogger(__name__)

CLOCK_STEP: Final = 5.0
"""Seconds. A smaller difference is ordinary drift between the wall clock and the monotonic one."""
REEVALUATE: Final = 1.0
"""Minimum seconds between two evaluations while pods are bound and end. With 2, more pods go to
the node that was the coolest before (docs/decisions/0022-the-order-is-a-kind-of-its-own.md)."""
POLL: Final = 0.25
"""Seconds between two checks whether pods were bound or ended."""
SHARE: Final = 10
"""Reevaluations take at most 1/SHARE of the time: a slow one delays the next."""


class TickClock:
    """Unix time, computed from the monotonic clock. Only `follow` adopts a step of the wall clock,
    so the time never jumps within a tick.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.wall, self.monotonic = wall, monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """In Unix seconds."""
        return self.at(self.monotonic())

    def at(self, moment: float) -> float:
        """``moment`` of the monotonic clock as Unix seconds."""
        return self._offset + moment

    def follow(self) -> float:
        """Adopt a step of the wall clock, and return its seconds; 0 if there was none.

        Against the monotonic clock, it steps when it is set or when the machine has slept.
        """
        step = self.wall() - self.now()
        if abs(step) < CLOCK_STEP:
            return 0.0
        logger.warning("the clock stepped by %+.0f s; the durations of alerts ignore this", step)
        self._offset += step
        return step


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Inputs of an evaluation. ``answers``: by rule name. ``at``: the time for which they are
    evaluated, in Unix seconds; ``began``: when the work began, in monotonic seconds. ``again``:
    they were evaluated before.
    """

    rule_set: RuleSet
    answers: Mapping[str, QueryResult]
    at: float
    began: float
    status: RulesStatus
    again: bool = False


@dataclass(eq=False)
class Evaluator:
    """Runs the ticks, and keeps the last evaluation from one to the next.

    ``histories``: the sources that have a history, by the ``source`` of rules. ``pods``: None if
    pods are not watched. ``dry_run``: the patches of the given ``cluster`` stay in this process.
    """

    rules_file: RulesFile | FixedRules
    queries: Queries
    histories: PastSources
    cluster: NodeCluster
    reporter: Reporter
    leadership: Elector | NoElection
    publish: Callable[[Tick], Awaitable[None]]
    before_writes: Callable[[Evaluation, KnownPods], Awaitable[None]] | None = None
    pods: PodTracking | None = None
    dry_run: bool = False
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._time = TickClock(self.clock, self.monotonic)
        self._writer = NodeWriter(self.cluster, self.leadership, self.reporter, self.dry_run)
        self._step_down = StepDownTimer()
        self._last: Evaluation | None = None
        self._inputs: _Inputs | None = None
        self._last_success: dict[str, float] = {}
        self._past_errors: Mapping[str, str] = {}
        self._refused: str | None = None
        self._ticks = self._pod_changes = 0
        self._evaluated_at = self._took = 0.0

    async def run(self, stop: asyncio.Event, interval: float) -> None:
        """Start a tick every ``interval`` seconds until ``stop`` is set. After a tick that takes
        longer, the next one starts at once; missed ticks are not made up for.
        """
        await wait_for(stop, lambda: self.cluster.synced)
        if not stop.is_set():
            await self.restore(interval)
        due = self._time.monotonic()
        while not stop.is_set():
            # A tick is evaluated as of its due time, not its start. Otherwise one that starts a
            # millisecond early would find `for` not yet over, and fire the alert a tick late.
            await self.tick(due, patience=PATIENCE * interval)
            due = max(due + interval, self._time.monotonic())
            await self._reevaluate_until(stop, due)

    async def restore(self, interval: float) -> None:
        """Rebuild the alerts from history, as if ticks had run every ``interval`` seconds."""
        self._follow_the_clock()
        rule_set = self.rules_file.rule_set
        if rule_set is not None:
            self._last, self._past_errors = await past_evaluation(
                self.histories,
                rule_set,
                self.cluster.nodes(),
                now=self._time.now(),
                interval=interval,
            )

    async def tick(self, due: float | None = None, *, patience: float | None = None) -> Tick | None:
        """Run one tick as of ``due`` (monotonic; None: now). Returns None while no rules are in
        force. ``patience``: seconds to wait for queries; None: until all have ended.
        """
        self._follow_the_clock()
        self._inputs, began = None, self._time.monotonic()
        at = self._time.at(began if due is None else due)
        status = await self._read_rules(patience)
        if status.reloaded:
            self._writer.forget_disputes()
        if self._last is not None:
            self._last = replace(self._last, released=0)
        rule_set = self.rules_file.rule_set
        if rule_set is None:
            if self.leadership.may_write:
                self.reporter.post_refusal(status.error)
            self._step_down_if_unanswered(sees=False)
            return None
        answers = await self.queries.ask(rule_set.rules, patience)
        self._note_successes(answers)
        self._inputs = _Inputs(rule_set, answers, at, began, status)
        tick = await self._evaluate(self._inputs)
        self._step_down_if_unanswered(sees=is_answered(rule_set, answers))
        return tick

    async def reevaluate(self) -> None:
        """Evaluate the last answers again if marks or the order use the expected load, and pods
        were bound or ended since. The time stays that of the tick: old values must not let `for`
        run out.
        """
        last = self._inputs
        if last is None or self.pods is None or not last.rule_set.follows_pods:
            return
        began = self._time.monotonic()
        is_due = began - self._evaluated_at >= max(REEVALUATE, SHARE * self._took)
        if is_due and self.pods.sequence != self._pod_changes:
            status = RulesStatus(error=last.status.error)
            await self._evaluate(replace(last, began=began, status=status, again=True))

    async def _evaluate(self, inputs: _Inputs) -> Tick:
        pods = NO_PODS
        if self.pods is not None and inputs.rule_set.uses_expected_load:
            pods = self.pods.known(self._time.now() - inputs.at)
        began = self._time.monotonic()
        # In a thread, so that HTTP requests do not wait for it.
        evaluation = await asyncio.to_thread(
            evaluate,
            inputs.rule_set,
            inputs.answers,
            self.cluster.nodes(),
            self._last,
            inputs.at,
            pods=pods,
        )
        # Set before the writes, so that the evaluation is kept even if a write raises.
        self._last, self._pod_changes = evaluation, pods.sequence
        self._evaluated_at = self._time.monotonic()
        self._took = self._evaluated_at - began
        if self.before_writes is not None:
            await self.before_writes(evaluation, pods)
        writes = await self._writer.write(evaluation, inputs.began)
        self._last = evaluation.after_writes(self.cluster.nodes(), writes.batch)
        tick = self._tick(inputs, self._last, writes, pods)
        self.reporter.tick(tick)  # after the writes, so that no patch waits for lines and Events
        await self.publish(tick)
        return tick

    def _tick(
        self, inputs: _Inputs, evaluation: Evaluation, writes: Writes, pods: KnownPods
    ) -> Tick:
        past_errors, self._past_errors = self._past_errors, {}  # reported once
        self._ticks += 1
        return Tick(
            evaluation=evaluation,
            taken_at=self._time.wall(),
            number=self._ticks,
            duration=self._time.monotonic() - inputs.began,
            rules=rules_health(evaluation, inputs.answers, self._last_success, past_errors),
            writes=replace(writes.result, failures=writes.failures),
            planned=writes.planned,
            delayed=len(writes.batch.delayed),
            disputes=writes.disputes,
            error=why_unsuccessful(
                inputs.rule_set, inputs.answers, writes.failures, len(evaluation.patches)
            )
            or self.cluster.error
            or self.leadership.error,
            leadership=writes.leadership,
            rules_status=inputs.status,
            queried=not inputs.again,
            pods=pods,
        )

    async def _read_rules(self, patience: float | None) -> RulesStatus:
        """Read the rules file. If the server refuses a query of the new rules, the file is refused
        and the old rules stay in force. The first rules of a process replace none, so they are
        accepted, and only those with a good query have values.
        """
        file = self.rules_file
        if isinstance(file, FixedRules):
            return RulesStatus()
        found = await asyncio.to_thread(file.read)
        if found is not None:
            is_first = file.rule_set is None
            refused = {} if is_first else await self.queries.refused(found.rules, patience)
            if refused:
                file.refuse(refused)
            else:
                file.accept()
                self.reporter.reloaded(found, file.warnings)
                self._refused = None
                return RulesStatus(reloaded=True)
        before, self._refused = self._refused, file.error
        if file.error is None or file.error == before:
            return RulesStatus(file.error)
        self.reporter.refused(file.error, file.rule_set)
        return RulesStatus(file.error, refused=True)

    def _note_successes(self, answers: Mapping[str, QueryResult]) -> None:
        kept = {name: at for name, at in self._last_success.items() if name in answers}
        good = (name for name, found in answers.items() if found.is_new and found.error is None)
        self._last_success = kept | dict.fromkeys(good, self._time.now())

    def _step_down_if_unanswered(self, *, sees: bool) -> None:
        leads = self.leadership.may_write
        if self._step_down.is_due(self._time.monotonic(), sees=sees, leads=leads):
            self.leadership.step_down()

    async def _reevaluate_until(self, stop: asyncio.Event, until: float) -> None:
        while not stop.is_set() and (rest := until - self._time.monotonic()) > 0:
            await pause(stop, min(rest, POLL))
            if not stop.is_set() and until - self._time.monotonic() > 0:
                await self.reevaluate()

    def _follow_the_clock(self) -> None:
        """After a step of the wall clock, shift all stored times by it: a skipped hour must not
        fire, clear or age an alert.
        """
        step = self._time.follow()
        if not step:
            return
        if self._last is not None:
            self._last = self._last.shifted(step)
        self._last_success = {name: at + step for name, at in self._last_success.items()}
