"""One rule on all nodes: `core.evaluate`'s transitions on arrays instead of objects.

A week of 200 nodes and 3 rules is 12 million evaluations, for which the core's own code needs many
minutes. The transitions here are the same, in the same order, for all nodes at once; a property
test compares them with the core on random histories. Every array has one element for each *lane*:
a node, or a node under one of several settings of the rule (`suggest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.backtest.world import Bools, Floats
from dynsched.core.evaluate import GRAIN
from dynsched.core.rules import Rule, RuleSet

_COMPARE: Final = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}


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

    def excess(self, values: Floats) -> Floats:
        """`Rule.excess` of many values."""
        distance = values - self.threshold
        if self.is_early:
            return distance / 100
        unit = np.where(np.abs(self.threshold) > 0, np.abs(self.threshold), 1.0)
        found: Floats = (distance if self.op in (">", ">=") else -distance) / unit
        return found


class Alerts:
    """The alerts of one rule. Mutable: `begin` takes a chunk of values, `step` one row of it."""

    def __init__(self, setting: Setting, lanes: int) -> None:
        self.setting = setting
        self.firing: Bools = np.zeros(lanes, np.bool_)
        self.pending: Bools = np.zeros(lanes, np.bool_)
        self.value: Floats = np.full(lanes, np.nan)
        self._known_at: Floats = np.full(lanes, -np.inf)
        self._active: Floats = np.full(lanes, np.nan)
        self._keep: Floats = np.full(lanes, np.nan)
        self._is_quiet = True

    def begin(self, values: Floats) -> None:
        """``values``: shape (steps, lanes), NaN for what is missing or no finite number."""
        self._values = values
        self._ok: Bools = ~np.isnan(values)
        self._breached: Bools = self.setting.breached(values)
        self._holds: Bools = np.asarray(
            _COMPARE[self.setting.op](values, self.setting.clear_threshold), np.bool_
        )
        self._all_ok: list[bool] = np.all(self._ok, axis=1).tolist()
        self._any_breached: list[bool] = np.any(self._breached, axis=1).tolist()

    def reset(self, which: Bools, now: float) -> None:
        """Forget all of these lanes: their nodes came or went."""
        self.firing[which] = self.pending[which] = False
        self.value[which] = self._active[which] = self._keep[which] = np.nan
        self._known_at[which] = now

    def step(self, row: int, now: float) -> None:
        """Evaluate one row at ``now``, later than the one before."""
        ok = self._ok[row]
        if self._all_ok[row]:
            self.value = self._values[row].copy()
            known_before = self._known_at
            self._known_at = np.full(len(ok), now)
        else:
            np.copyto(self.value, self._values[row], where=ok)
            known_before = self._known_at.copy()
            self._known_at[ok] = now
        # Most of the time nothing fires and nothing is over the threshold.
        if self._is_quiet and not self._any_breached[row]:
            return
        self._transitions(row, now, ok, known_before)
        self._is_quiet = not (self.firing.any() or self.pending.any())

    def _transitions(self, row: int, now: float, ok: Bools, known_before: Floats) -> None:
        setting = self.setting
        firing, breached, holds = self.firing, self._breached[row], self._holds[row]
        known_firing = firing & ok
        cooling = known_firing & ~holds
        self._keep[known_firing & holds] = np.nan
        self._keep[cooling & np.isnan(self._keep)] = now
        ended = cooling & ~(now - self._keep < setting.keep_firing_for - GRAIN)
        known_other = ok & ~firing
        over = known_other & breached
        self._active[over & np.isnan(self._active)] = now
        begun = over & (now - self._active >= setting.hold_duration - GRAIN)
        expired = ~ok & (now - known_before > setting.stale_after)
        expired &= self.pending if setting.holds_stale else self.pending | firing
        gone = ended | expired | (known_other & ~breached)
        self._active[gone] = self._keep[gone] = np.nan
        self.pending = (self.pending & ~ok & ~expired) | (over & ~begun)
        self.firing = (firing & ~ended & ~expired) | begun
