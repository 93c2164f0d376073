"""How late a rule's values show a change in load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dynsched.rules.promql import NOW, Reach, UnreadError, parse, reach_of
from dynsched.rules.rule_set import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Lag:
    """A value shows nothing of a change for ``delay`` seconds, then a linearly growing share of it
    for ``span`` seconds, then all of it.
    """

    delay: float
    span: float

    @property
    def total(self) -> float:
        """Seconds until a value shows all of a change."""
        return self.delay + self.span

    def unseen(self, age: float) -> float:
        """The share of a change that a value taken ``age`` seconds later does not show yet."""
        if age >= self.total:
            return 0.0
        return 1.0 if age <= self.delay else 1.0 - (age - self.delay) / self.span


def lag_of_range(window: float, scrape: float) -> Lag:
    """The lag of a ``rate`` over ``window`` seconds, or of the last sample itself if 0.

    On average the last sample is half a scrape interval old, and the first one in the range is half
    a scrape interval younger than the range.
    """
    if not window:
        return Lag(0.0, scrape)
    return Lag(scrape / 2, max(window - scrape, scrape / 2))


DEFAULT_SCRAPE: Final = 30.0
"""Scrape interval in seconds if neither Prometheus nor the range of the expression shows it."""
METRICS_SERVER: Final = Lag(7.5, 15.0)
"""metrics-server scrapes every 15 s by default, and shows the rate between the last two scrapes."""


def lag_of(rule: Rule, scrape: float | None, reach: Reach | None = None) -> Lag:
    """The lag of a rule's values.

    ``scrape`` is the scrape interval. If it is None, a quarter of the range is assumed, which is
    the recommendation for a ``rate``. ``reach`` is used for an expression that only the server can
    parse.
    """
    if rule.lag is not None:
        return Lag(0.0, rule.lag)
    if rule.source == "metrics-server":
        return METRICS_SERVER
    offset, window = own_reach(rule.expr or "") or reach or NOW
    lag = lag_of_range(window, scrape or window / 4 or DEFAULT_SCRAPE)
    return Lag(max(0.0, lag.delay + offset), lag.span)


def longest_lag(
    rule_set: RuleSet, scrapes: Mapping[str, float], reaches: Mapping[str, Reach] = {}
) -> float:
    """Seconds until the values of all rules that use the expected load show all of a change; 0 if
    none does. Mappings are keyed by rule.
    """
    return max(
        (
            lag_of(rule, scrapes.get(rule.name), reaches.get(rule.name)).total
            for rule in rule_set.expecting_rules
        ),
        default=0.0,
    )


@lru_cache(maxsize=256)
def own_reach(expr: str) -> Reach | None:
    """How far back an expression reads, or None if it cannot be parsed here."""
    try:
        return reach_of(parse(expr))
    except UnreadError:
        return None


def needs_reach(rule: Rule) -> bool:
    """Whether the server has to parse the rule's expression to find its lag."""
    return rule.lag is None and rule.expr is not None and own_reach(rule.expr) is None
