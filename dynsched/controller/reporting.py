"""Log lines and Events of the evaluation loop: one of each per change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from dynsched.core.evaluate import OLDER_STAYS
from dynsched.core.guard import WriteFailure
from dynsched.core.health import several_series, unmatched_rules
from dynsched.core.mark_record import fired_rules
from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node
from dynsched.core.tick import Tick
from dynsched.core.wording import by_reason, named_nodes, named_rules, some
from dynsched.kube.events import NodeEvents
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.util.logs import LoggedKinds

logger = logging.getLogger(__name__)

Post = Callable[[str, str], None]
"""Posts an Event. Arguments: the name of the rule, node or pool, and the message."""


def _fields(field: str, names: Sequence[str]) -> dict[str, str | Sequence[str]]:
    """The extra fields of a JSON log line (docs/operate.md)."""
    if len(names) == 1 and field in ("node", "rule"):
        return {field: names[0]}
    return {"rule": names} if field == "rule" else {}


def _pools(names: Sequence[str]) -> str:
    return f"pool {some(names)}" if any(names) else "the cluster"


_NAMED: Final = {"rule": named_rules, "node": named_nodes, "pool": _pools}


class _Trouble:
    """Reports one kind of trouble of rules, nodes or pools, identified by name.

    ``begins`` is logged when it begins, once for all names with the same reason, and ``ends`` when
    it is over. A replica that becomes the leader also posts Events for trouble that began before.
    """

    def __init__(self, field: str, begins: str, ends: str) -> None:
        self._field, self._named = field, _NAMED[field]
        self._begins = begins
        self._ends = ends
        self._kinds = LoggedKinds()
        self._present: Collection[str] = ()
        self._posted: Mapping[str, str] = {}

    def report(self, found: Mapping[str, str | None], post: Post | None = None) -> None:
        """Report what has changed. ``found``: the current reason by name; None means no trouble.
        ``post``: None if this replica must not post. A rule that is missing in ``found`` is
        forgotten silently, because its trouble is not known to be over.
        """
        reasons = {name: why for name, why in found.items() if why is not None}
        begun = {name: why for name, why in reasons.items() if self._kinds.is_new(name, why)}
        for why, names in by_reason(begun).items():
            logger.warning(self._begins, self._named(names), why, extra=_fields(self._field, names))
        gone = [name for name in self._present if name not in reasons]
        for name in gone:
            self._kinds.forget(name)
        if over := [name for name in gone if name in found or self._field != "rule"]:
            logger.info(self._ends, self._named(over), extra=_fields(self._field, over))
        self._present = tuple(reasons)
        unposted = {name: why for name, why in reasons.items() if self._posted.get(name) != why}
        self._posted = {name: why for name, why in reasons.items() if name not in unposted}
        if post is not None:
            self._posted = reasons
            for name, why in unposted.items():
                post(name, why)


def _change(patch: NodePatch) -> str:
    return f"{patch.action.value} node {patch.node}: {patch.reason}"


def report_warnings(warnings: Iterable[str]) -> None:
    """Log what is valid in a rules file, but probably not what was intended."""
    for warned in warnings:
        logger.warning("%s", warned)


class Reporter:
    """Logs changes and posts Events, and does not repeat what it has reported."""

    def __init__(self, events: NodeEvents, *, dry_run: bool = False) -> None:
        self._events = events
        self._dry_run = dry_run
        self._failing = _Trouble(
            "rule", "the query of %s failed: %s", "the query of %s succeeds again"
        )
        self._blind = _Trouble(
            "rule", "no sample of %s matched a node: %s", "samples of %s match nodes again"
        )
        self._crowded = _Trouble(
            "rule", "%s: more than one series for a node: %s", "%s: one series for each node again"
        )
        self._conflicts = _Trouble("node", "%s: not changed: %s", "%s: no longer in conflict")
        self._disputes = _Trouble("node", "%s: %s", "%s: the mark is no longer disputed")
        self._left = _Trouble("node", "%s: %s", "%s: no older mark is left there any more")
        self._capped = _Trouble(
            "pool", "%s is hot: %s", "%s: the number of hot nodes is within guard.max_marked again"
        )
        self._disputed: Collection[str] = ()
        self._refusal: str | None = None
        self._unwritten = LoggedKinds()

    def change(self, node: Node, patch: NodePatch) -> None:
        """Report that a mark was set, updated or released; in a dry run, log that it would be.

        A disputed mark changes at every tick, so its changes are logged at level debug. One line
        about the dispute takes their place.
        """
        if self._dry_run:
            logger.info("would %s", _change(patch))
            return
        record = (patch.body["metadata"].get("annotations") or {}).get(keys.EVIDENCE_ANNOTATION)
        rules = fired_rules(record) if record is not None else ()
        about = {"node": node.name} | (_fields("rule", rules) if rules else {})
        level = logging.DEBUG if node.name in self._disputed else logging.INFO
        logger.log(level, "%s", _change(patch), extra=about)
        reason, message = keys.REASON_REPAIRED, f"the mark was updated: {patch.reason}"
        if patch.action is Action.RELEASE:
            reason, message = keys.REASON_RELIEVED, patch.reason
        elif patch.action is Action.MARK:
            reason, message = keys.REASON_PRESSURED, patch.reason
        warning = reason == keys.REASON_PRESSURED
        self._events.post(node, reason=reason, message=message, warning=warning)

    def tick(self, tick: Tick) -> None:
        """Report a tick. Only the replica that writes posts Events; else each would post them."""
        writes = tick.leadership.leading and not tick.leadership.dry_run
        self._rules(tick, may_post=writes)
        self._nodes(tick, may_post=writes)
        if writes:  # without writes there is no news about failures
            self._writes(tick.writes.failures)
            self.post_refusal(tick.rules_status.error)

    def _rules(self, tick: Tick, *, may_post: bool) -> None:
        failed: dict[str, str] = {}
        post = failed.__setitem__ if may_post else None
        self._failing.report({each.rule.name: each.error for each in tick.rules}, post)
        for why, names in by_reason(failed).items():
            message = f"the query of {named_rules(names)} failed: {why}"
            self._events.post_own(reason=keys.REASON_QUERY_FAILED, message=message, warning=True)
        # If a rule's query fails now, only that is reported, not its missing history.
        unknown = {
            each.rule.name: each.past_error
            for each in tick.rules
            if each.past_error is not None and each.error is None
        }
        for why, names in by_reason(unknown).items():
            text = "%s: no history available, so durations count from now: %s"
            logger.warning(text, named_rules(names), why, extra=_fields("rule", names))
        self._blind.report(unmatched_rules(tick))
        self._crowded.report(several_series(tick))

    def _nodes(self, tick: Tick, *, may_post: bool) -> None:
        table, max_marked = tick.evaluation.table, tick.rule_set.guard.max_marked

        def posting(reason: str, before: str = "") -> Post | None:
            def post(name: str, why: str) -> None:
                if name in table.nodes:
                    node, message = table.nodes[name], f"{before}{why}"
                    self._events.post(node, reason=reason, message=message, warning=True)

            return post if may_post else None

        def post_hot(pool: str, why: str) -> None:
            message = f"{_pools([pool])} is hot: {why}"
            self._events.post_own(reason=keys.REASON_CLUSTER_HOT, message=message, warning=True)

        conflicts = posting(keys.REASON_CONFLICT, "not changed: ")
        self._conflicts.report(table.conflicts, conflicts)
        self._disputed = tick.disputes
        self._disputes.report(tick.disputes, posting(keys.REASON_DISPUTED))
        left = table.marked if tick.rule_set.mark.is_none else ()
        self._left.report(dict.fromkeys(sorted(left), OLDER_STAYS))
        over = f"more of its nodes are hot than guard.max_marked {max_marked} allows to mark"
        capped = dict.fromkeys(sorted(tick.evaluation.decision.capped), over)
        self._capped.report(capped, post_hot if may_post else None)

    def _writes(self, failures: Sequence[WriteFailure]) -> None:
        """Log each kind of failure once, although its nodes may change from tick to tick: `/status`
        lists them.
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

    def reloaded(self, rule_set: RuleSet, warnings: Iterable[str]) -> None:
        logger.info("rules reloaded: %s", ", ".join(rule.name for rule in rule_set.rules))
        report_warnings(warnings)
        count = len(rule_set.rules)
        message = f"{count} rules are in force" if count > 1 else "1 rule is in force"
        self._events.post_own(reason=keys.REASON_RULES_RELOADED, message=message)

    def refused(self, error: str, in_force: RuleSet | None) -> None:
        """Log that the rules file was refused. ``in_force``: the rules that stay in force."""
        before = "no rules are in force" if in_force is None else "the previous ones stay in force"
        logger.error("the rules are refused, %s:\n%s", before, error)

    def post_refusal(self, error: str | None) -> None:
        """Post once why the rules file is refused. ``error``: None if it is not."""
        if error not in (None, self._refusal):
            reason = keys.REASON_RULES_REFUSED
            self._events.post_own(reason=reason, message=str(error), warning=True)
        self._refusal = error
