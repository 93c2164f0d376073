"""The alerts of a replay: many steps of `core.transitions.advance`.

Every array has one row for each rule and one column for each *lane*: a node, or a node under one of
several settings of the rules (`suggest`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynsched.engine.alerts import worst
from dynsched.engine.columns import Bools, Floats, filled
from dynsched.engine.transitions import Limits, Readings, Setting, States, advance


class Alerts:
    """The alerts of all rules. Mutable: `begin` takes a chunk of values, `step` one row of it."""

    def __init__(self, settings: Sequence[Setting], lanes: int) -> None:
        self._settings = settings
        shape = (len(settings), lanes)
        self._states = States.inactive(shape)
        self._value = filled(shape, np.nan)
        self._known_at = filled(shape, -np.inf)
        self._is_quiet = True
        self._limits = Limits(settings, lanes)

    @property
    def firing(self) -> Bools:
        """Which alerts fire."""
        return self._states.firing

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
        new = States.inactive(self.firing.shape)
        self._states = self._states.each(lambda ours, theirs: np.where(which, theirs, ours), new)
        self._value = np.where(which, np.nan, self._value)
        self._known_at = np.where(which, now, self._known_at)

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
        seen = Readings(ok, self._breached[row], self._holds[row])
        self._states = advance(self._states, seen, known_before, now, self._limits)
        self._is_quiet = not (self._states.firing.any() or self._states.pending.any())

    def severity(self, counting: Sequence[int]) -> Floats:
        """For each lane: of the worst of these rules that fires, 0 where none does or no value is
        known.
        """
        rules = list(counting)
        return worst(self._limits.excess(self._value[rules], rules), self.firing[rules])
