"""The alerts of all rules on all nodes in columns, one evaluation of them, and the verdict on each
node. An `Alert` or a `Verdict` is made of those that somebody asks for.

An alert is one rule on one node. Its transitions are those of Prometheus (``rules/alerting.go``):
a firing alert goes on firing until the condition was false for ``keep_firing_for``
(``keep_firing_since``, Prometheus's KeepFiringSince). Two things differ:

- Hysteresis: the condition of a firing alert is ``value op clear_threshold``, that of any other
  alert is ``value op threshold``.
- A missing, old or invalid sample and a failed query are *unknown*, not "condition is false". An
  unknown reading changes no state until there has been no good reading for ``stale_after``. A
  pending alert then becomes inactive, and a firing one too unless ``on_stale`` is ``hold``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress, repeat
from math import isnan
from typing import Any, Final, Self, TypeVar

import numpy as np

from dynsched.engine.columns import CODES, MISSING, OK, QUALITIES, Bools, Codes, Floats, Roster
from dynsched.engine.limits import Limits
from dynsched.engine.model import Alert, AlertState, Quality, Verdict
from dynsched.engine.nodes.match import NodeReadings

_S = TypeVar("_S", bound="States")

_FAILED: Final = CODES[Quality.FAILED]
_STALE: Final = CODES[Quality.STALE]


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
        """Of this shape (rules, nodes): all inactive."""
        none, nothing = np.zeros(shape, np.bool_), np.full(shape, np.nan)
        return States(firing=none, pending=none, active_since=nothing, keep_firing_since=nothing)

    def each(self, change: Callable[..., Any], *others: Self) -> Self:
        """``change`` of each of our arrays, with those of ``others`` beside it."""
        names, both = [each.name for each in fields(self)], (self, *others)
        arrays = [name for name in names if isinstance(getattr(self, name), np.ndarray)]
        changed = {name: change(*(getattr(one, name) for one in both)) for name in arrays}
        return replace(self, **changed)


_OPTIONAL: Final = ("value", "compared", "sampled_at", "active_since", "keep_firing_since")
_COLUMNS: Final = ("since", "updated_at", "known_at", "quality", *_OPTIONAL, "adopted")
"""Those that are fields of `Alert`, in its order; NaN of the optional ones stands for None."""
_QUALITIES: Final = np.array(QUALITIES, object)
_STATES: Final = np.array(list(AlertState), object)
"""Inactive, pending and firing."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AlertTable(States):
    """All arrays have the shape (rules, nodes), and are never changed. They are the fields of
    `Alert`; NaN stands for None.
    """

    rules: tuple[str, ...]
    roster: Roster
    exists: Bools
    """Whether there is an alert: the rule's selector selects the node."""
    since: Floats
    updated_at: Floats
    known_at: Floats
    quality: Codes
    value: Floats
    compared: Floats
    sampled_at: Floats
    adopted: Bools

    @classmethod
    def new(
        cls, rules: Sequence[str], roster: Roster, exists: Bools | None = None, now: float = 0.0
    ) -> AlertTable:
        """Alerts of which nothing is known yet; none at all without ``exists``."""
        shape = len(rules), len(roster)
        began, nothing = np.full(shape, now), np.full(shape, np.nan)
        none = np.zeros(shape, np.bool_)
        return cls(
            rules=tuple(rules),
            roster=roster,
            exists=none if exists is None else exists,
            firing=none,
            pending=none,
            active_since=nothing,
            keep_firing_since=nothing,
            since=began,
            updated_at=began,
            known_at=began,
            quality=np.zeros(shape, np.int8),
            value=nothing,
            compared=nothing,
            sampled_at=nothing,
            adopted=none,
        )

    def of_nodes(self, indices: Sequence[int]) -> list[tuple[Alert, ...]]:
        """The alerts of each of these nodes, in the order of the rules."""
        told = {name: getattr(self, name)[:, indices] for name in _COLUMNS}
        told |= {name: np.where(np.isnan(told[name]), None, told[name]) for name in _OPTIONAL}
        told["quality"] = _QUALITIES[told["quality"]]
        state = _STATES[np.where(self.firing[:, indices], 2, self.pending[:, indices])]
        columns = [each.tolist() for each in (state, *told.values())]
        names = [self.roster.names[index] for index in indices]
        uids = [self.roster.uids[index] for index in indices]
        rows = (
            map(Alert, repeat(rule), names, *(column[row] for column in columns), uids)
            for row, rule in enumerate(self.rules)
        )
        each = zip(zip(*rows, strict=True), self.exists[:, indices].T.tolist(), strict=True)
        return [tuple(compress(alerts, exists)) for alerts, exists in each]

    def good_values(self, rows: Any = slice(None), *, compared: bool = False) -> Floats:
        """The values that are good now, NaN for all others: the measured ones, or those that are
        ``compared`` with the threshold. ``rows``: as numpy's indices.
        """
        is_good = self.exists[rows] & (self.quality[rows] == OK)
        return np.where(is_good, (self.compared if compared else self.value)[rows], np.nan)

    def counts(self, rule: str) -> tuple[Mapping[Quality, int], Mapping[AlertState, int]]:
        """How many nodes there are of each kind, by a rule; without kinds of which is none."""
        row = self.rules.index(rule)
        exists = self.exists[row]
        numbers = np.bincount(self.quality[row, exists], minlength=len(QUALITIES)).tolist()
        firing = int(np.count_nonzero(self.firing[row] & exists))
        pending = int(np.count_nonzero(self.pending[row] & exists))
        inactive = int(np.count_nonzero(exists)) - firing - pending
        states = zip(AlertState, (inactive, pending, firing), strict=True)
        return (
            {quality: n for quality, n in zip(QUALITIES, numbers, strict=True) if n},
            {state: n for state, n in states if n},
        )

    def on(self, rules: Sequence[str], roster: Roster) -> AlertTable:
        """The alerts of these rules on these nodes; those that we do not have do not exist."""
        if self.roster is roster and self.rules == tuple(rules):
            return self
        if not self.exists.size:
            return AlertTable.new(rules, roster)
        rows = np.array([self.rules.index(r) if r in self.rules else -1 for r in rules], np.int64)
        indices = roster.indices_in(self.roster)
        cells = np.ix_(rows, indices)
        taken = replace(self.each(lambda column: column[cells]), rules=tuple(rules), roster=roster)
        return taken.without(~((rows >= 0)[:, None] & (indices >= 0)))

    def having(self, alerts: Iterable[Alert]) -> AlertTable:
        """A copy in which these alerts exist, in the place of those that are there."""
        found = self.each(np.copy)
        for one in alerts:
            cell = self.rules.index(one.rule), self.roster.indices[one.node]
            told = {"pending": one.state is AlertState.PENDING, "quality": CODES[one.quality]}
            found.exists[cell] = True
            for name in ("firing", "pending", *_COLUMNS):
                value = told[name] if name in told else getattr(one, name)
                getattr(found, name)[cell] = np.nan if value is None else value
        return found

    def without(self, which: Bools) -> AlertTable:
        """The same, where the alerts ``which`` (rules, nodes) do not exist."""
        return replace(self, exists=self.exists & ~which)

    def shifted(self, seconds: float) -> AlertTable:
        """The same with all times changed by ``seconds``, after the clock was set by as much."""
        alert = "since", "updated_at", "known_at", "sampled_at"
        times = *alert, "active_since", "keep_firing_since"
        return replace(self, **{time: getattr(self, time) + seconds for time in times})


def no_alerts() -> AlertTable:
    """Of no rules on no nodes: what a process begins with."""
    return AlertTable.new((), Roster(()))


def advance(
    before: _S,
    limits: Limits,
    now: Floats | float,
    *,
    ok: Bools,
    breached: Bools,
    holds: Bools,
    known_at: Floats,
) -> _S:
    """``before`` with the states after one evaluation at ``now`` (Unix seconds). ``ok``: there is a
    good reading, which is beyond ``threshold`` where ``breached``, beyond ``clear_threshold`` where
    it ``holds``. ``known_at``: when there was a good one before this.
    """
    firing = before.firing
    active_since, keep_since = before.active_since.copy(), before.keep_firing_since.copy()
    fired = firing & ok
    cooling = fired & ~holds
    keep_since[fired & holds] = np.nan
    np.copyto(keep_since, now, where=cooling & np.isnan(keep_since))
    ended = cooling & ~(now - keep_since < limits.keep_firing)
    others = ok & ~firing
    over = others & breached
    np.copyto(active_since, now, where=over & np.isnan(active_since))
    begun = over & (now - active_since >= limits.hold)
    gone = ended | (others & ~breached)
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


def next_alerts(
    limits: Limits,
    readings: Mapping[str, NodeReadings],
    before: AlertTable,
    exists: Bools,
    now: float,
) -> AlertTable:
    """The alerts ``before`` after one evaluation of the rules on the same nodes. ``exists``: where
    there is to be an alert; it is new where there is none ``before``.

    A rule without an entry in ``readings`` counts as failed. ``now`` may be earlier than in the
    evaluation before; the times of an alert never go back.
    """
    ours = before.exists & exists
    if not np.array_equal(ours, exists):
        new = AlertTable.new(before.rules, before.roster, exists, now)
        before = before.each(lambda mine, theirs: np.where(ours, mine, theirs), new)
    values, compared, taken = (np.full(exists.shape, np.nan) for _ in range(3))
    quality: Codes = np.full(exists.shape, MISSING, np.int8)
    for row, rule in enumerate(before.rules):
        found = readings.get(rule)
        if found is None:
            quality[row] = _FAILED
        else:
            values[row], taken[row], quality[row] = found.value, found.taken, found.quality
            compared[row] = found.value if found.expected is None else found.expected
    # The age of a sample is measured by ``now`` itself: after the clock was set back, new samples
    # have timestamps of the new time. The times of an alert must not go back.
    then = np.maximum(before.updated_at, now)
    quality[(quality == OK) & ~(now - taken <= limits.stale_after)] = _STALE
    ok = quality == OK
    breached, holds = limits.beyond(compared)
    after = advance(
        before,
        limits,
        then,
        ok=ok,
        breached=breached,
        holds=holds,
        known_at=before.known_at,
    )
    changed = (after.firing != before.firing) | (after.pending != before.pending)
    known = np.maximum(before.known_at, np.minimum(then, taken))
    return replace(
        after,
        exists=exists,
        since=np.where(changed, then, before.since),
        updated_at=then,
        known_at=np.where(ok, known, before.known_at),
        quality=quality,
        value=np.where(ok, values, before.value),
        compared=np.where(ok, compared, before.compared),
        sampled_at=np.where(ok, taken, before.sampled_at),
        adopted=before.adopted & ~ok & ~changed,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """The alerts of each node, combined: arrays with one element for each. Alerts of shadow rules
    count for nothing.
    """

    alerts: AlertTable
    hot: Bools
    since: Floats
    """When the first of the firing alerts began to fire; NaN where none does."""
    severity: Floats

    @classmethod
    def of(cls, alerts: AlertTable, limits: Limits) -> Verdicts:
        """``limits`` are those of the alerts' rules, in the same order."""
        firing = alerts.firing & alerts.exists & ~limits.is_shadow
        hot: Bools = np.logical_or.reduce(firing, axis=0)
        since, severity = np.full(hot.shape, np.nan), np.zeros(hot.shape)
        indices = np.flatnonzero(hot)
        if indices.size:
            firing = firing[:, indices]
            since[indices] = np.where(firing, alerts.since[:, indices], np.inf).min(axis=0)
            severity[indices] = severity_of(limits, firing, alerts.compared[:, indices])
        return cls(alerts, hot, since, severity)

    def of_nodes(self, indices: Sequence[int], *, with_alerts: bool = True) -> list[Verdict]:
        """As objects, in the order of ``indices``; without the alerts, of which most of the time
        would go, where only the verdict itself counts.
        """
        names = [self.alerts.roster.names[index] for index in indices]
        alerts = self.alerts.of_nodes(indices) if with_alerts else repeat(())
        taken = (each[indices] for each in (self.hot, self.since, self.severity))
        hot, since, severity = (each.tolist() for each in taken)
        known = (None if isnan(each) else each for each in since)
        return list(map(Verdict, names, hot, known, severity, alerts))


def severity_of(limits: Limits, firing: Bools, compared: Floats) -> Floats:
    """The largest excess of the ``firing`` alerts of each node; 0 where none is beyond its
    threshold, or no value is known.
    """
    excess = limits.excess(compared)
    # NaN, of a rule whose value is not known, is not greater.
    return np.asarray(np.where(firing & (excess > 0), excess, 0.0).max(axis=0, initial=0.0))
