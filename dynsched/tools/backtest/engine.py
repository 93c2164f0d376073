"""A whole replay: columns of values in, alerts and marks at every step out.

It does for arrays what `core.decide` does for objects: readings, early readings, alerts, verdicts,
guard. Of a write it is taken that it succeeds, as in a dry run (`core.rehearse`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.expected import above_line
from dynsched.engine.loads import rule_loads
from dynsched.engine.transitions import Setting
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.alert_spans import Alerts
from dynsched.tools.backtest.choice import Marks
from dynsched.tools.backtest.world import World, weights

Columns = Mapping[str, Floats]
"""By rule name, shape (steps, nodes): NaN where there is no good value. Rules whose past cannot be
had are not in it."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a replay came to; shapes are (steps, lanes) unless said otherwise."""

    firing: Mapping[str, Bools]
    """By rule: on which nodes it fires."""
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
        self._selected = {
            rule.name: world.selected(rule) for rule in self.rules if rule.selector.requirements
        }
        self._marks = Marks(world, rule_set.guard, groups)
        self._early_mark: Bools = np.zeros(self._lanes, np.bool_)
        self._present: Bools = np.zeros(self._lanes, np.bool_)

    def play(self, times: Floats, columns: Columns) -> Played:
        """One chunk: ``times`` rise; ``columns`` have a row for each."""
        present = self._world.present(times)
        self._begin(columns, present)
        shape = (len(times), self._lanes)
        firing = np.zeros((len(self.rules), *shape), np.bool_)
        marked, early = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        pools = len(self._marks.caps)
        withheld = np.zeros((len(times), pools), np.bool_)
        caps = np.zeros((len(times), pools), np.int64)
        writes = np.zeros(len(times), np.int64)
        changes = np.any(present[1:] != present[:-1], axis=1).tolist()
        for row, now in enumerate(times.tolist()):
            if row == 0 or changes[row - 1]:
                self._appear(np.tile(present[row], self._groups), now)
            short, writes[row] = self._step(row, now)
            firing[:, row] = self._alerts.firing
            marked[row], early[row] = self._marks.marked, self._early_mark
            caps[row] = self._marks.caps
            if short is not None:
                withheld[row, np.unique(self._marks.pool[short])] = True
        by_rule = {rule.name: firing[place] for place, rule in enumerate(self.rules)}
        return Played(by_rule, marked, early, withheld, writes, caps)

    def _begin(self, columns: Columns, present: Bools) -> None:
        missing = np.full(present.shape, np.nan)
        values = {
            rule.name: np.where(
                present & self._selected.get(rule.name, True), columns[rule.name], np.nan
            )
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
                    *(rule, loads, weights(world.nodes, rule.resource), world.kind, world.eligible),
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
        """As `core.evaluate.fold`: of the worst firing rule; of the early ones where none is."""
        worst = self._alerts.severity(self._hot)
        if not self._early:
            return worst
        return np.where(hot, worst, self._alerts.severity(self._early))
