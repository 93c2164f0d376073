"""All rules on all nodes: `core.evaluate`'s transitions on arrays instead of objects.

A week of 200 nodes and 3 rules is 12 million evaluations, for which the core's own code needs many
minutes. The transitions here are the same, in the same order, for all rules and nodes at once; a
property test compares them with the core on random histories.

Every array has one row for each rule and one column for each *lane*: a node, or a node under one of
several settings of the rules (`suggest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.backtest.world import Bools, Floats
from dynsched.core.evaluate import GRAIN
from dynsched.core.rules import Rule, RuleSet

_COMPARE: Final = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What of a rule decides about its alerts. ``threshold``, ``clear_threshold`` and
    ``hold_duration`` are numbers, or arrays with one element for each lane.
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
        """That of a rule as it stands in the file."""
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
        """`Rule.breached` of many values; False where a value is NaN."""
        return np.asarray(_COMPARE[self.op](values, self.threshold), np.bool_)

    def holds(self, values: Floats) -> Bools:
        """`Rule.holds` of many values; False where a value is NaN."""
        return np.asarray(_COMPARE[self.op](values, self.clear_threshold), np.bool_)

    @property
    def unit(self) -> float | Floats:
        """What `Rule.excess` divides the distance from the threshold by; below 0 where the values
        fall with load.
        """
        if self.is_early:
            return 100.0
        size = np.abs(self.threshold)
        unit = np.where(size > 0, size, 1.0)
        return np.asarray(unit if self.op in (">", ">=") else -unit, np.float64)


class Alerts:
    """The alerts of all rules. Mutable: `begin` takes a chunk of values, `step` one row of it."""

    def __init__(self, settings: Sequence[Setting], lanes: int) -> None:
        self._settings = settings
        shape = (len(settings), lanes)
        self.firing: Bools = np.zeros(shape, np.bool_)
        self._pending: Bools = np.zeros(shape, np.bool_)
        self._value: Floats = np.full(shape, np.nan)
        self._known_at: Floats = np.full(shape, -np.inf)
        self._active: Floats = np.full(shape, np.nan)
        self._keep: Floats = np.full(shape, np.nan)
        self._is_quiet = True
        self._hold = _of_each(shape, [one.hold_duration - GRAIN for one in settings])
        self._keep_for = _of_each(shape, [one.keep_firing_for - GRAIN for one in settings])
        self._stale_after = _of_each(shape, [one.stale_after for one in settings])
        self._threshold = _of_each(shape, [one.threshold for one in settings])
        self._unit = _of_each(shape, [one.unit for one in settings])
        self._releases_stale = np.array([[not one.holds_stale] for one in settings])

    def begin(self, values: Sequence[Floats]) -> None:
        """``values``: of each rule, shape (steps, lanes), NaN for what is missing or no finite
        number.
        """
        self._values = np.stack(values, axis=1)
        self._ok: Bools = ~np.isnan(self._values)
        both = list(zip(self._settings, values, strict=True))
        self._breached = np.stack([one.breached(of_rule) for one, of_rule in both], axis=1)
        self._holds = np.stack([one.holds(of_rule) for one, of_rule in both], axis=1)
        self._all_ok: list[bool] = np.all(self._ok, axis=(1, 2)).tolist()
        self._any_breached: list[bool] = np.any(self._breached, axis=(1, 2)).tolist()

    def reset(self, which: Bools, now: float) -> None:
        """Forget all of these lanes: their nodes came or went."""
        self.firing[:, which] = self._pending[:, which] = False
        self._value[:, which] = self._active[:, which] = self._keep[:, which] = np.nan
        self._known_at[:, which] = now

    def step(self, row: int, now: float) -> None:
        """Evaluate one row at ``now``, later than the one before."""
        ok = self._ok[row]
        known_before = self._known_at
        if self._all_ok[row]:
            self._value = self._values[row].copy()
            self._known_at = np.full(ok.shape, now)
        else:
            np.copyto(self._value, self._values[row], where=ok)
            self._known_at = np.where(ok, now, known_before)
        # Most of the time nothing fires and nothing is over the threshold.
        if self._is_quiet and not self._any_breached[row]:
            return
        self._transitions(row, now, ok, known_before)
        self._is_quiet = not (self.firing.any() or self._pending.any())

    def severity(self, counting: Sequence[int]) -> Floats:
        """As `core.evaluate.fold` finds it for each lane: of the worst of these rules that fires,
        0 where none does or no value is known.
        """
        rules = list(counting)
        excess = (self._value[rules] - self._threshold[rules]) / self._unit[rules]
        # NaN, of a rule whose value is not known, is not greater.
        counts = self.firing[rules] & (excess > 0)
        return np.asarray(np.where(counts, excess, 0.0).max(axis=0, initial=0.0), np.float64)

    def _transitions(self, row: int, now: float, ok: Bools, known_before: Floats) -> None:
        firing, breached, holds = self.firing, self._breached[row], self._holds[row]
        known_firing = firing & ok
        cooling = known_firing & ~holds
        self._keep[known_firing & holds] = np.nan
        self._keep[cooling & np.isnan(self._keep)] = now
        ended = cooling & ~(now - self._keep < self._keep_for)
        known_other = ok & ~firing
        over = known_other & breached
        self._active[over & np.isnan(self._active)] = now
        begun = over & (now - self._active >= self._hold)
        gone = ended | (known_other & ~breached)
        pending = (self._pending & ~ok) | (over & ~begun)
        if not self._all_ok[row]:
            expired = ~ok & (now - known_before > self._stale_after)
            expired &= self._pending | (firing & self._releases_stale)
            gone |= expired
            pending &= ~expired
            firing = firing & ~expired
        self._active[gone] = self._keep[gone] = np.nan
        self._pending = pending
        self.firing = (firing & ~ended) | begun


def _of_each(shape: tuple[int, int], values: Sequence[float | Floats]) -> Floats:
    """One row for each rule."""
    found = np.empty(shape)
    for row, value in enumerate(values):
        found[row] = value
    return found
