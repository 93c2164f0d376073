"""One number for a node, for programs that act on it (the descheduler, an alert).

It has three values, so that nothing is done where nothing is certain: with two, a node that is hot
and has no mark because of ``guard.max_marked`` would look like a cool one to which pods can go.
"""

from __future__ import annotations

from typing import Final

from dynsched.core.model import Alert, AlertState, NodeView, Quality
from dynsched.core.rules import RuleSet

HOT: Final = 1.0
UNDECIDED: Final = 0.5
COOL: Final = 0.0


def verdict_value(view: NodeView, rule_set: RuleSet) -> float:
    """HOT: the node is marked, and a rule fires on it that has not cleared. COOL: it is known that
    no rule fires or is pending, and the node carries no mark. UNDECIDED: all else, such as a mark
    that is only held by ``keep_firing_for``, an early mark, a hot node that the cap leaves
    unmarked, an unknown value, a conflict, a node that must not be marked.
    """
    if view.ineligible is not None or view.conflict is not None:
        return UNDECIDED
    alerts = [alert for alert in view.alerts if _counts(alert, rule_set)]
    if view.marked:
        return HOT if view.pressured and any(map(_not_cleared, alerts)) else UNDECIDED
    is_known = bool(alerts) and all(
        alert.state is AlertState.INACTIVE and alert.quality is Quality.OK for alert in alerts
    )
    return COOL if is_known and not view.early and not view.pressured else UNDECIDED


def _counts(alert: Alert, rule_set: RuleSet) -> bool:
    """Whether the alert is of a rule that makes nodes hot."""
    rule = rule_set.by_name[alert.rule]
    return rule.early_of is None and not rule.shadow


def _not_cleared(alert: Alert) -> bool:
    """Whether the alert fires by a value that has not cleared."""
    return alert.firing and alert.quality is Quality.OK and alert.keep_firing_since is None
