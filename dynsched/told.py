"""What happened, in words: one log line and one Event a change, nothing while nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from dynsched.core import keys
from dynsched.core.decide import Decision
from dynsched.core.model import Action, Node, NodePatch
from dynsched.core.rules import RuleSet

logger = logging.getLogger(__name__)

MOST_NAMED: Final = 5
"""Nodes that one line names, of all that it is about."""


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
        self, states: Mapping[str, str], *, aloud: bool
    ) -> tuple[Mapping[str, str], Mapping[str, str], Sequence[str]]:
        """(what to log, what to post, the names of what has ended)."""
        to_log = _unlike(states, self._logged)
        ended = [name for name in self._logged if name not in states]
        new = _unlike(states, self._posted)
        self._logged = states
        self._posted = states if aloud else _unlike(states, new)
        return to_log, new if aloud else {}, ended


def _unlike(states: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in states.items() if others.get(name) != text}


def _tell_rules(
    states: _States, troubles: Mapping[str, str | None], trouble: str, over: str
) -> None:
    """Log what begins and ends. ``troubles`` by rule, None where there is none; of a rule that is
    not in it (any more) nothing can be said.
    """
    present = {name: text for name, text in troubles.items() if text is not None}
    begun, _, ended = states.update(present, aloud=False)
    for name, text in begun.items():
        logger.warning("rule %s %s: %s", name, trouble, text)
    for name in ended:
        if name in troubles:
            logger.info("rule %s %s", name, over)


def _some(names: Sequence[str]) -> str:
    first = ", ".join(names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return f"node{'s' * (len(names) > 1)} {first}" + (f" and {more} more" if more > 0 else "")


def _place(pool: str) -> str:
    return f"pool {pool}" if pool else "the cluster"


class Teller:
    """Remembers what was told, so that nothing is told twice.

    ``aloud`` False: only the log; for dry runs, and for replicas that do not lead (each would
    post the same Event).
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._conflicts = _States()
        self._disputes = _States()
        self._disputed: Mapping[str, str] = {}
        self._failing = _States()
        self._capped = _States()
        self._blind = _States()
        self._unwritten = ""

    def change(self, node: Node, patch: NodePatch) -> None:
        """A mark was set, repaired or released. Where that is in dispute, it happens at every tick,
        and the log has a line about the dispute instead.
        """
        level = logging.DEBUG if node.name in self._disputed else logging.INFO
        logger.log(level, "%s node %s: %s", patch.action.value, node.name, patch.reason)
        if patch.action is Action.RELEASE:
            self._events.post(node, reason=keys.REASON_RELIEVED, message=patch.reason)
        elif patch.action is Action.MARK:
            self._events.post(
                node, reason=keys.REASON_PRESSURED, message=patch.reason, warning=True
            )
        else:
            message = f"the mark is brought up to date: {patch.reason}"
            self._events.post(node, reason=keys.REASON_REPAIRED, message=message)

    def conflicts(self, decision: Decision, nodes: Mapping[str, Node], *, aloud: bool) -> None:
        """Somebody else's label or taint stands in our place."""
        begun, to_post, _ = self._conflicts.update(decision.conflicts, aloud=aloud)
        for name, conflict in begun.items():
            logger.warning("node %s is left alone: %s", name, conflict)
        for name, conflict in to_post.items():
            self._events.post(
                nodes[name],
                reason=keys.REASON_CONFLICT,
                message=f"left alone: {conflict}",
                warning=True,
            )

    def disputed(
        self, disputes: Mapping[str, str], nodes: Mapping[str, Node], *, aloud: bool
    ) -> None:
        """Somebody else seems to decide on the same marks. One line for all nodes of which the same
        is to be said; the Event is on each.
        """
        self._disputed = disputes
        begun, to_post, ended = self._disputes.update(disputes, aloud=aloud)
        for text in dict.fromkeys(begun.values()):
            names = [name for name, of_it in begun.items() if of_it == text]
            logger.warning("%s: %s", _some(names), text)
        for name, text in to_post.items():
            self._events.post(nodes[name], reason=keys.REASON_DISPUTED, message=text, warning=True)
        if ended:
            logger.info("%s: nobody disputes the mark any more", _some(ended))

    def cap(self, decision: Decision, *, aloud: bool) -> None:
        """More nodes are under pressure than may be marked: the cluster as a whole is hot."""
        max_marked = decision.rule_set.guard.max_marked
        capped = {
            pool: f"{_place(pool)} is hot: more nodes are under pressure than guard.max_marked "
            f"{max_marked} allows to mark"
            for pool in sorted(decision.selection.capped)
        }
        begun, to_post, ended = self._capped.update(capped, aloud=aloud)
        for message in begun.values():
            logger.warning("%s", message)
        for message in to_post.values():
            self._events.post_own(reason=keys.REASON_CLUSTER_HOT, message=message, warning=True)
        for pool in ended:
            logger.info("%s is no longer hot as a whole", _place(pool))

    def failing(self, errors: Mapping[str, str | None]) -> None:
        """A rule begins to fail, fails in another way, or answers again."""
        _tell_rules(self._failing, errors, "cannot be queried", "answers again")

    def blind(self, reasons: Mapping[str, str | None]) -> None:
        """A rule begins to know nothing of any node although its query answers, or knows again."""
        _tell_rules(
            self._blind, reasons, "says nothing of any node", "says something of nodes again"
        )

    def unwritten(self, failures: Sequence[str]) -> None:
        """Writes begin to fail, fail in another way, or are taken again. Which nodes, and how many,
        may differ from tick to tick: that is in `/status`, and not told again here.
        """
        node, _, cause = failures[0].partition(": ") if failures else ("", "", "")
        kind = cause.replace(node, "") if node else ""
        if kind and kind != self._unwritten:
            logger.warning("writes that fail: %d, the first: %s", len(failures), failures[0])
        elif self._unwritten and not kind:
            logger.info("no write fails any more")
        self._unwritten = kind

    def reloaded(self, rule_set: RuleSet) -> None:
        """The rules file changed, and its new content is at work."""
        logger.info("rules reloaded: %s", ", ".join(rule.name for rule in rule_set.rules))
        self._events.post_own(
            reason=keys.REASON_RULES_RELOADED, message=f"{len(rule_set.rules)} rules are at work"
        )

    def refused(self, error: str) -> None:
        """The rules file changed, and its new content cannot be used."""
        logger.error("the new rules are refused, the old ones stay at work:\n%s", error)
        self._events.post_own(reason=keys.REASON_RULES_REFUSED, message=error, warning=True)
