"""The alerts of all rules on all nodes after one evaluation, in columns; each is to be had as an
`Alert`, and all alerts of a node as its `Verdict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, repeat
from math import isnan
from typing import Any, Final, NamedTuple

import numpy as np

from dynsched.engine.columns import CODES, OK, QUALITIES, Bools, Codes, Floats, Ints, Roster, filled
from dynsched.engine.model import Alert, AlertState, Quality
from dynsched.engine.transitions import States

Alerts = Mapping[str, Mapping[str, Alert]]
"""Rule name -> node name -> alert."""


class Counts(NamedTuple):
    """Of the alerts of a rule; without kinds of which there is none."""

    quality: Mapping[Quality, int]
    states: Mapping[AlertState, int]


@dataclass(frozen=True, slots=True, eq=False)
class AlertTable(Mapping[str, Mapping[str, Alert]]):
    """`Alerts` in columns: all arrays have the shape (rules, nodes), and are never changed. The
    fields are those of `Alert`; NaN stands for None.
    """

    rules: tuple[str, ...]
    """The names of the rules, in the order of the rows."""
    roster: Roster
    exists: Bools
    """Whether there is an alert: the rule's selector selects the node."""
    states: States
    since: Floats
    updated_at: Floats
    known_at: Floats
    quality: Codes
    value: Floats
    sampled_at: Floats
    adopted: Bools

    @classmethod
    def new(cls, rules: Sequence[str], roster: Roster, exists: Bools, now: float) -> AlertTable:
        """Alerts of which nothing is known yet."""
        shape = exists.shape
        began, nothing = filled(shape, now), filled(shape, np.nan)
        return cls(
            rules=tuple(rules),
            roster=roster,
            exists=exists,
            states=States.inactive((len(rules), len(roster))),
            since=began,
            updated_at=began,
            known_at=began,
            quality=np.zeros(shape, np.int8),
            value=nothing,
            sampled_at=nothing,
            adopted=np.zeros(shape, np.bool_),
        )

    def __getitem__(self, rule: str) -> Mapping[str, Alert]:
        """The alerts of a rule, by the names of the nodes."""
        try:
            return _OfRule(self, self.rules.index(rule))
        except ValueError:
            raise KeyError(rule) from None

    def __iter__(self) -> Iterator[str]:
        """The names of the rules."""
        return iter(self.rules)

    def __len__(self) -> int:
        """The number of rules."""
        return len(self.rules)

    @property
    def _columns(self) -> tuple[Floats | Bools | Codes, ...]:
        """What `_alert` takes, in its order."""
        states = self.states
        return (
            *(states.firing, states.pending, self.since, self.updated_at, self.known_at),
            *(self.quality, self.value, self.sampled_at),
            *(states.active_since, states.keep_firing_since, self.adopted),
        )

    def alert(self, row: int, place: int) -> Alert:
        """One of them."""
        values: list[Any] = [column.item(row, place) for column in self._columns]
        return _alert(self.rules[row], self.roster.names[place], self.roster.uids[place], *values)

    def of_node(self, place: int) -> tuple[Alert, ...]:
        """The alerts of a node, in the order of the rules."""
        rows = range(len(self.rules))
        return tuple([self.alert(row, place) for row in rows if self.exists.item(row, place)])

    def of_nodes(self, places: Sequence[int]) -> list[tuple[Alert, ...]]:
        """`of_node` of many, in less time."""
        names = [self.roster.names[place] for place in places]
        uids = [self.roster.uids[place] for place in places]
        taken = [column[:, places].tolist() for column in self._columns]
        rows = [
            map(partial(_alert, rule), names, uids, *(column[row] for column in taken))
            for row, rule in enumerate(self.rules)
        ]
        found = zip(*rows, strict=True) if rows else repeat((), len(names))
        exists = self.exists[:, places]
        if exists.all():
            return list(found)
        return [tuple(compress(*both)) for both in zip(found, exists.T.tolist(), strict=True)]

    @property
    def remembered(self) -> Bools:
        """An element for each node: whether it has an alert."""
        return np.asarray(self.exists.any(axis=0), np.bool_)

    def good_values(self, rows: Any = slice(None), places: Any = slice(None)) -> Floats:
        """The values that are good now, NaN for all others: of some ``rows`` and ``places``, as
        numpy's indices.
        """
        cells = rows, places
        is_good = self.exists[cells] & (self.quality[cells] == OK)
        return np.where(is_good, self.value[cells], np.nan)

    def counts(self, rule: str) -> Counts:
        """How many nodes there are of each kind, by a rule."""
        row = self.rules.index(rule)
        exists = self.exists[row]
        numbers = np.bincount(self.quality[row, exists], minlength=len(QUALITIES)).tolist()
        firing = int(np.count_nonzero(self.states.firing[row] & exists))
        pending = int(np.count_nonzero(self.states.pending[row] & exists))
        inactive = int(np.count_nonzero(exists)) - firing - pending
        states = zip(AlertState, (inactive, pending, firing), strict=True)
        return Counts(
            {quality: n for quality, n in zip(QUALITIES, numbers, strict=True) if n},
            {state: n for state, n in states if n},
        )

    def on(self, rules: Sequence[str], roster: Roster) -> AlertTable:
        """The alerts of these rules on these nodes; those that we do not have do not exist."""
        if self.roster is roster and self.rules == tuple(rules):
            return self
        if not self.exists.size:
            return AlertTable.new(rules, roster, _nowhere(rules, roster), 0.0)
        rows = np.array([self.rules.index(r) if r in self.rules else -1 for r in rules], np.int64)
        return self._taken(tuple(rules), rows, roster, roster.places_in(self.roster))

    def _taken(
        self, rules: tuple[str, ...], rows: Ints, roster: Roster, places: Ints
    ) -> AlertTable:
        """Rows and columns in another order; -1: one that we do not have."""
        cells = np.ix_(rows, places)
        taken = replace(self._each(lambda column: column[cells]), rules=rules, roster=roster)
        return taken.without(~((rows >= 0)[:, None] & (places >= 0)))

    def with_new(self, exists: Bools, now: float) -> AlertTable:
        """Those where ``exists`` is True: ours, and new ones where we have none."""
        ours = self.exists & exists
        if np.array_equal(ours, exists):
            return replace(self, exists=exists)
        new = AlertTable.new(self.rules, self.roster, exists, now)
        both = self._each(lambda mine, theirs: np.where(ours, mine, theirs), new)
        return replace(both, exists=exists)

    def having(self, alerts: Iterable[Alert]) -> AlertTable:
        """With these in the place of ours."""
        found = self._each(np.copy)
        for alert in alerts:
            found._put(alert)  # noqa: SLF001 - of the same class
        return found

    def _each(self, change: Callable[..., Any], *others: AlertTable) -> AlertTable:
        """``change`` of each of our arrays, with those of ``others`` beside it."""
        return replace(
            self,
            states=self.states.each(change, *(other.states for other in others)),
            **{name: change(*(getattr(one, name) for one in (self, *others))) for name in _ARRAYS},
        )

    def _put(self, alert: Alert) -> None:
        cell = self.rules.index(alert.rule), self.roster.places[alert.node]
        self.exists[cell] = True
        self.states.firing[cell] = alert.state is AlertState.FIRING
        self.states.pending[cell] = alert.state is AlertState.PENDING
        self.states.active_since[cell] = _or_nan(alert.active_since)
        self.states.keep_firing_since[cell] = _or_nan(alert.keep_firing_since)
        self.since[cell], self.updated_at[cell] = alert.since, alert.updated_at
        self.known_at[cell], self.quality[cell] = alert.known_at, CODES[alert.quality]
        self.value[cell], self.sampled_at[cell] = _or_nan(alert.value), _or_nan(alert.sampled_at)
        self.adopted[cell] = alert.adopted

    def fired_as(self, firing: Bools, which: Bools) -> AlertTable:
        """Where ``which`` is True, an alert fires or is inactive as ``firing`` says of its node."""
        changed = which & (self.states.firing != firing)
        return replace(
            self,
            states=replace(
                self.states,
                firing=np.where(changed, firing, self.states.firing),
                pending=self.states.pending & ~changed,
            ),
            since=np.where(changed, self.updated_at, self.since),
        )

    def without(self, which: Bools) -> AlertTable:
        """Without those where ``which`` is True."""
        return replace(self, exists=self.exists & ~which)

    def shifted(self, seconds: float) -> AlertTable:
        """The same with all times changed by ``seconds``, after the clock was set by as much."""
        states = self.states
        return replace(
            self,
            states=replace(
                states,
                active_since=states.active_since + seconds,
                keep_firing_since=states.keep_firing_since + seconds,
            ),
            since=self.since + seconds,
            updated_at=self.updated_at + seconds,
            known_at=self.known_at + seconds,
            sampled_at=self.sampled_at + seconds,
        )


_ARRAYS: Final = (
    *("exists", "since", "updated_at", "known_at", "quality", "value", "sampled_at", "adopted"),
)
"""The fields of `AlertTable` that are arrays."""


class _OfRule(Mapping[str, Alert]):
    """One row of a table, by the names of the nodes."""

    __slots__ = ("_row", "_table")

    def __init__(self, table: AlertTable, row: int) -> None:
        self._table, self._row = table, row

    def __getitem__(self, node: str) -> Alert:
        place = self._table.roster.places[node]
        if not self._table.exists.item(self._row, place):
            raise KeyError(node)
        return self._table.alert(self._row, place)

    def __iter__(self) -> Iterator[str]:
        names = self._table.roster.names
        return (names[place] for place in np.flatnonzero(self._table.exists[self._row]))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._table.exists[self._row]))


def no_alerts() -> AlertTable:
    """Of no rule and no node."""
    roster = Roster(())
    return AlertTable.new((), roster, _nowhere((), roster), 0.0)


def table_of(alerts: Alerts, rules: Sequence[str], roster: Roster) -> AlertTable:
    """Alerts as a table of these rules and nodes."""
    if isinstance(alerts, AlertTable):
        return alerts.on(rules, roster)
    known = [
        alert
        for rule in rules
        for alert in alerts.get(rule, {}).values()
        if roster.find(alert.node, alert.uid) is not None
    ]
    none = AlertTable.new(rules, roster, _nowhere(rules, roster), 0.0)
    return none.having(known) if known else none


def _nowhere(rules: Sequence[str], roster: Roster) -> Bools:
    return np.zeros((len(rules), len(roster)), np.bool_)


def _alert(  # noqa: PLR0917 - the columns
    rule: str,
    node: str,
    uid: str,
    firing: bool,  # noqa: FBT001 - the columns
    pending: bool,  # noqa: FBT001 - the columns
    since: float,
    updated_at: float,
    known_at: float,
    quality: int,
    value: float,
    sampled_at: float,
    active_since: float,
    keep_firing_since: float,
    adopted: bool,  # noqa: FBT001 - the columns
) -> Alert:
    state = AlertState.FIRING if firing else AlertState.PENDING if pending else AlertState.INACTIVE
    return Alert(
        rule,
        node,
        state,
        since,
        updated_at,
        known_at,
        QUALITIES[quality],
        None if isnan(value) else value,
        None if isnan(sampled_at) else sampled_at,
        None if isnan(active_since) else active_since,
        None if isnan(keep_firing_since) else keep_firing_since,
        adopted,
        uid,
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
