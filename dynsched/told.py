"""What happened, in words: one log line and one Event a change, nothing while nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from dynsched.core import keys
from dynsched.core.decide import Decision
from dynsched.core.model import Action, Node, NodePatch, QueryResult
from dynsched.core.rules import Rule, RuleSet

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Where Events go. Never blocks, never fails: Events are best effort."""

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``; equal ones are aggregated by count."""

    def post_own(self, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event about dynsched itself."""


class Teller:
    """Remembers what was told, so that nothing is told twice.

    ``aloud`` False: only the log; for dry runs, and for replicas that do not lead (each would
    post the same Event).
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._conflicts: Mapping[str, str] = {}
        self._failing: dict[str, str] = {}
        self._capped: frozenset[str] = frozenset()

    def change(self, node: Node, patch: NodePatch) -> None:
        """A mark was set, repaired or released."""
        logger.info("%s node %s: %s", patch.action.value, node.name, patch.reason)
        if patch.action is Action.RELEASE:
            self._events.post(node, reason=keys.REASON_RELIEVED, message=patch.reason)
        elif patch.action is Action.MARK:
            self._events.post(
                node, reason=keys.REASON_PRESSURED, message=patch.reason, warning=True
            )

    def conflicts(self, decision: Decision, nodes: Mapping[str, Node], *, aloud: bool) -> None:
        """Somebody else's label or taint stands in our place."""
        for name, conflict in decision.conflicts.items():
            if self._conflicts.get(name) == conflict:
                continue
            logger.warning("node %s is left alone: %s", name, conflict)
            if aloud:
                self._events.post(
                    nodes[name],
                    reason=keys.REASON_CONFLICT,
                    message=f"left alone: {conflict}",
                    warning=True,
                )
        self._conflicts = decision.conflicts

    def cap(self, decision: Decision, *, aloud: bool) -> None:
        """More nodes are under pressure than may be marked: the cluster as a whole is hot."""
        capped = decision.selection.capped
        for pool in sorted(capped - self._capped):
            where = f"pool {pool}" if pool else "the cluster"
            message = (
                f"{where} is hot: more nodes are under pressure than guard.max_marked "
                f"{decision.rule_set.guard.max_marked} allows to mark"
            )
            logger.warning("%s", message)
            if aloud:
                self._events.post_own(reason=keys.REASON_CLUSTER_HOT, message=message, warning=True)
        for pool in sorted(self._capped - capped):
            logger.info("%s is no longer hot as a whole", f"pool {pool}" if pool else "the cluster")
        self._capped = capped

    def health(self, rule: Rule, answer: QueryResult) -> None:
        """A rule begins to fail, fails in another way, or answers again."""
        before = self._failing.pop(rule.name, None)
        if answer.error is not None:
            self._failing[rule.name] = answer.error
            if answer.error != before:
                logger.warning("rule %s cannot be queried: %s", rule.name, answer.error)
        elif before is not None:
            logger.info("rule %s answers again", rule.name)

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
