"""One tick: fetch -> match -> alerts -> guard -> plan -> apply -> publish."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dynsched.controller.apply import Written, write_all
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.reporting import Reporter
from dynsched.controller.restore import PastSources, past_alerts
from dynsched.controller.step_down import StepDownTimer
from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.disputes import Disputes
from dynsched.engine.alerting.guard import Chosen, WriteLimiter
from dynsched.engine.decide import decide
from dynsched.engine.health import rules_health, why_unsuccessful
from dynsched.engine.load.expected import NO_PODS, KnownPods
from dynsched.engine.model import Action, Order, QueryResult
from dynsched.engine.nodes.inventory import Inventory
from dynsched.engine.snapshot import Decision, NodeViews, Snapshot
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.events import NodeEvents
from dynsched.kube.leader import Elector, NoElection
from dynsched.rules.fields import SourceName
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.rules.rule_set import NO_RULES, NONE_IN_FORCE, Rule, RuleSet
from dynsched.util.stopping import pause, until_so

logger = logging.getLogger(__name__)

RESPONSE: Final = 1.0
"""Seconds between two decisions at least, while pods are bound and end. With 2, more pods go to the
node that was the coolest before (docs/decisions/0022-the-order-is-a-kind-of-its-own.md)."""
POLL: Final = 0.25
"""Seconds between two looks whether pods were bound or ended."""
RESPONSE_SHARE: Final = 10
"""To decide and to work out what is published may take one such part of the time; else the next
decision comes later."""
CLOCK_STEP: Final = 5.0
"""Seconds; less is the clock's ordinary drift against the monotonic one."""


class Source(Protocol):
    async def query(self, rule: Rule) -> QueryResult:
        """One aggregate query. A bad answer is a QueryResult with an error, never an exception."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is decided on: the rules and what their queries gave, ``at`` which time (Unix seconds);
    when (monotonic) the work on it began; whether the rules file was just reloaded or refused;
    whether it was decided on before.
    """

    rule_set: RuleSet
    results: Mapping[str, QueryResult]
    at: float
    began: float
    reloaded: bool = False
    refused: bool = False
    again: bool = False


class Loop:
    """Ticks, and what is remembered from one to the next: above all, the alerts.

    ``sources`` and ``histories`` by the rules' ``source``; ``publish`` is called with every tick's
    Snapshot; ``pods`` None: nothing is known of pods. ``dry_run``: decide, tell and publish as if
    all were written, and write nothing.
    """

    def __init__(
        self,
        rules_file: RulesFile | FixedRules,
        *,
        sources: Mapping[SourceName, Source],
        histories: PastSources,
        cluster: NodeCluster,
        events: NodeEvents,
        leadership: Elector | NoElection,
        publish: Callable[[Snapshot], None],
        pods: PodTracking | None = None,
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules_file = rules_file
        self._sources = sources
        self._histories = histories
        self._no_past: Mapping[str, str] = {}
        self._refused: str | None = None
        self._cluster = cluster
        self._reporter = Reporter(events)
        self._leadership = leadership
        self._publish = publish
        self._pods = pods
        self._overlay: PretendedWrites | None = None
        if dry_run:
            from dynsched.engine.alerting.dry_run import PretendedWrites

            self._overlay = PretendedWrites()
        self._clock = clock
        self._monotonic = monotonic
        self._offset = clock() - monotonic()
        self._alerts = no_alerts()
        self._disputes = Disputes()
        self._step_down = StepDownTimer()
        self._pace = WriteLimiter()
        self._last_success: dict[str, float] = {}
        self._ticks = self._released = self._pod_changes = 0
        self._answers: _Answers | None = None
        self._decided_in = self._decided_at = 0.0
        self._inventory: Inventory | None = None

    async def run(self, stop: asyncio.Event, interval: float) -> None:
        """Tick every ``interval`` seconds, from start to start, until ``stop`` is set. A tick that
        takes longer is followed by the next at once; those that were missed are not made up for.
        """
        await until_so(stop, lambda: self._cluster.synced)
        if not stop.is_set():
            await self.remember(interval)
        due = self._monotonic()
        while not stop.is_set():
            self._follow_the_clock()
            # The time at which it was due, not the one at which it came to run: else a tick that
            # starts a millisecond early would find `for` not yet over, and fire a tick too late.
            await self.tick(self._offset + due)
            due = max(due + interval, self._monotonic())
            await self._respond_until(stop, due)

    async def remember(self, interval: float) -> None:
        """Rebuild the alerts as if ticks had gone on all along, every ``interval`` seconds."""
        rule_set, nodes = self._rules_file.rule_set, self._cluster.nodes()
        alerts, self._no_past = await past_alerts(
            self._histories, rule_set, nodes, now=self._clock(), interval=interval
        )
        self._alerts = self._alerts if alerts is None else alerts

    async def tick(self, now: float | None = None) -> Snapshot:
        """One pass, evaluated at ``now`` (Unix seconds); the Snapshot that was published."""
        # The memory of the last answers is free before the next ones are fetched.
        self._answers, self._released = None, 0
        at, began = self._clock() if now is None else now, self._monotonic()
        reloaded, refused = await self._read_rules()
        rule_set = self._rules_file.rule_set
        results = await self._fetch(rule_set)
        answers = _Answers(rule_set, results, at, began, reloaded, refused)
        self._answers = answers
        snapshot = await self._act(answers)
        self._step_down_if_blind(answers)
        return snapshot

    async def respond(self) -> None:
        """Decide again on the last answers, if a mark or the order goes by the expected load, and
        pods were bound or ended since. It is evaluated at the time of the tick: values that are not
        new must not let `for` run out.
        """
        last = self._answers
        if last is None or self._pods is None:
            return
        if not (last.rule_set.has_expected or last.rule_set.order):
            return
        began = self._monotonic()
        if self._pods.sequence != self._pod_changes and began - self._decided_at >= self._rest:
            await self._act(replace(last, began=began, reloaded=False, refused=False, again=True))

    async def _act(self, answers: _Answers) -> Snapshot:
        pods = NO_PODS
        if self._pods is not None and answers.rule_set.uses_expected_load:
            pods = self._pods.known(self._now() - answers.at)
        decision = await self._decide(answers, pods)
        leading = self._leadership.may_write
        chosen = Chosen(decision.patches)  # on a follower all are told as due, and none is sent
        if leading or self._overlay:
            per_minute = answers.rule_set.guard.max_writes_per_minute
            chosen = self._pace.choose(decision.patches, per_minute, answers.began)
            decision = decision.without(chosen.delayed) if chosen.delayed else decision
        self._released += sum(patch.action is Action.RELEASE for patch in chosen.patches)
        if self._overlay:
            self._overlay.write(chosen.patches)
        written = await write_all(
            self._cluster,
            chosen.patches if leading and not self._overlay else (),
            replan=decision.replan,
            on_written=self._reporter.change,
        )
        self._pace.refused(written.failures, written.untried, answers.began)
        began = self._monotonic()
        snapshot = await self._snapshot(answers, pods, decision, chosen, written, leading=leading)
        self._decided_in += self._monotonic() - began
        self._inventory = snapshot.nodes.inventory
        self._reporter.tick(snapshot)  # after the writes: no patch waits for log lines and Events
        self._publish(snapshot)
        return snapshot

    async def _decide(self, answers: _Answers, pods: KnownPods) -> Decision:
        began = self._monotonic()
        nodes = self._cluster.nodes()
        if self._overlay:
            nodes = self._overlay.nodes(nodes)
        # In a thread: 2 to 6 ms at 5,000 nodes, and more for more, for which HTTP should not wait.
        decision = await asyncio.to_thread(
            decide,
            answers.rule_set,
            answers.results,
            nodes,
            self._alerts,
            answers.at,
            pods=pods,
            released=self._released,
            before=self._inventory,
        )
        # Without the time of queries and writes: a server that is slow is no load on this machine.
        self._decided_at = self._monotonic()
        self._decided_in, self._pod_changes = self._decided_at - began, pods.sequence
        self._alerts = decision.verdicts.alerts
        return decision

    async def _snapshot(
        self,
        answers: _Answers,
        pods: KnownPods,
        decision: Decision,
        chosen: Chosen,
        written: Written,
        *,
        leading: bool,
    ) -> Snapshot:
        rule_set, results, dry_run = answers.rule_set, answers.results, self._overlay is not None
        nodes, leader = self._cluster.nodes(), self._leadership.leader
        failures = (*written.failures, *chosen.refused)
        no_past, self._no_past = self._no_past, {}  # told once
        self._ticks += 1
        views = await asyncio.to_thread(decision.views, nodes)
        return Snapshot(
            taken_at=self._clock(),
            tick=self._ticks,
            duration=self._monotonic() - answers.began,
            rule_set=rule_set,
            nodes=views,
            rules=rules_health(rule_set, results, decision, self._last_success, no_past),
            unmatched=decision.unmatched,
            capped=decision.selection.capped,
            disputes=self._disputed(answers, decision, written, leading=leading),
            planned=chosen.patches if dry_run else decision.patches,
            applied=tuple(written.applied),
            failures=failures,
            delayed=len(chosen.delayed),
            error=why_unsuccessful(rule_set, results, failures, len(decision.patches))
            or self._cluster.error
            or self._leadership.error,
            dry_run=dry_run,
            leading=leading,
            leader=leader,
            rules_error=self._rules_error,
            reloaded=answers.reloaded,
            refused=answers.refused,
            queried=not answers.again,
            order=await _order(views, pods),
            pods=pods,
        )

    def _disputed(
        self, answers: _Answers, decision: Decision, written: Written, *, leading: bool
    ) -> Mapping[str, str]:
        if answers.reloaded:
            self._disputes.forget()
        dry_run = self._overlay is not None
        if leading and not dry_run:
            return self._disputes.leading(written.applied, self._cluster.nodes(), answers.began)
        # By the expected load two replicas may rightly decide otherwise: they saw other moments.
        differ = () if answers.rule_set.has_expected else decision.patches
        others = None if dry_run else self._leadership.leader
        return self._disputes.following(differ, others, answers.began)

    async def _read_rules(self) -> tuple[bool, bool]:
        """Read the rules file if it changed: (taken, refused)."""
        is_new = await asyncio.to_thread(self._rules_file.changed)
        before, self._refused = self._refused, self._rules_error
        if is_new:
            self._reporter.reloaded(self._rules_file.rule_set, self._rules_file.warnings)
        elif self._refused is not None and self._refused != before:
            self._reporter.refused(self._refused)
            return False, True
        return is_new, False

    @property
    def _rules_error(self) -> str | None:
        error = self._rules_file.error
        return f"{NONE_IN_FORCE}: {error}" if self._rules_file.rule_set is NO_RULES else error

    async def _fetch(self, rule_set: RuleSet) -> dict[str, QueryResult]:
        rules = rule_set.rules
        if rule_set is NO_RULES:
            answers = [QueryResult(error="; ".join((self._rules_error or "").splitlines()))]
        else:
            answers = await asyncio.gather(*map(self._query, rules))
        now = self._now()
        results = {rule.name: answer for rule, answer in zip(rules, answers, strict=True)}
        self._last_success = {
            name: now if found.error is None else self._last_success[name]
            for name, found in results.items()
            if found.error is None or name in self._last_success
        }
        return results

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

    def _step_down_if_blind(self, answers: _Answers) -> None:
        sees = any(answers.results[r.name].error is None for r in answers.rule_set.asked_rules)
        if self._step_down.is_due(self._monotonic(), sees=sees, leads=self._leadership.may_write):
            logger.warning("no rule can be asked: the Lease is given up for another replica")
            self._leadership.step_down()

    async def _respond_until(self, stop: asyncio.Event, until: float) -> None:
        """Until the next tick, decide again as soon as pods were bound or ended: the next pods
        should not all go to the node that was the best before.
        """
        while (left := until - self._monotonic()) > 0 and not stop.is_set():
            await pause(stop, min(left, POLL))
            if left > self._rest and not stop.is_set():
                await self.respond()

    @property
    def _rest(self) -> float:
        """Seconds from one decision to the next."""
        return max(RESPONSE, RESPONSE_SHARE * self._decided_in)

    def _now(self) -> float:
        """Unix seconds by which all of a tick is decided: it may be set before the next one."""
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
        self._alerts = self._alerts.shifted(step)
        self._last_success = {name: at + step for name, at in self._last_success.items()}


async def _order(views: NodeViews, pods: KnownPods) -> Order | None:
    if views.inventory.rule_set.order is None:
        return None
    from dynsched.engine.placing.order import order_of

    return await asyncio.to_thread(order_of, views, pods)
