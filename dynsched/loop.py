"""One tick: fetch -> match -> evaluate -> plan -> apply -> publish.

The loop knows no shell: it declares here the Protocols that it consumes, and `app` hands them in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dynsched.core import keys
from dynsched.core.decide import Decision, decide, rule_health
from dynsched.core.evaluate import Alerts, shift
from dynsched.core.model import Action, Node, NodePatch, QueryResult, Snapshot
from dynsched.core.rules import Rule, RuleSet
from dynsched.writer import NodeStorage, write_all

logger = logging.getLogger(__name__)

SYNC_POLL: Final = 0.1
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

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; a view that does not change under the caller's hands."""


class EventSink(Protocol):
    """Where Events about nodes go. Never blocks, never fails: Events are best effort."""

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``; equal ones are aggregated by count."""


class Loop:
    """Ticks, and what is remembered from one to the next: the alerts.

    ``sources`` by the rules' ``source``; ``publish`` is called with every tick's Snapshot.
    ``dry_run``: decide and publish, write nothing.
    """

    def __init__(
        self,
        rule_set: RuleSet,
        *,
        sources: Mapping[str, Source],
        cluster: Cluster,
        events: EventSink,
        publish: Callable[[Snapshot], None],
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rule_set = rule_set
        self._sources = sources
        self._cluster = cluster
        self._events = events
        self._publish = publish
        self._dry_run = dry_run
        self._clock = clock
        self._monotonic = monotonic
        self._offset = clock() - monotonic()
        self._alerts: Alerts = {}
        self._last_success: dict[str, float] = {}
        self._conflicts: Mapping[str, str] = {}
        self._failing: dict[str, str] = {}
        self._ticks = 0

    async def run(self, stop: asyncio.Event, interval: float) -> None:
        """Tick every ``interval`` seconds, from start to start, until ``stop`` is set.

        Ticks never overlap; one that takes longer than the interval is followed by the next at
        once, and those that were missed are not made up for.
        """
        await self.wait_until_synced(stop)
        due = self._monotonic()
        while not stop.is_set():
            self._follow_the_clock()
            # The time at which it was due, not the one at which it came to run: else a tick that
            # starts a millisecond early would find `for` not yet over, and fire a tick too late.
            await self.tick(self._offset + due)
            due = max(due + interval, self._monotonic())
            await _wait(stop, due - self._monotonic())

    async def wait_until_synced(self, stop: asyncio.Event) -> None:
        """Return when the first list of nodes is complete, or ``stop`` is set."""
        while not self._cluster.synced and not stop.is_set():
            await _wait(stop, SYNC_POLL)

    async def tick(self, now: float | None = None) -> Snapshot:
        """One pass, evaluated at ``now`` (Unix seconds); the Snapshot that was published."""
        now = self._clock() if now is None else now
        rule_set = self._rule_set
        began = self._monotonic()
        results = await self._fetch(rule_set)
        nodes = self._cluster.nodes()
        # In a thread: at 5,000 nodes this is some 100 ms, for which HTTP should not wait.
        decision = await asyncio.to_thread(decide, rule_set, results, nodes, self._alerts, now)
        self._alerts = decision.evaluation.alerts
        self._tell_conflicts(decision, nodes)
        written = await write_all(
            self._cluster,
            () if self._dry_run else decision.patches,
            replan=decision.replan,
            told=self._tell_change,
        )
        self._ticks += 1
        nodes = self._cluster.nodes()
        snapshot = Snapshot(
            taken_at=self._clock(),
            tick=self._ticks,
            duration=self._monotonic() - began,
            rule_set=rule_set,
            nodes=await asyncio.to_thread(decision.views, nodes.values()),
            rules=tuple(
                rule_health(rule, results[rule.name], decision, self._last_success.get(rule.name))
                for rule in rule_set.rules
            ),
            unmatched=decision.unmatched,
            capped=decision.selection.capped,
            planned=decision.patches,
            applied=tuple(written.applied),
            failures=tuple(written.failures),
            error=_error(results, written.failures, len(decision.patches)),
            dry_run=self._dry_run,
        )
        self._publish(snapshot)
        return snapshot

    def _follow_the_clock(self) -> None:
        """When the wall clock was set, or the machine slept, move what is remembered with it: an
        hour that nobody lived through must neither fire nor clear nor age an alert.
        """
        step = self._clock() - self._monotonic() - self._offset
        if abs(step) < CLOCK_STEP:
            return
        logger.warning("the clock moved by %+.0f s; alerts go on from where they were", step)
        self._offset += step
        self._alerts = shift(self._alerts, step)
        self._last_success = {name: at + step for name, at in self._last_success.items()}

    async def _fetch(self, rule_set: RuleSet) -> dict[str, QueryResult]:
        answers = await asyncio.gather(*(self._query(rule) for rule in rule_set.rules))
        now = self._clock()
        for rule, answer in zip(rule_set.rules, answers, strict=True):
            self._tell_health(rule, answer)
            if answer.error is None:
                self._last_success[rule.name] = now
        return {rule.name: answer for rule, answer in zip(rule_set.rules, answers, strict=True)}

    async def _query(self, rule: Rule) -> QueryResult:
        source = self._sources.get(rule.source)
        if source is None:
            return QueryResult(error=f"source {rule.source} is not set up in this process")
        try:
            return await source.query(rule)
        except Exception as error:
            # A source must not raise; if one does, its rule is unknown and all others go on.
            logger.exception("rule %s: its source failed in an unexpected way", rule.name)
            return QueryResult(error=f"unexpected {type(error).__name__}: {error}")

    def _tell_change(self, node: Node, patch: NodePatch) -> None:
        logger.info("%s node %s: %s", patch.action.value, node.name, patch.reason)
        if patch.action is Action.RELEASE:
            self._events.post(node, reason=keys.REASON_RELIEVED, message=patch.reason)
        elif patch.action is Action.MARK:
            self._events.post(
                node, reason=keys.REASON_PRESSURED, message=patch.reason, warning=True
            )

    def _tell_conflicts(self, decision: Decision, nodes: Mapping[str, Node]) -> None:
        """Once when it appears; while it stays it is in `/nodes` and in the metrics."""
        for name, conflict in decision.conflicts.items():
            if self._conflicts.get(name) == conflict:
                continue
            logger.warning("node %s is left alone: %s", name, conflict)
            if not self._dry_run:
                self._events.post(
                    nodes[name],
                    reason=keys.REASON_CONFLICT,
                    message=f"left alone: {conflict}",
                    warning=True,
                )
        self._conflicts = decision.conflicts

    def _tell_health(self, rule: Rule, answer: QueryResult) -> None:
        """Once when a rule begins to fail, when its error changes, and when it answers again."""
        before = self._failing.get(rule.name)
        if answer.error is None:
            if before is not None:
                logger.info("rule %s answers again", rule.name)
                del self._failing[rule.name]
        elif answer.error != before:
            logger.warning("rule %s cannot be queried: %s", rule.name, answer.error)
            self._failing[rule.name] = answer.error


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    except TimeoutError:
        return


def _error(results: Mapping[str, QueryResult], failures: list[str], planned: int) -> str | None:
    """Why a tick did not succeed. One rule of several that fails is that rule's health only."""
    errors = [result.error for result in results.values() if result.error is not None]
    if errors and len(errors) == len(results):
        return f"no rule could be queried: {errors[0]}"
    if failures:
        return f"{len(failures)} of {planned} nodes could not be written: {failures[0]}"
    return None
