"""What happened, in words: one log line and one Event a change, nothing while nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from dynsched.core import keys
from dynsched.core.decide import Decision
from dynsched.core.doubts import doubts
from dynsched.core.evidence import fired_rules
from dynsched.core.message_kind import ToldKinds
from dynsched.core.model import Action, Node, NodePatch, WriteFailure
from dynsched.core.rules import RuleSet
from dynsched.core.wording import by_reason, named_nodes, named_rules

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Where Events go. Never blocks, never fails: Events are best effort."""

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``; equal ones are aggregated by count."""

    def post_own(self, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event about dynsched itself."""


class _States:
    """What is so now, in words by name. Each is logged once, and once posted: by the process that
    may, also when it was so before.
    """

    def __init__(self) -> None:
        self._logged: Mapping[str, str] = {}
        self._posted: Mapping[str, str] = {}

    def update(
        self, states: Mapping[str, str], *, post_events: bool
    ) -> tuple[Mapping[str, str], Mapping[str, str], Sequence[str]]:
        """(what to log, what to post, the names of what has ended)."""
        to_log = _unlike(states, self._logged)
        ended = [name for name in self._logged if name not in states]
        new = _unlike(states, self._posted)
        self._logged = states
        self._posted = states if post_events else _unlike(states, new)
        return to_log, new if post_events else {}, ended


class _Troubles(_States):
    """The same of what is wrong. Each kind of trouble is logged once until all is well again: the
    numbers in it may change with every tick, or two kinds take turns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told = ToldKinds()

    def update(
        self, states: Mapping[str, str], *, post_events: bool
    ) -> tuple[Mapping[str, str], Mapping[str, str], Sequence[str]]:
        """(what to log, what to post, the names of what has ended)."""
        new = {name: text for name, text in states.items() if self._told.is_new(name, text)}
        _, to_post, ended = super().update(states, post_events=post_events)
        for name in ended:
            self._told.forget(name)
        return new, to_post, ended


def _unlike(states: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in states.items() if others.get(name) != text}


def _rules_update(
    states: _States, troubles: Mapping[str, str | None]
) -> tuple[Mapping[str, str], Sequence[str]]:
    """(trouble that begins, by rule; the rules whose trouble is over). ``troubles`` by rule, None
    where there is none; of a rule that is not in it (any more) nothing can be said.
    """
    present = {name: text for name, text in troubles.items() if text is not None}
    begun, _, ended = states.update(present, post_events=False)
    return begun, [name for name in ended if name in troubles]


def _field(names: Sequence[str]) -> dict[str, str | Sequence[str]]:
    """The field ``rule`` of a log line in JSON: a name, or a list where there are several."""
    return {"rule": names[0] if len(names) == 1 else names}


def _fired(patch: NodePatch) -> Sequence[str]:
    """The rules that a mark is for, as the evidence names them; none where a mark goes."""
    annotations = patch.body["metadata"].get("annotations") or {}
    written = annotations.get(keys.EVIDENCE_ANNOTATION)
    return fired_rules(written) if written is not None else ()


def tell_doubts(rule_set: RuleSet) -> None:
    """Rules that will hardly do what was meant: at the start, and when they are reloaded."""
    for doubt in doubts(rule_set):
        logger.warning("rule %s: %s", doubt.rule, doubt.message, extra={"rule": doubt.rule})


def _place(pool: str) -> str:
    return f"pool {pool}" if pool else "the cluster"


class Reporter:
    """Remembers what was told, so that nothing is told twice.

    ``post_events`` False: only the log; for dry runs, and for replicas that do not lead (each would
    post the same Event).
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._conflicts = _States()
        self._disputes = _States()
        self._disputed: Mapping[str, str] = {}
        self._capped = _States()
        self._failing = _Troubles()
        self._blind = _Troubles()
        self._crowded = _Troubles()
        self._unwritten = ToldKinds()

    def change(self, node: Node, patch: NodePatch) -> None:
        """A mark was set, repaired or released. Where that is in dispute, it happens at every tick,
        and the log has a line about the dispute instead.
        """
        rules = _fired(patch)
        about = {"node": node.name} | (_field(rules) if rules else {})
        level = logging.DEBUG if node.name in self._disputed else logging.INFO
        logger.log(
            level, "%s node %s: %s", patch.action.value, node.name, patch.reason, extra=about
        )
        if patch.action is Action.RELEASE:
            self._events.post(node, reason=keys.REASON_RELIEVED, message=patch.reason)
        elif patch.action is Action.MARK:
            self._events.post(
                node, reason=keys.REASON_PRESSURED, message=patch.reason, warning=True
            )
        else:
            message = f"the mark is brought up to date: {patch.reason}"
            self._events.post(node, reason=keys.REASON_REPAIRED, message=message)

    def rehearsed(self, patches: Sequence[NodePatch]) -> None:
        """What a dry run would write now, and would not have written before."""
        for patch in patches:
            logger.info("would %s node %s: %s", patch.action.value, patch.node, patch.reason)

    def conflicts(
        self, decision: Decision, nodes: Mapping[str, Node], *, post_events: bool
    ) -> None:
        """Somebody else's label or taint stands in our place."""
        begun, to_post, _ = self._conflicts.update(decision.conflicts, post_events=post_events)
        for name, conflict in begun.items():
            logger.warning("node %s is left alone: %s", name, conflict, extra={"node": name})
        for name, conflict in to_post.items():
            self._events.post(
                nodes[name],
                reason=keys.REASON_CONFLICT,
                message=f"left alone: {conflict}",
                warning=True,
            )

    def disputed(
        self, disputes: Mapping[str, str], nodes: Mapping[str, Node], *, post_events: bool
    ) -> None:
        """Somebody else seems to decide on the same marks. One line for all nodes of which the same
        is to be said; the Event is on each.
        """
        self._disputed = disputes
        begun, to_post, ended = self._disputes.update(disputes, post_events=post_events)
        for text in dict.fromkeys(begun.values()):
            names = [name for name, of_it in begun.items() if of_it == text]
            logger.warning("%s: %s", named_nodes(names), text)
        for name, text in to_post.items():
            self._events.post(nodes[name], reason=keys.REASON_DISPUTED, message=text, warning=True)
        if ended:
            logger.info("%s: nobody disputes the mark any more", named_nodes(ended))

    def cap(self, decision: Decision, *, post_events: bool) -> None:
        """More nodes are under pressure than may be marked: the cluster as a whole is hot."""
        max_marked = decision.rule_set.guard.max_marked
        capped = {
            pool: f"{_place(pool)} is hot: more nodes are under pressure than guard.max_marked "
            f"{max_marked} allows to mark"
            for pool in sorted(decision.selection.capped)
        }
        begun, to_post, ended = self._capped.update(capped, post_events=post_events)
        for message in begun.values():
            logger.warning("%s", message)
        for message in to_post.values():
            self._events.post_own(reason=keys.REASON_CLUSTER_HOT, message=message, warning=True)
        for pool in ended:
            logger.info("%s is no longer hot as a whole", _place(pool))

    def failing(self, errors: Mapping[str, str | None]) -> None:
        """Rules begin to fail, fail in another way, or answer again. An error that several rules
        share (a wrong URL) is one line.
        """
        begun, ended = _rules_update(self._failing, errors)
        for error, names in by_reason(begun).items():
            logger.warning(
                "%s cannot be queried: %s", named_rules(names), error, extra=_field(names)
            )
        if ended:
            answer = "answers" if len(ended) == 1 else "answer"
            logger.info("%s %s again", named_rules(ended), answer, extra=_field(ended))

    def past_unknown(self, errors: Mapping[str, str]) -> None:
        """Rules that answer, but whose past could not be had at the start."""
        for error, names in by_reason(errors).items():
            whose = "its past" if len(names) == 1 else "their past"
            logger.warning(
                "%s: %s could not be had, so durations count from now: %s",
                *(named_rules(names), whose, error),
                extra=_field(names),
            )

    def blind(self, reasons: Mapping[str, str | None]) -> None:
        """A rule begins to know nothing of any node although its query answers, or knows again."""
        begun, ended = _rules_update(self._blind, reasons)
        for name, reason in begun.items():
            logger.warning(
                "rule %s says nothing of any node: %s", name, reason, extra={"rule": name}
            )
        for name in ended:
            logger.info("rule %s says something of nodes again", name, extra={"rule": name})

    def crowded(self, reasons: Mapping[str, str | None]) -> None:
        """A rule begins to have several series for one node, or has one per node again."""
        begun, ended = _rules_update(self._crowded, reasons)
        for name, text in begun.items():
            logger.warning(
                "rule %s has more than one series for a node: %s", name, text, extra={"rule": name}
            )
        for name in ended:
            logger.info("rule %s has one series per node again", name, extra={"rule": name})

    def unwritten(self, failures: Sequence[WriteFailure]) -> None:
        """Writes begin to fail, fail in another way, or are taken again. Which nodes, and how many,
        may differ from tick to tick: that is in `/status`, and not told again here.
        """
        new = [
            failure
            for failure in failures
            if self._unwritten.is_new("nodes", failure.cause.replace(failure.node, "'it'"))
        ]
        if new:
            text = "writes that fail: %d, among them: %s"
            among = "; ".join(map(str, new))
            logger.warning(text, len(failures), among, extra={"node": new[0].node})
        if not failures and self._unwritten.forget("nodes"):
            logger.info("no write fails any more")

    def reloaded(self, rule_set: RuleSet) -> None:
        """The rules file changed, and its new content is at work."""
        logger.info("rules reloaded: %s", ", ".join(rule.name for rule in rule_set.rules))
        tell_doubts(rule_set)
        count = len(rule_set.rules)
        message = f"{count} rules are at work" if count > 1 else "1 rule is at work"
        self._events.post_own(reason=keys.REASON_RULES_RELOADED, message=message)

    def refused(self, error: str) -> None:
        """The rules file changed, and its new content cannot be used."""
        logger.error("the new rules are refused, the old ones stay at work:\n%s", error)
        self._events.post_own(reason=keys.REASON_RULES_REFUSED, message=error, warning=True)
