"""A whole replay: columns of values in, alerts and marks at every step out.

It does for all moments what `engine.decide` does in a tick: readings, early readings, alerts,
verdicts, guard. Of a write it is taken that it succeeds, as in a dry run (`engine.dry_run`). A
*lane* is a node, or a node under one of several settings of the rules (`suggest`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from dynsched.engine.alerts import worst
from dynsched.engine.columns import Bools, Floats, Ints, filled
from dynsched.engine.expected import above_line
from dynsched.engine.loads import rule_loads
from dynsched.engine.transitions import Limits, Readings, Setting, States, advance
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.choice import Marks
from dynsched.tools.backtest.world import World

Columns = Mapping[str, Floats]
"""By rule name, shape (steps, nodes): NaN where there is no good value, and on nodes that the rule
does not apply to. Rules whose past cannot be had are not in it."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a replay came to; shapes are (steps, lanes) unless said otherwise."""

    firing: Bools
    """Shape (rules, steps, lanes)."""
    marked: Bools
    """Which nodes carry the mark after the step."""
    early: Bools
    """Which of these carry it only because of their expected load."""
    withheld: Bools
    """Shape (steps, pools): a node of the pool should be marked, and is not because of the cap."""
    writes: Ints
    """Shape (steps,): how many nodes are written to."""
    caps: Ints
    """Shape (steps, pools): how many nodes of the pool may be marked."""

    @classmethod
    def empty(cls, rules: int, steps: int, lanes: int, pools: int) -> Played:
        """To be filled by `Engine.play`."""
        firing, marked = (
            np.zeros((rules, steps, lanes), np.bool_),
            np.zeros((steps, lanes), np.bool_),
        )
        withheld, caps = np.zeros((steps, pools), np.bool_), np.zeros((steps, pools), np.int64)
        return cls(firing, marked, marked.copy(), withheld, np.zeros(steps, np.int64), caps)

    def part(self, first: int, last: int) -> Played:
        """The steps ``first`` to before ``last``, in the same memory."""
        others = (getattr(self, each.name)[first:last] for each in fields(self)[1:])
        return Played(self.firing[:, first:last], *others)


class Alerts:
    """The alerts of all rules: many steps of `engine.transitions.advance`. Mutable: `begin` takes a
    chunk of values, `step` one row of it. Arrays have one row for each rule.
    """

    def __init__(self, settings: Sequence[Setting], lanes: int) -> None:
        self._settings = settings
        shape = (len(settings), lanes)
        self._states = States.inactive(shape)
        self._value = filled(shape, np.nan)
        self._known_at = filled(shape, -np.inf)
        self._limits = Limits(settings, lanes)

    @property
    def firing(self) -> Bools:
        return self._states.firing

    def begin(self, values: Sequence[Floats]) -> None:
        """``values``: of each rule, shape (steps, lanes), NaN for what is missing."""
        both = list(zip(self._settings, values, strict=True))
        self._values = np.stack(values, axis=1)
        self._ok: Bools = ~np.isnan(self._values)
        self._breached = np.stack([one.breached(of_rule) for one, of_rule in both], axis=1)
        self._holds = np.stack([one.holds(of_rule) for one, of_rule in both], axis=1)
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
        np.copyto(self._value, self._values[row], where=ok)
        self._known_at = np.where(ok, now, known_before)
        # Most of the time nothing fires and nothing is over the threshold.
        before = self._states
        if self._any_breached[row] or before.firing.any() or before.pending.any():
            seen = Readings(ok, self._breached[row], self._holds[row])
            self._states = advance(before, seen, known_before, now, self._limits)

    def severity(self, counting: Sequence[int]) -> Floats:
        """For each lane: of the worst of these rules that fires, 0 where none does or no value is
        known.
        """
        excess = self._limits.excess(self._value[counting], counting)
        return worst(excess, self.firing[counting])


class Engine:
    """Replays one rule set, or several settings of it side by side. Mutable: `play` takes chunk
    after chunk, in the order of time.

    ``settings``: by rule name, for the lanes of ``groups`` times the nodes; default: those of the
    rules.
    """

    def __init__(
        self,
        rule_set: RuleSet,
        world: World,
        *,
        rules: Sequence[Rule] | None = None,
        settings: Mapping[str, Setting] | None = None,
        groups: int = 1,
    ) -> None:
        self._rule_set = rule_set
        self._world = world
        self._groups = groups
        self._lanes = len(world.nodes) * groups
        self.rules = tuple(rule_set.rules if rules is None else rules)
        settings = settings or {}
        self._alerts = Alerts(
            [settings.get(rule.name) or Setting.of(rule, rule_set) for rule in self.rules],
            self._lanes,
        )
        # Shadow rules are evaluated, and mark nothing.
        marking = [place for place, rule in enumerate(self.rules) if not rule.shadow]
        self._hot = [place for place in marking if self.rules[place].early_of is None]
        self._early = [place for place in marking if self.rules[place].early_of is not None]
        self._marks = Marks(world, rule_set.guard, groups)
        self._early_mark: Bools = np.zeros(self._lanes, np.bool_)
        self._present: Bools = np.zeros(self._lanes, np.bool_)

    def play(self, times: Floats, columns: Columns, into: Played | None = None) -> Played:
        """One chunk: ``times`` rise; ``columns`` have a row for each, as ``into`` has, which is
        filled.
        """
        present = self._world.present(times)
        self._begin(columns, present)
        pools = len(self._marks.caps)
        played = into or Played.empty(len(self.rules), len(times), self._lanes, pools)
        changes = [True, *np.any(present[1:] != present[:-1], axis=1).tolist()]
        for row, now in enumerate(times.tolist()):
            if changes[row]:
                self._appear(np.tile(present[row], self._groups), now)
            short, played.writes[row] = self._step(row, now)
            played.firing[:, row] = self._alerts.firing
            played.marked[row], played.early[row] = self._marks.marked, self._early_mark
            played.caps[row] = self._marks.caps
            if short is not None:
                played.withheld[row, self._marks.pool[short]] = True
        return played

    def _begin(self, columns: Columns, present: Bools) -> None:
        missing = np.full(present.shape, np.nan)
        values = {
            rule.name: np.where(present, columns[rule.name], np.nan)
            for rule in self.rules
            if rule.early_of is None and rule.name in columns
        }
        for rule in self._rule_set.file_rules:
            made = rule.early_rule
            if made is not None and made in self.rules and rule.name in values:
                # No pods are known of the past: the expected load is the measured one.
                world = self._world
                loads = rule_loads(rule, values[rule.name])
                values[made.name] = above_line(
                    *(rule, loads, world.weights(rule.resource), world.kind, world.eligible),
                    self._rule_set.guard.max_marked,
                )
        self._alerts.begin(
            [np.tile(values.get(rule.name, missing), self._groups) for rule in self.rules]
        )

    def _appear(self, present: Bools, now: float) -> None:
        """Nodes that came or went have no past."""
        changed = present ^ self._present
        if not changed.any():
            return
        self._alerts.reset(changed, now)
        self._early_mark &= present
        self._marks.set_present(present)
        self._present = present

    def _step(self, row: int, now: float) -> tuple[Bools | None, int]:
        """Which lanes should be marked and are not; how many nodes are written to."""
        alerts = self._alerts
        alerts.step(row, now)
        hot: Bools = np.logical_or.reduce(alerts.firing[self._hot], axis=0)
        early: Bools = np.logical_or.reduce(alerts.firing[self._early], axis=0) & ~hot
        wants = hot | early
        before = self._marks.marked
        marked, short = self._marks.choose(wants, hot, lambda: self._severity(hot))
        arrived, stays = marked & ~before, marked & before
        # The evidence of a mark that stays says whether the node is hot; it is written anew when
        # that changes.
        restated = stays & wants & (early ^ self._early_mark)
        writes = int((marked ^ before).sum()) + int(restated.sum())
        if writes:
            renewed = arrived | restated
            self._early_mark = np.where(renewed, early, self._early_mark & marked)
        return short, writes

    def _severity(self, hot: Bools) -> Floats:
        """As `engine.alerts.Verdicts.of`: of the worst firing rule, or of the worst early one."""
        worst = self._alerts.severity(self._hot)
        if not self._early:
            return worst
        return np.where(hot, worst, self._alerts.severity(self._early))
