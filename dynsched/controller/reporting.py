"""The log lines and Events of the loop: one of each per change, none while nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from dynsched.engine.mark_state import fired_rules
from dynsched.engine.message_kind import LoggedKinds
from dynsched.engine.model import Action, Node, NodePatch, WriteFailure
from dynsched.engine.snapshot import Decision
from dynsched.engine.wording import by_reason, named_nodes, named_rules
from dynsched.rules import keys
from dynsched.rules.lint import doubts, obsolete
from dynsched.rules.rule_set import RuleSet

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Where Events go. Never blocks, never fails: Events are best effort."""

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``; equal ones are aggregated by count."""

    def post_own(self, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event about dynsched itself."""


class _States:
    """What is so now, in words by name. Each is logged once, and once posted: by the process that
    may, also when it was so before. ``by_kind``: each kind of text is logged once until all is well
    again: the numbers in it may change with every tick, or two kinds take turns.
    """

    def __init__(self, *, by_kind: bool = False) -> None:
        self._logged: Mapping[str, str] = {}
        self._posted: Mapping[str, str] = {}
        self._kinds = LoggedKinds() if by_kind else None

    def update(
        self, states: Mapping[str, str], *, post_events: bool = False
    ) -> tuple[Mapping[str, str], Mapping[str, str], Sequence[str]]:
        """(what to log, what to post, the names of what has ended)."""
        to_log = _unlike(states, self._logged)
        ended = [name for name in self._logged if name not in states]
        if self._kinds is not None:
            is_new = self._kinds.is_new
            to_log = {name: text for name, text in states.items() if is_new(name, text)}
            for name in ended:
                self._kinds.forget(name)
        new = _unlike(states, self._posted)
        self._logged = states
        self._posted = states if post_events else _unlike(states, new)
        return to_log, new if post_events else {}, ended


def _unlike(states: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in states.items() if others.get(name) != text}


def _rules_update(
    states: _States, troubles: Mapping[str, str | None]
) -> tuple[Mapping[str, str], Sequence[str]]:
    """(trouble that begins, by rule; the rules whose trouble is over). ``troubles`` by rule, None
    where there is none; of a rule that is not in it (any more) nothing can be said.
    """
    present = {name: text for name, text in troubles.items() if text is not None}
    begun, _, ended = states.update(present)
    return begun, [name for name in ended if name in troubles]


def _report_rules(
    states: _States, troubles: Mapping[str, str | None], *, begins: str, ends: str
) -> None:
    """A log line for each rule whose trouble begins (``begins``, with rule and trouble), and for
    each whose trouble is over (``ends``, with the rule).
    """
    begun, ended = _rules_update(states, troubles)
    for name, text in begun.items():
        logger.warning(begins, name, text, extra={"rule": name})
    for name in ended:
        logger.info(ends, name, extra={"rule": name})


def _field(names: Sequence[str]) -> dict[str, str | Sequence[str]]:
    """The field ``rule`` of a log line in JSON: a name, or a list where there are several."""
    return {"rule": names[0] if len(names) == 1 else names}


def _fired(patch: NodePatch) -> Sequence[str]:
    """The rules that a mark is for, as the evidence names them; none for a patch that removes the
    mark.
    """
    annotations = patch.body["metadata"].get("annotations") or {}
    written = annotations.get(keys.EVIDENCE_ANNOTATION)
    return fired_rules(written) if written is not None else ()


def _change(patch: NodePatch) -> str:
    """``mark node worker-2 (early): ...`` where it is not hot."""
    early = " (early)" if patch.early else ""
    return f"{patch.action.value} node {patch.node}{early}: {patch.reason}"


def report_doubts(rule_set: RuleSet) -> None:
    """Log a warning for each rule that is valid but probably does not do what was intended; at the
    start, and after each reload.
    """
    for setting in obsolete(rule_set):
        logger.warning("%s", setting)
    for doubt in doubts(rule_set):
        logger.warning("rule %s: %s", doubt.rule, doubt.message, extra={"rule": doubt.rule})


def _place(pool: str) -> str:
    return f"pool {pool}" if pool else "the cluster"


class Reporter:
    """Logs changes and posts Events. It remembers what it reported and does not repeat it.

    With ``post_events`` False nothing is posted, only logged. This is for dry runs, and for
    replicas that are not the leader (otherwise each replica would post the same Event).
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._conflicts = _States()
        self._disputes = _States()
        self._disputed: Mapping[str, str] = {}
        self._capped = _States()
        self._failing = _States(by_kind=True)
        self._blind = _States(by_kind=True)
        self._crowded = _States(by_kind=True)
        self._unwritten = LoggedKinds()

    def change(self, node: Node, patch: NodePatch) -> None:
        """A mark was set, updated or released: a log line, and an Event if it is a hot node's. A
        disputed mark changes at every tick, so these changes are logged at level debug: the log has
        one line about the dispute instead.
        """
        rules = _fired(patch)
        about = {"node": node.name} | (_field(rules) if rules else {})
        level = logging.DEBUG if node.name in self._disputed else logging.INFO
        logger.log(level, "%s", _change(patch), extra=about)
        if patch.early:  # the node is not hot: it concerns the scheduler alone
            return
        if patch.action is Action.RELEASE:
            self._events.post(node, reason=keys.REASON_RELIEVED, message=patch.reason)
        elif patch.restates and patch.action is Action.REPAIR:
            message = f"hot no longer; the mark stays: {patch.reason}"
            self._events.post(node, reason=keys.REASON_RELIEVED, message=message)
        elif patch.action is Action.MARK:
            self._events.post(
                node, reason=keys.REASON_PRESSURED, message=patch.reason, warning=True
            )
        else:
            message = f"the mark was updated: {patch.reason}"
            self._events.post(node, reason=keys.REASON_REPAIRED, message=message)

    def rehearsed(self, patches: Sequence[NodePatch]) -> None:
        """What a dry run would write now, and would not have written before."""
        for patch in patches:
            logger.info("would %s", _change(patch))

    def conflicts(
        self, decision: Decision, nodes: Mapping[str, Node], *, post_events: bool
    ) -> None:
        """Nodes on which somebody else set the mark's label or taint to another value."""
        begun, to_post, _ = self._conflicts.update(
            decision.inventory.conflicts, post_events=post_events
        )
        for name, conflict in begun.items():
            logger.warning("node %s is not changed: %s", name, conflict, extra={"node": name})
        for name, conflict in to_post.items():
            self._events.post(
                nodes[name],
                reason=keys.REASON_CONFLICT,
                message=f"not changed: {conflict}",
                warning=True,
            )

    def disputed(
        self, disputes: Mapping[str, str], nodes: Mapping[str, Node], *, post_events: bool
    ) -> None:
        """Another program or person seems to change the same marks. One log line for all nodes with
        the same text; one Event on each node.
        """
        self._disputed = disputes
        begun, to_post, ended = self._disputes.update(disputes, post_events=post_events)
        for text in dict.fromkeys(begun.values()):
            names = [name for name, of_it in begun.items() if of_it == text]
            logger.warning("%s: %s", named_nodes(names), text)
        for name, text in to_post.items():
            self._events.post(nodes[name], reason=keys.REASON_DISPUTED, message=text, warning=True)
        if ended:
            logger.info("%s: the mark is no longer disputed", named_nodes(ended))

    def cap(self, decision: Decision, *, post_events: bool) -> None:
        """Pools with more nodes under pressure than ``guard.max_marked`` allows to mark."""
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
            logger.info(
                "%s: the number of hot nodes is within guard.max_marked again", _place(pool)
            )

    def failing(self, errors: Mapping[str, str | None]) -> None:
        """Rules whose query fails, fails in another way, or succeeds again. An error that several
        rules share (for example a wrong URL) is one line.
        """
        begun, ended = _rules_update(self._failing, errors)
        for error, names in by_reason(begun).items():
            query = "query" if len(names) == 1 else "queries"
            logger.warning(
                "the %s of %s failed: %s", query, named_rules(names), error, extra=_field(names)
            )
        if ended:
            text = "the query of %s succeeds again"
            if len(ended) > 1:
                text = "the queries of %s succeed again"
            logger.info(text, named_rules(ended), extra=_field(ended))

    def past_unknown(self, errors: Mapping[str, str]) -> None:
        """Rules whose query succeeds, but whose history was not available at the start."""
        for error, names in by_reason(errors).items():
            logger.warning(
                "%s: no history available, so durations count from now: %s",
                *(named_rules(names), error),
                extra=_field(names),
            )

    def blind(self, reasons: Mapping[str, str | None]) -> None:
        """Rules whose query succeeds but has no sample that matches a node, and rules whose
        samples match nodes again.
        """
        _report_rules(
            self._blind,
            reasons,
            begins="no sample of rule %s matched a node: %s",
            ends="samples of rule %s match nodes again",
        )

    def crowded(self, reasons: Mapping[str, str | None]) -> None:
        """Rules with more than one series for a node, and rules with one per node again."""
        _report_rules(
            self._crowded,
            reasons,
            begins="rule %s has more than one series for a node: %s",
            ends="rule %s has one series per node again",
        )

    def unwritten(self, failures: Sequence[WriteFailure]) -> None:
        """Writes that fail, fail in another way, or succeed again. The affected nodes may differ
        from tick to tick; they are in `/status` and are not logged each time.
        """
        new = [
            failure
            for failure in failures
            if self._unwritten.is_new("nodes", failure.cause.replace(failure.node, "'it'"))
        ]
        if new:
            text = "%d writes failed, among them: %s"
            among = "; ".join(map(str, new))
            logger.warning(text, len(failures), among, extra={"node": new[0].node})
        if not failures and self._unwritten.forget("nodes"):
            logger.info("all writes succeed again")

    def reloaded(self, rule_set: RuleSet) -> None:
        """The rules file changed, and its new content is now in force."""
        logger.info("rules reloaded: %s", ", ".join(rule.name for rule in rule_set.rules))
        report_doubts(rule_set)
        count = len(rule_set.rules)
        message = f"{count} rules are in force" if count > 1 else "1 rule is in force"
        self._events.post_own(reason=keys.REASON_RULES_RELOADED, message=message)

    def refused(self, error: str) -> None:
        """The rules file changed, and its new content is invalid: the old rules stay in force."""
        logger.error("the new rules are refused, the old ones stay in force:\n%s", error)
        self._events.post_own(reason=keys.REASON_RULES_REFUSED, message=error, warning=True)
