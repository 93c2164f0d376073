"""What happened, in words: one log line and one Event a change, nothing while nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dynsched.core import keys
from dynsched.core.decide import Decision
from dynsched.core.doubts import doubts
from dynsched.core.evidence import fired_rules
from dynsched.core.model import Action, Node, NodePatch
from dynsched.core.rules import RuleSet

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
    states: _States, troubles: Mapping[str, str | None], trouble: _Words, over: _Words
) -> None:
    """Log what begins and ends; rules that have the same trouble share a line. ``troubles`` by
    rule, None where there is none; of a rule that is not in it (any more) nothing can be said.
    """
    present = {name: text for name, text in troubles.items() if text is not None}
    begun, _, ended = states.update(present, aloud=False)
    for text in dict.fromkeys(begun.values()):
        names = [name for name, its in begun.items() if its == text]
        logger.warning("%s: %s", trouble.of(names), text, extra={"rule": _one_or_all(names)})
    names = [name for name in ended if name in troubles]
    if names:
        logger.info("%s", over.of(names), extra={"rule": _one_or_all(names)})


@dataclass(frozen=True, slots=True)
class _Words:
    """What one rule does, and what several do."""

    one: str
    several: str

    def of(self, names: Sequence[str]) -> str:
        if len(names) == 1:
            return f"rule {names[0]} {self.one}"
        return f"rules {', '.join(names[:-1])} and {names[-1]} {self.several}"


def _one_or_all(names: Sequence[str]) -> str | Sequence[str]:
    """The value of a log line's field ``rule``."""
    return names[0] if len(names) == 1 else names


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


class Teller:
    """Remembers what was told, so that nothing is told twice.

    ``aloud`` False: only the log; for dry runs, and for replicas that do not lead (each would
    post the same Event).
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._conflicts = _States()
        self._failing = _States()
        self._capped = _States()
        self._blind = _States()
        self._unwritten = ""

    def change(self, node: Node, patch: NodePatch) -> None:
        """A mark was set, repaired or released."""
        rules = _fired(patch)
        about = {"node": node.name} | ({"rule": _one_or_all(rules)} if rules else {})
        logger.info("%s node %s: %s", patch.action.value, node.name, patch.reason, extra=about)
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
            logger.warning("node %s is left alone: %s", name, conflict, extra={"node": name})
        for name, conflict in to_post.items():
            self._events.post(
                nodes[name],
                reason=keys.REASON_CONFLICT,
                message=f"left alone: {conflict}",
                warning=True,
            )

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
        _tell_rules(
            self._failing,
            errors,
            _Words("cannot be queried", "cannot be queried"),
            _Words("answers again", "answer again"),
        )

    def blind(self, reasons: Mapping[str, str | None]) -> None:
        """A rule begins to know nothing of any node although its query answers, or knows again."""
        _tell_rules(
            self._blind,
            reasons,
            _Words("says nothing of any node", "say nothing of any node"),
            _Words("says something of nodes again", "say something of nodes again"),
        )

    def unwritten(self, failures: Sequence[str]) -> None:
        """Writes begin to fail, fail in another way, or are taken again. Which nodes, and how many,
        may differ from tick to tick: that is in `/status`, and not told again here.
        """
        node, _, cause = failures[0].partition(": ") if failures else ("", "", "")
        kind = cause.replace(node, "") if node else ""
        if kind and kind != self._unwritten:
            text = "writes that fail: %d, the first: %s"
            logger.warning(text, len(failures), failures[0], extra={"node": node})
        elif self._unwritten and not kind:
            logger.info("no write fails any more")
        self._unwritten = kind

    def reloaded(self, rule_set: RuleSet) -> None:
        """The rules file changed, and its new content is at work."""
        logger.info("rules reloaded: %s", ", ".join(rule.name for rule in rule_set.rules))
        tell_doubts(rule_set)
        self._events.post_own(
            reason=keys.REASON_RULES_RELOADED, message=f"{len(rule_set.rules)} rules are at work"
        )

    def refused(self, error: str) -> None:
        """The rules file changed, and its new content cannot be used."""
        logger.error("the new rules are refused, the old ones stay at work:\n%s", error)
        self._events.post_own(reason=keys.REASON_RULES_REFUSED, message=error, warning=True)
