"""The states of alerts, and how they change: of many rules on many nodes at once.

An alert is one rule on one node. Its transitions are those of Prometheus (``rules/alerting.go``):
a firing alert goes on firing until the condition was false for ``keep_firing_for``
(``keep_firing_since``, Prometheus's KeepFiringSince). Two things differ:

- Hysteresis: the condition of a firing alert is ``value op clear_threshold``, that of any other
  alert is ``value op threshold``.
- A missing, old or invalid sample and a failed query are *unknown*, not "condition is false". An
  unknown reading changes no state until there has been no good reading for ``stale_after``. A
  pending alert then becomes inactive, and a firing one too unless ``on_stale`` is ``hold``.

The tick (`alerts.evaluated`) and `dynsched.tools.backtest` both go by `advance`. Its arrays have
one row for each rule and one column (a lane) for each node; in a backtest, for each node under each
of several settings of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, TypeVar

import numpy as np

from dynsched.engine.columns import Bools, Floats, filled
from dynsched.rules.rule_set import COMPARE, Rule, RuleSet

_S = TypeVar("_S", bound="States")

GRAIN: Final = 0.001
"""Tolerance in seconds when durations are compared. ``for: 4s`` must have passed after two
intervals of 2 s, even if the difference of the floats is slightly less than 4."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What of a rule decides about its alerts. ``threshold``, ``clear_threshold`` and
    ``hold_duration`` are numbers, or arrays with one element for each column.
    """

    op: str
    threshold: float | Floats
    clear_threshold: float | Floats
    hold_duration: float | Floats
    keep_firing_for: float
    stale_after: float
    holds_stale: bool
    is_early: bool = False

    @classmethod
    def of(cls, rule: Rule, rule_set: RuleSet) -> Setting:
        return cls(
            op=rule.op,
            threshold=rule.threshold,
            clear_threshold=rule.clear_threshold,
            hold_duration=rule.hold_duration,
            keep_firing_for=rule.keep_firing_for,
            stale_after=rule_set.stale_after_of(rule),
            holds_stale=rule_set.holds_stale(rule),
            is_early=rule.early_of is not None,
        )

    def breached(self, values: Floats) -> Bools:
        """Where the values are beyond ``threshold``; False where one is NaN."""
        return np.asarray(COMPARE[self.op](values, self.threshold), np.bool_)

    def holds(self, values: Floats) -> Bools:
        """Where they keep a firing alert firing: beyond ``clear_threshold``."""
        return np.asarray(COMPARE[self.op](values, self.clear_threshold), np.bool_)

    @property
    def unit(self) -> float | Floats:
        """What the distance from the threshold is divided by; below 0 where the values fall with
        load.
        """
        if self.is_early:
            return 100.0
        size = np.abs(self.threshold)
        unit = np.where(size > 0, size, 1.0)
        return np.asarray(unit if self.op in (">", ">=") else -unit, np.float64)


class Limits:
    """What of some rules are numbers, as arrays with a row for each; with a column for each lane
    where a setting has one, else a single one.
    """

    def __init__(self, settings: Sequence[Setting], lanes: int = 1) -> None:
        def of_each(values: Iterable[float | Floats]) -> Floats:
            return np.array([np.broadcast_to(value, lanes) for value in values], np.float64)

        self.hold = of_each(one.hold_duration - GRAIN for one in settings)
        self.keep_firing = of_each(one.keep_firing_for - GRAIN for one in settings)
        self.stale_after = of_each(one.stale_after for one in settings)
        self.releases_stale = np.array([[not one.holds_stale] for one in settings], np.bool_)
        self.threshold = of_each(one.threshold for one in settings)
        self.unit = of_each(one.unit for one in settings)

    def excess(self, values: Floats, rows: Sequence[int] | slice = slice(None)) -> Floats:
        """How far the values of these rules are beyond the threshold, as a share of it (of an early
        mark's: of full); NaN where a value is.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # a distance may exceed a double
            return np.asarray((values - self.threshold[rows]) / self.unit[rows], np.float64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class States:
    """Of alerts; one that neither fires nor is pending is inactive. Not changed in place."""

    firing: Bools
    pending: Bools
    active_since: Floats
    """Unix seconds; NaN where it is not active."""
    keep_firing_since: Floats
    """Unix seconds; NaN where it does not fire because of ``keep_firing_for`` alone."""

    @staticmethod
    def inactive(shape: tuple[int, int]) -> States:
        """Those of new alerts."""
        none, nothing = np.zeros(shape, np.bool_), filled(shape, np.nan)
        return States(firing=none, pending=none, active_since=nothing, keep_firing_since=nothing)

    def each(self, change: Callable[..., Any], *others: Self) -> Self:
        """``change`` of each of our arrays, with those of ``others`` beside it."""
        names, both = [each.name for each in fields(self)], (self, *others)
        arrays = [name for name in names if isinstance(getattr(self, name), np.ndarray)]
        changed = {name: change(*(getattr(one, name) for one in both)) for name in arrays}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What one evaluation knows of the values, as the states need it."""

    ok: Bools
    breached: Bools
    """Where the value is beyond ``threshold``."""
    holds: Bools
    """Where it is beyond ``clear_threshold``."""


def advance(
    before: _S, seen: Readings, known_at: Floats, now: Floats | float, limits: Limits
) -> _S:
    """``before`` with the states after one evaluation at ``now`` (Unix seconds). ``known_at``: when
    there was a good reading before this one.
    """
    ok, firing = seen.ok, before.firing
    active_since, keep_since = before.active_since.copy(), before.keep_firing_since.copy()
    fired = firing & ok
    cooling = fired & ~seen.holds
    keep_since[fired & seen.holds] = np.nan
    np.copyto(keep_since, now, where=cooling & np.isnan(keep_since))
    ended = cooling & ~(now - keep_since < limits.keep_firing)
    others = ok & ~firing
    over = others & seen.breached
    np.copyto(active_since, now, where=over & np.isnan(active_since))
    begun = over & (now - active_since >= limits.hold)
    gone = ended | (others & ~seen.breached)
    pending = over & ~begun
    if not ok.all():
        unknown = ~ok
        expired = unknown & (now - known_at > limits.stale_after)
        expired &= before.pending | (firing & limits.releases_stale)
        gone |= expired
        ended |= expired
        pending |= before.pending & unknown & ~expired
    active_since[gone] = keep_since[gone] = np.nan
    return replace(
        before,
        firing=(firing & ~ended) | begun,
        pending=pending,
        active_since=active_since,
        keep_firing_since=keep_since,
    )
