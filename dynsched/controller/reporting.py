"""The log lines and Events of the loop: one of each per change, none while nothing changes."""

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
"""Posts an Event: the name, and the message."""


def _fields(field: str, names: Sequence[str]) -> dict[str, str | Sequence[str]]:
    """Fields of a log line in JSON; docs/operate.md lists them."""
    if len(names) == 1 and field in ("node", "rule"):
        return {field: names[0]}
    return {"rule": names} if field == "rule" else {}


def _pools(names: Sequence[str]) -> str:
    return f"pool {some(names)}" if any(names) else "the cluster"


_NAMED: Final = {"rule": named_rules, "node": named_nodes, "pool": _pools}


class _Trouble:
    """One kind of trouble of rules, nodes or pools, by name. When it begins, a log line
    (``begins``) for all that have it for the same reason; when it is over, ``ends``. Events are
    posted by the process that may, also where the trouble began before it might.
    """

    def __init__(self, field: str, begins: str, ends: str) -> None:
        self._field, self._named = field, _NAMED[field]
        self._begins = begins
        self._ends = ends
        self._kinds = LoggedKinds()
        self._present: Collection[str] = ()
        self._posted: Mapping[str, str] = {}

    def tell(self, found: Mapping[str, str | None], post: Post | None = None) -> None:
        """``found`` as it is now: reasons, None where there is no trouble. Of a rule that is not in
        it (any more) it cannot be said that its trouble is over. ``post`` None: it may not.
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
    """What is valid in a rules file but probably does not do what was intended."""
    for warned in warnings:
        logger.warning("%s", warned)


class Reporter:
    """Logs changes and posts Events. It remembers what it reported and does not repeat it."""

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
        """A mark was set, updated or released: a log line and an Event; in a dry run, that it would
        be. A disputed mark changes at every tick, so these changes are logged at level debug: the
        log has one line about the dispute instead.
        """
        if self._dry_run:
            logger.info("would %s", _change(patch))
            return
        evidence = (patch.body["metadata"].get("annotations") or {}).get(keys.EVIDENCE_ANNOTATION)
        rules = fired_rules(evidence) if evidence is not None else ()
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
        """Events are for the process that writes: else each replica would post the same ones."""
        writes = tick.leadership.leading and not tick.leadership.dry_run
        self._rules(tick, may_post=writes)
        self._nodes(tick, may_post=writes)
        if writes:  # otherwise nothing was sent, so that nothing is known about writes
            self._writes(tick.writes.failures)
            self.post_refusal(tick.rules_status.error)

    def _rules(self, tick: Tick, *, may_post: bool) -> None:
        failed: dict[str, str] = {}
        post = failed.__setitem__ if may_post else None
        self._failing.tell({each.rule.name: each.error for each in tick.rules}, post)
        for why, names in by_reason(failed).items():
            message = f"the query of {named_rules(names)} failed: {why}"
            self._events.post_own(reason=keys.REASON_QUERY_FAILED, message=message, warning=True)
        # Where a rule's query fails now, its failure is reported, and not its past beside it.
        unknown = {
            each.rule.name: each.past_error
            for each in tick.rules
            if each.past_error is not None and each.error is None
        }
        for why, names in by_reason(unknown).items():
            text = "%s: no history available, so durations count from now: %s"
            logger.warning(text, named_rules(names), why, extra=_fields("rule", names))
        self._blind.tell(unmatched_rules(tick))
        self._crowded.tell(several_series(tick))

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
        self._conflicts.tell(table.conflicts, conflicts)
        self._disputed = tick.disputes
        self._disputes.tell(tick.disputes, posting(keys.REASON_DISPUTED))
        left = table.marked if tick.rule_set.mark.is_none else ()
        self._left.tell(dict.fromkeys(sorted(left), OLDER_STAYS))
        over = f"more of its nodes are hot than guard.max_marked {max_marked} allows to mark"
        capped = dict.fromkeys(sorted(tick.evaluation.decision.capped), over)
        self._capped.tell(capped, post_hot if may_post else None)

    def _writes(self, failures: Sequence[WriteFailure]) -> None:
        """The nodes may differ from tick to tick; `/status` has them, the log not each time."""
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
        """The rules file was refused; ``in_force``: the rules that stay."""
        before = "no rules are in force" if in_force is None else "those before stay in force"
        logger.error("the rules are refused, %s:\n%s", before, error)

    def post_refusal(self, error: str | None) -> None:
        """Post why the rules file is refused, once; None: it is not."""
        if error not in (None, self._refusal):
            reason = keys.REASON_RULES_REFUSED
            self._events.post_own(reason=reason, message=str(error), warning=True)
        self._refusal = error
