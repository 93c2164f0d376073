"""In words: what would clear a firing alert. Pure, as `core` is; `now` is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dynsched.engine.model import Alert, Quality
from dynsched.engine.wording import UNKNOWN, beside_the_line
from dynsched.rules.rule_set import Rule
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value

_MOVE: Final[Mapping[str, str]] = {
    ">": "fall to {0} or below",
    ">=": "fall below {0}",
    "<": "rise to {0} or above",
    "<=": "rise above {0}",
}
"""How a value leaves the band in which an alert goes on firing, by the rule's op."""

_PLACE: Final[Mapping[str, str]] = {
    ">": "at {0} or below",
    ">=": "below {0}",
    "<": "at {0} or above",
    "<=": "above {0}",
}
"""Where a value is that does not keep the alert firing."""


def what_clears(
    rule: Rule, alert: Alert, now: float, *, stale_after: float, holds_stale: bool
) -> str | None:
    """One line for a firing alert; None for one that does not fire.

    ``node-cpu must fall to 60 or below (is 72.4), then stay there for 1m``
    """
    if not alert.firing:
        return None
    if alert.quality is not Quality.OK:
        return _when_unknown(rule, alert, now, stale_after=stale_after, holds_stale=holds_stale)
    if rule.early_of is not None:
        return (
            f"the expected load by {rule.early_of} must fall to {_limit(rule)} or less; it is "
            f"{beside_the_line(alert.value or 0.0)}"
        )
    limit = format_threshold(rule.clear_threshold)
    value = format_value(alert.value)
    if alert.keep_firing_since is None:
        stay = f", then stay there for {format_duration(rule.keep_firing_for)}"
        return (
            f"{rule.name} must {_MOVE[rule.op].format(limit)} (is {value})"
            f"{stay if rule.keep_firing_for else ''}"
        )
    rest = rule.keep_firing_for - (now - alert.keep_firing_since)
    return f"{rule.name} must stay {_PLACE[rule.op].format(limit)} (is {value}) for {_more(rest)}"


def _when_unknown(
    rule: Rule, alert: Alert, now: float, *, stale_after: float, holds_stale: bool
) -> str:
    good = f"{rule.name} needs a good sample {_PLACE[rule.op].format(_limit(rule))}"
    if rule.early_of is not None:
        good = f"{rule.early_of} needs a good sample by which the expected load is {_limit(rule)}"
    why = f"no current value: {UNKNOWN[alert.quality]}"
    if holds_stale:
        return f"{good} ({why}; on_stale: hold)"
    rest = stale_after - (now - alert.known_at)
    return f"{good} ({why}), or no good sample for {_more(rest)}"


def _limit(rule: Rule) -> str:
    if rule.early_of is not None:
        return beside_the_line(rule.clear_threshold)
    return format_threshold(rule.clear_threshold)


def _more(seconds: float) -> str:
    # To the second, and never "0s more": the next tick decides.
    return f"{format_duration(max(1, round(seconds)))} more"
