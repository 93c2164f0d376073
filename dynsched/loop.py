"""One tick: fetch -> match -> evaluate -> plan -> apply -> publish.

The loop knows no shell: it declares here the Protocols that it consumes, and `app` hands them in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from dynsched.core.adoption import adopted_alerts
from dynsched.core.decide import decide
from dynsched.core.disputes import Disputes
from dynsched.core.durations import format_duration
from dynsched.core.errors import PastUnknownError
from dynsched.core.evaluate import Alerts, shift
from dynsched.core.health import blindness, crowding, rule_health
from dynsched.core.model import Node, QueryResult, Series, Snapshot
from dynsched.core.rehearse import Rehearsal
from dynsched.core.replay import finish_replay, replay, replay_times
from dynsched.core.rule_fields import SourceName
from dynsched.core.rules import Rule, RuleSet
from dynsched.plumbing.stopping import pause
from dynsched.reporting import EventSink, Reporter
from dynsched.writer import NodeStorage, Written, write_all

logger = logging.getLogger(__name__)

SYNC_POLL: Final = 0.1
MAX_POINTS: Final = 30_000
"""Points of the past that are held at a time, of all rules together: about as many as the samples
of two ticks at 5,000 nodes, so that a start needs no more memory than what follows."""
CLOCK_STEP: Final = 5.0
"""Seconds; less is the clock's ordinary drift against the monotonic one."""


class Source(Protocol):
    """Where a rule's samples come from."""

    async def query(self, rule: Rule) -> QueryResult:
        """One aggregate query. A bad answer is a QueryResult with an error, never an exception."""


class Cluster(NodeStorage, Protocol):
    """The nodes as last observed, and the one way to change one."""

    @property
    def synced(self) -> bool:
        """Whether the first list of nodes is complete."""

    @property
    def error(self) -> str | None:
        """Why what is known of the nodes may be old; None while all is well."""

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; a view that does not change under the caller's hands."""


class HistorySource(Protocol):
    """Where a rule's past comes from."""

    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        """The rule's expression from ``start`` to ``end``, every ``step``. PastUnknownError when
        it cannot be had.
        """


class Leadership(Protocol):
    """Who of several replicas writes."""

    @property
    def may_write(self) -> bool:
        """Whether a write begun now is ours to make."""

    @property
    def leader(self) -> str | None:
        """Who leads, as far as is known."""

    @property
    def error(self) -> str | None:
        """Why the election does not work; None while it does."""


class RulesFile(Protocol):
    """Rules that may change while we run."""

    rule_set: RuleSet
    error: str | None

    def changed(self) -> bool:
        """Look again; whether there is a new ``rule_set``."""


class Loop:
    """Ticks, and what is remembered from one to the next: the alerts.

    ``sources`` and ``histories`` by the rules' ``source``; ``publish`` is called with every tick's
    Snapshot. ``dry_run``: decide, tell and publish as if all were written, and write nothing.
    """

    def __init__(
        self,
        rules_file: RulesFile,
        *,
        sources: Mapping[SourceName, Source],
        histories: Mapping[SourceName, HistorySource],
        cluster: Cluster,
        events: EventSink,
        leadership: Leadership,
        publish: Callable[[Snapshot], None],
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules_file = rules_file
        self._sources = sources
        self._histories = histories
        self._cluster = cluster
        self._reporter = Reporter(events)
        self._leadership = leadership
        self._publish = publish
        self._dry_run = dry_run
        self._rehearsal = Rehearsal()
        self._clock = clock
        self._monotonic = monotonic
        self._offset = clock() - monotonic()
        self._alerts: Alerts = {}
        self._disputes = Disputes()
        self._last_success: dict[str, float] = {}
        self._no_past: dict[str, str] = {}
        self._ticks = 0

    async def run(self, stop: asyncio.Event, interval: float) -> None:
        """Tick every ``interval`` seconds, from start to start, until ``stop`` is set.

        Ticks never overlap; one that takes longer than the interval is followed by the next at
        once, and those that were missed are not made up for.
        """
        await self._until_synced(stop)
        if not stop.is_set():
            await self.remember(interval)
        due = self._monotonic()
        while not stop.is_set():
            self._follow_the_clock()
            # The time at which it was due, not the one at which it came to run: else a tick that
            # starts a millisecond early would find `for` not yet over, and fire a tick too late.
            await self.tick(self._offset + due)
            due = max(due + interval, self._monotonic())
            await pause(stop, due - self._monotonic())

    async def _until_synced(self, stop: asyncio.Event) -> None:
        while not self._cluster.synced and not stop.is_set():
            await pause(stop, SYNC_POLL)

    async def remember(self, interval: float) -> None:
        """Rebuild the alerts as if ticks had gone on all along, every ``interval`` seconds."""
        rule_set = self._rules_file.rule_set
        now = self._clock()
        times = replay_times(rule_set, now, interval)
        nodes = self._cluster.nodes()
        if not times or not nodes:
            return
        step = now - times[-1]
        alerts = adopted_alerts(rule_set, nodes, times[0])
        self._no_past = {
            rule.name: f"source {rule.source} keeps none"
            for rule in rule_set.rules
            if rule.source not in self._histories and (rule.hold_duration or rule.keep_firing_for)
        }
        # In parts: the whole past of 5,000 nodes would be hundreds of megabytes.
        part = max(1, MAX_POINTS // (len(nodes) * len(rule_set.rules)))
        for first in range(0, len(times), part):
            moments = times[first : first + part]
            past = await self._past(rule_set, moments, step)
            alerts = await asyncio.to_thread(
                partial(replay, rule_set, past, nodes, alerts, times=moments, step=step, until=now)
            )
        self._alerts = finish_replay(rule_set, nodes, alerts, now)
        if self._with_past(rule_set):
            logger.info(
                "replayed the last %s from Prometheus's history",
                format_duration(round(now - times[0])),
            )

    def _with_past(self, rule_set: RuleSet) -> list[Rule]:
        """The rules whose past can be had, as far as is known."""
        return [
            rule
            for rule in rule_set.rules
            if rule.source in self._histories and rule.name not in self._no_past
        ]

    async def _past(
        self, rule_set: RuleSet, moments: Sequence[float], step: float
    ) -> dict[str, Sequence[Series] | None]:
        # What failed for one part is not asked for the next: a source that hangs would cost its
        # timeout for each of some hundred parts before the first tick.
        rules = self._with_past(rule_set)
        found = await asyncio.gather(*(self._past_of(rule, moments, step) for rule in rules))
        return {rule.name: series for rule, series in zip(rules, found, strict=True)}

    async def _past_of(
        self, rule: Rule, moments: Sequence[float], step: float
    ) -> Sequence[Series] | None:
        try:
            return await self._histories[rule.source].history(rule, moments[0], moments[-1], step)
        except PastUnknownError as error:
            self._no_past[rule.name] = str(error)
            return None

    async def tick(self, now: float | None = None) -> Snapshot:
        """One pass, evaluated at ``now`` (Unix seconds); the Snapshot that was published."""
        now = self._clock() if now is None else now
        began = self._monotonic()
        reloaded, refused = await self._look_at_the_rules()
        rule_set = self._rules_file.rule_set
        results = await self._fetch(rule_set)
        nodes = self._cluster.nodes()
        if self._dry_run:
            nodes = self._rehearsal.nodes(nodes)
        # In a thread: at 5,000 nodes this is some 100 ms, for which HTTP should not wait.
        decision = await asyncio.to_thread(decide, rule_set, results, nodes, self._alerts, now)
        self._alerts = decision.evaluation.alerts
        leading = self._leadership.may_write
        writes = leading and not self._dry_run
        written = await write_all(
            self._cluster,
            decision.patches if writes else (),
            replan=decision.replan,
            on_written=self._reporter.change,
        )
        # After the writes: no patch waits for log lines and Events.
        no_past, self._no_past = self._no_past, {}
        self._report_rules(rule_set, results, no_past)
        self._reporter.conflicts(decision, nodes, post_events=writes)
        self._reporter.cap(decision, post_events=writes)
        if writes:  # otherwise nothing was sent, so that nothing is known about writes
            self._reporter.unwritten(written.failures)
        if self._dry_run:
            self._reporter.rehearsed(decision.patches)
            self._rehearsal.write(decision.patches)
        self._ticks += 1
        nodes = self._cluster.nodes()
        if reloaded:
            self._disputes.forget()
        if writes:
            disputes = self._disputes.leading(written.applied, nodes, began)
        else:
            leader = None if self._dry_run else self._leadership.leader
            disputes = self._disputes.following(decision.patches, leader, began)
        self._reporter.disputed(disputes, nodes, post_events=writes)
        snapshot = Snapshot(
            taken_at=self._clock(),
            tick=self._ticks,
            duration=self._monotonic() - began,
            rule_set=rule_set,
            nodes=await asyncio.to_thread(decision.views, nodes.values()),
            rules=tuple(
                rule_health(
                    *(rule, results[rule.name], decision),
                    self._last_success.get(rule.name),
                    no_past.get(rule.name),
                )
                for rule in rule_set.rules
            ),
            unmatched=decision.unmatched,
            capped=decision.selection.capped,
            disputes=disputes,
            planned=decision.patches,
            applied=tuple(written.applied),
            failures=tuple(written.failures),
            error=self._error(rule_set, results, written, len(decision.patches)),
            dry_run=self._dry_run,
            leading=leading,
            leader=self._leadership.leader,
            rules_error=self._rules_file.error,
            reloaded=reloaded,
            refused=refused,
        )
        self._reporter.blind(blindness(snapshot))
        self._reporter.crowded(crowding(snapshot))
        self._publish(snapshot)
        return snapshot

    async def _look_at_the_rules(self) -> tuple[bool, bool]:
        """Look whether the rules file changed: (taken, refused)."""
        before = self._rules_file.error
        if await asyncio.to_thread(self._rules_file.changed):
            self._reporter.reloaded(self._rules_file.rule_set)
            return True, False
        error = self._rules_file.error
        if error is None or error == before:
            return False, False
        self._reporter.refused(error)
        return False, True

    def _follow_the_clock(self) -> None:
        """When the wall clock was set, or the machine slept, move what is remembered with it: an
        skipped hour must neither fire nor clear nor age an alert.
        """
        step = self._clock() - self._monotonic() - self._offset
        if abs(step) < CLOCK_STEP:
            return
        logger.warning("the clock was set by %+.0f s; alerts continue from where they were", step)
        self._offset += step
        self._alerts = shift(self._alerts, step)
        self._last_success = {name: at + step for name, at in self._last_success.items()}

    async def _fetch(self, rule_set: RuleSet) -> dict[str, QueryResult]:
        answers = await asyncio.gather(*(self._query(rule) for rule in rule_set.rules))
        now = self._clock()
        results = {rule.name: answer for rule, answer in zip(rule_set.rules, answers, strict=True)}
        succeeded = {name: now for name, found in results.items() if found.error is None}
        before = self._last_success.items()
        self._last_success = {name: at for name, at in before if name in results} | succeeded
        return results

    def _report_rules(
        self, rule_set: RuleSet, results: Mapping[str, QueryResult], no_past: Mapping[str, str]
    ) -> None:
        # A single pass has no source that counts bound pods: that is not reported as a failure.
        self._reporter.failing(
            {
                rule.name: results[rule.name].error
                for rule in rule_set.rules
                if rule.source in self._sources
            }
        )
        # Where a rule's query fails now, its failure is reported, and not its past beside it.
        self._reporter.past_unknown(
            {
                name: why
                for name, why in no_past.items()
                if name in results and results[name].error is None
            }
        )

    async def _query(self, rule: Rule) -> QueryResult:
        source = self._sources.get(rule.source)
        if source is None:
            return QueryResult(error=f"source {rule.source} is not set up in this process")
        try:
            return await source.query(rule)
        except Exception as error:
            # A source must not raise; if one does, its rule is unknown and all others go on.
            text = "rule %s: its source failed in an unexpected way"
            logger.exception(text, rule.name, extra={"rule": rule.name})
            return QueryResult(error=f"unexpected {type(error).__name__}: {error}")

    def _error(
        self,
        rule_set: RuleSet,
        results: Mapping[str, QueryResult],
        written: Written,
        planned: int,
    ) -> str | None:
        """Why a tick did not succeed. One rule of several that fails is that rule's health only."""
        asked = [results[rule.name] for rule in rule_set.rules if rule.traits.asked]
        errors = [result.error for result in asked if result.error is not None]
        if errors and len(errors) == len(asked):
            return f"no rule could be queried: {errors[0]}"
        if written.failures:
            count = len(written.failures)
            return f"{count} of {planned} nodes could not be written: {written.failures[0]}"
        return self._cluster.error or self._leadership.error
