"""A whole replay: columns of values in, alerts and marks at every step out.

It does for all moments what `engine.decide` does in a tick: readings, alerts, verdicts,
guard. Writes are assumed to succeed, as in a dry run (`alerting.dry_run`). No pods are known of the
past, so rules with ``by: expected`` are replayed with their measured values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from dynsched.engine.alerting.alerts import States, advance, severity_of
from dynsched.engine.alerting.dry_run import PretendedWrites
from dynsched.engine.alerting.guard import MarkCandidates, MarkCaps
from dynsched.engine.alerting.plan import plan_prune
from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.limits import Limits
from dynsched.engine.model import Node
from dynsched.engine.nodes.inventory import NodeColumns, take_inventory
from dynsched.engine.nodes.match import NodeIndex
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import GuardRules
from dynsched.tools.backtest.fetching import Past, Query, Window, chunks

Span = tuple[float, float]
"""When a node was there first and last, in Unix seconds."""
Columns = Mapping[str, Floats]
"""By rule name, shape (steps, nodes): NaN where there is no good value, and on nodes that the rule
does not apply to. Rules whose past cannot be had are not in it."""


@dataclass(frozen=True, slots=True)
class BacktestNodes:
    """Nodes in the order of their names; every array has one element for each."""

    nodes: tuple[Node, ...]
    columns: NodeColumns
    rows: Mapping[str, int]
    """By rule name, the row in ``columns.applies``."""
    pools: tuple[str, ...]
    pool: Ints
    """Index into ``pools``."""
    first: Floats
    last: Floats

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns.roster.names

    @property
    def eligible(self) -> Bools:
        """Whether it may be marked: by the rules, and because nobody else uses the mark's key."""
        return self.columns.may_mark

    def selected(self, rule: Rule) -> Bools:
        found: Bools = self.columns.applies[self.rows[rule.name]]
        return found


def make_world(
    nodes: Mapping[str, Node], rule_set: RuleSet, spans: Mapping[str, Span] = MappingProxyType({})
) -> BacktestNodes:
    """``nodes`` as `dynsched prune` would leave them: a replay begins without marks. Without an
    entry in ``spans`` a node is there from its creation on.
    """
    overlay = PretendedWrites()
    overlay.nodes(nodes)
    overlay.write(plan_prune(nodes.values(), rule_set.mark))
    pruned = dict(sorted(overlay.nodes(nodes).items()))
    columns = take_inventory(pruned, rule_set).columns
    caps = MarkCaps.of(columns, rule_set.guard.max_marked)
    there = [spans.get(n, (each.created or -math.inf, math.inf)) for n, each in pruned.items()]
    return BacktestNodes(
        nodes=tuple(pruned.values()),
        columns=columns,
        rows={rule.name: row for row, rule in enumerate(rule_set.rules)},
        pools=caps.pools,
        pool=caps.pool[columns.kind],
        first=np.array([first for first, _ in there], np.float64),
        last=np.array([last for _, last in there], np.float64),
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """What was fetched, and for which moments. ``index``: of the nodes as of `BacktestNodes`."""

    pasts: Mapping[Query, Past]
    index: NodeIndex
    window: Window


def columns_of(
    rule_set: RuleSet, scene: Scene, world: BacktestNodes, first: int, last: int
) -> Columns:
    """For steps ``first`` to before ``last``."""
    found = {}
    for rule in rule_set.rules:
        query = Query.of(rule)
        past = scene.pasts.get(query) if query else None
        if past is not None:
            find, count = (lambda name: scene.index.find(name)[0]), len(world.nodes)
            values = past.values(first, last, find, count, rises=rule.rises)
            values[:, ~world.selected(rule)] = np.nan
            found[rule.name] = values
    return found


class Record:
    """Filled by `Engine.play`. Shapes are (steps, nodes) unless said otherwise."""

    def __init__(self, rule_set: RuleSet, world: BacktestNodes, window: Window) -> None:
        by_node, by_pool = (window.count, len(world.nodes)), (window.count, len(world.pools))
        self.window = window
        self.world = world
        self.marks_nothing = rule_set.mark.is_none
        moments = window.times()[:, None]
        # Where the node was there.
        self.present: Bools = (moments >= world.first) & (moments <= world.last)
        # By rule: where there is a good value.
        self.known = {rule.name: np.zeros(by_node, np.bool_) for rule in rule_set.rules}
        # Shape (rules, steps, nodes).
        self.firing: Bools = np.zeros((len(rule_set.rules), *by_node), np.bool_)
        # Which nodes carry the mark after the step.
        self.marked: Bools = np.zeros(by_node, np.bool_)
        # By pool: a node should be marked, and is not because of the cap; how many nodes may be.
        self.withheld: Bools = np.zeros(by_pool, np.bool_)
        self.caps: Ints = np.zeros(by_pool, np.int64)
        # Shape (steps,): how many nodes are written to.
        self.writes: Ints = np.zeros(window.count, np.int64)

    @property
    def counted(self) -> Bools:
        found: Bools = self.present & self.world.eligible
        return found

    @property
    def any_known(self) -> Bools:
        return np.asarray(np.logical_or.reduce([*self.known.values()]), np.bool_)

    @property
    def moments(self) -> int:
        """At how many steps any node counts: what is told per day is told of this time."""
        return int(self.counted.any(axis=1).sum())

    @property
    def lasted(self) -> float:
        """The share of the window in which any node counts: of the rest nothing is known."""
        return self.moments / self.window.count


class Alerts:
    """The alerts of all rules: many steps of `alerting.alerts.advance`. Mutable: `begin` takes a
    chunk of values, `step` one row of it. Arrays have one row for each rule, and one column for
    each node.
    """

    def __init__(self, limits: Limits, nodes: int) -> None:
        self._limits = limits
        shape = (len(limits.ops), nodes)
        self._states = States.inactive(shape)
        self._value = np.full(shape, np.nan)
        self._known_at = np.full(shape, -np.inf)
        self._present: Bools = np.zeros(nodes, np.bool_)

    @property
    def firing(self) -> Bools:
        return self._states.firing

    def begin(self, values: Sequence[Floats], present: Bools) -> None:
        """Shapes are (steps, nodes); ``values``: of each rule, NaN for what is missing."""
        self._values = np.stack(values, axis=1)
        self._ok: Bools = ~np.isnan(self._values)
        breached, holds = self._limits.beyond(values)
        self._breached, self._holds = breached.swapaxes(0, 1), holds.swapaxes(0, 1)
        self._any_breached: list[bool] = np.any(self._breached, axis=(1, 2)).tolist()
        changed = np.diff(present, axis=0, prepend=self._present[None])
        self._comes_or_goes: list[bool] = np.any(changed, axis=1).tolist()
        self._presence = present

    def step(self, row: int, now: float) -> bool:
        """Evaluate one row at ``now``. Whether nodes came or went: these have no past."""
        if self._comes_or_goes[row]:
            which = self._present ^ self._presence[row]
            new = States.inactive(self.firing.shape)
            self._states = self._states.each(
                lambda ours, theirs: np.where(which, theirs, ours), new
            )
            self._value = np.where(which, np.nan, self._value)
            self._known_at = np.where(which, now, self._known_at)
            self._present = self._presence[row]
        ok = self._ok[row]
        known_before = self._known_at
        np.copyto(self._value, self._values[row], where=ok)
        self._known_at = np.where(ok, now, known_before)
        # Most of the time nothing fires and nothing is over the threshold.
        before = self._states
        if self._any_breached[row] or before.firing.any() or before.pending.any():
            self._states = advance(
                before,
                self._limits,
                now,
                ok=ok,
                breached=self._breached[row],
                holds=self._holds[row],
                known_at=known_before,
            )
        return self._comes_or_goes[row]

    @property
    def counting(self) -> Bools:
        """The firing alerts that may mark nodes."""
        return np.asarray(self.firing & ~self._limits.is_shadow, np.bool_)

    def severity(self, nodes: Ints) -> Floats:
        """Of some nodes."""
        return severity_of(self._limits, self.counting[:, nodes], self._value[:, nodes])


class Marks:
    """Which nodes carry the mark. Mutable."""

    def __init__(self, columns: NodeColumns, guard: GuardRules) -> None:
        self._columns = columns
        self._guard = guard
        self.marked: Bools = np.zeros(len(columns.kind), np.bool_)
        self.set_present(self.marked)

    def set_present(self, present: Bools) -> None:
        """Which nodes are there from now on; the marks of the others are gone."""
        there = replace(self._columns, may_mark=self._columns.may_mark & present)
        self._may = there.may_mark
        self.marked = self.marked & present
        self.caps = MarkCaps.of(there, self._guard.max_marked)

    def choose(self, alerts: Alerts) -> Bools:
        """Returns the nodes that should carry the mark and do not."""
        wanted: Bools = np.logical_or.reduce(alerts.counting, axis=0) & self._may
        indices = np.flatnonzero(wanted | self.marked)
        if indices.size:
            kind = self._columns.kind[indices]
            candidates = MarkCandidates(kind, wanted[indices], self.marked[indices])
            degree = partial(alerts.severity, indices)
            chosen = self.caps.choose(candidates, degree, self._guard.max_releases)
            self.marked = self.marked.copy()
            self.marked[indices] = chosen
        return wanted & ~self.marked


class Engine:
    """Replays one rule set. Mutable: `play` takes chunk after chunk, in the order of time."""

    def __init__(self, rule_set: RuleSet, world: BacktestNodes) -> None:
        self._rule_set = rule_set
        self._world = world
        self._limits = Limits.of(rule_set.rules, rule_set)
        self._alerts = Alerts(self._limits, len(world.nodes))
        self._marks = Marks(world.columns, rule_set.guard)

    def play(self, columns: Columns, record: Record, first: int, last: int) -> None:
        """The steps ``first`` to before ``last``; ``columns`` have a row for each."""
        present = record.present[first:last]
        for name, values in columns.items():
            record.known[name][first:last] = ~np.isnan(values)
        self._begin(columns, present)
        for row, now in enumerate(record.window.times(first, last).tolist()):
            if self._alerts.step(row, now):
                self._marks.set_present(present[row])
            step = first + row
            short, record.writes[step] = self._mark()
            record.firing[:, step] = self._alerts.firing
            record.marked[step] = self._marks.marked
            record.caps[step] = self._marks.caps.by_pool
            record.withheld[step, self._world.pool[short]] = True

    def _begin(self, columns: Columns, present: Bools) -> None:
        missing = np.full(present.shape, np.nan)
        values = {name: np.where(present, found, np.nan) for name, found in columns.items()}
        self._alerts.begin(
            [values.get(rule.name, missing) for rule in self._rule_set.rules], present
        )

    def _mark(self) -> tuple[Bools, int]:
        """Which nodes should be marked and are not; how many nodes are written to."""
        before = self._marks.marked
        if self._rule_set.mark.is_none:
            return np.zeros_like(before), 0
        short = self._marks.choose(self._alerts)
        return short, int((self._marks.marked ^ before).sum())


def replay(rule_set: RuleSet, scene: Scene, world: BacktestNodes) -> Record:
    engine, record = Engine(rule_set, world), Record(rule_set, world, scene.window)
    for first, last in chunks(scene.window, len(world.nodes), len(rule_set.rules)):
        engine.play(columns_of(rule_set, scene, world, first, last), record, first, last)
    return record
