"""Rules and readings -> alerts and verdicts. `core.transitions` says how an alert changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Final

import numpy as np

from dynsched.engine.alerts import AlertTable
from dynsched.engine.columns import (
    CODES,
    MISSING,
    OK,
    Bools,
    Codes,
    Floats,
    NodeReadings,
    filled,
)
from dynsched.engine.model import Alert, Node, Quality, Verdict
from dynsched.engine.transitions import Limits, Readings, Setting, advance
from dynsched.rules.rule_set import RuleSet

_FAILED: Final = CODES[Quality.FAILED]
_STALE: Final = CODES[Quality.STALE]


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts(Mapping[str, Verdict]):
    """One verdict per node, by its name; made when somebody asks. Shadow rules are in it, and count
    for nothing. Arrays have one element for each node.
    """

    alerts: AlertTable
    hot: Bools
    early: Bools
    """Not hot, and the alert of an early mark fires."""
    since: Floats
    """When the first of the firing alerts began to fire; NaN where none does."""
    severity: Floats

    @classmethod
    def of(cls, alerts: AlertTable, rule_set: RuleSet) -> Verdicts:
        """Combine the alerts of each node."""
        rules = [rule_set.by_name[name] for name in alerts.rules]
        is_hot = np.array([not r.shadow and r.early_of is None for r in rules], np.bool_)
        is_early = np.array([not r.shadow and r.early_of is not None for r in rules], np.bool_)
        firing = alerts.states.firing & alerts.exists
        hot = np.logical_or.reduce(firing[is_hot], axis=0)
        early: Bools = np.logical_or.reduce(firing[is_early], axis=0) & ~hot
        since, severity = filled(hot.shape, np.nan), filled(hot.shape, 0.0)
        places = np.flatnonzero(hot | early)
        if places.size:
            counts = np.where(hot[places], is_hot[:, None], is_early[:, None])
            counting: Bools = np.logical_and(counts, firing[:, places])
            began = np.where(counting, alerts.since[:, places], np.inf)
            since[places] = began.min(axis=0)
            limits = Limits([Setting.of(rule, rule_set) for rule in rules])
            severity[places] = worst(limits.excess(alerts.value[:, places]), counting)
        return cls(alerts, hot, early, since, severity)

    @property
    def wanting(self) -> list[str]:
        """The names of the nodes that are to carry the mark, as far as ``guard`` allows."""
        names = self.alerts.roster.names
        return [names[place] for place in np.flatnonzero(self.hot | self.early)]

    def of_nodes(self, places: Sequence[int]) -> list[Verdict]:
        """The verdicts on the nodes of these places."""
        names = [self.alerts.roster.names[place] for place in places]
        columns = (self.hot, self.since, self.severity, self.early)
        taken = [column[places].tolist() for column in columns]
        return list(map(_verdict, names, *taken, self.alerts.of_nodes(places)))

    def __getitem__(self, node: str) -> Verdict:
        """The verdict on a node."""
        place = self.alerts.roster.places[node]
        return _verdict(
            node,
            self.hot.item(place),
            self.since.item(place),
            self.severity.item(place),
            self.early.item(place),
            self.alerts.of_node(place),
        )

    def __iter__(self) -> Iterator[str]:
        """The names of the nodes."""
        return iter(self.alerts.roster.names)

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.alerts.roster)


def worst(excess: Floats, counting: Bools) -> Floats:
    """The largest excess of the ``counting`` alerts of each node; 0 where none is beyond its
    threshold, or no value is known. Shapes: (rules, nodes).
    """
    # NaN, of a rule whose value is not known, is not greater.
    found = np.where(counting & (excess > 0), excess, 0.0).max(axis=0, initial=0.0)
    return np.asarray(found, np.float64)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation."""

    alerts: AlertTable
    """By rule name, then by node name."""
    verdicts: Verdicts
    """One per node, by its name."""


def selected(rule_set: RuleSet, nodes: Mapping[str, Node]) -> Bools:
    """Which rule applies to which node: shape (rules, nodes)."""
    found = np.ones((len(rule_set.rules), len(nodes)), np.bool_)
    for row, rule in enumerate(rule_set.rules):
        if rule.selector.requirements:
            found[row] = [rule.applies_to(node.labels) for node in nodes.values()]
    return found


def evaluated(
    rule_set: RuleSet, readings: Mapping[str, NodeReadings], before: AlertTable, now: float
) -> AlertTable:
    """The alerts ``before`` after one evaluation of every rule on the same nodes.

    A rule without an entry in ``readings`` counts as failed. ``now`` may be earlier than in the
    evaluation before; the times of an alert never go back.
    """
    settings = [Setting.of(rule, rule_set) for rule in rule_set.rules]
    limits = Limits(settings)
    values, taken, quality = _columns(rule_set, readings, before)
    # The age of a sample is measured by ``now`` itself: after the clock was set back, new samples
    # have timestamps of the new time. The times of an alert must not go back.
    then = np.maximum(before.updated_at, now)
    quality[(quality == OK) & ~(now - taken <= limits.stale_after)] = _STALE
    ok = quality == OK
    seen = Readings(
        ok,
        np.stack([one.breached(row) for one, row in zip(settings, values, strict=True)]),
        np.stack([one.holds(row) for one, row in zip(settings, values, strict=True)]),
    )
    states = advance(before.states, seen, before.known_at, then, limits)
    changed = states.firing != before.states.firing
    changed |= states.pending != before.states.pending
    return AlertTable(
        rules=before.rules,
        roster=before.roster,
        exists=before.exists,
        states=states,
        since=np.where(changed, then, before.since),
        updated_at=then,
        known_at=np.where(
            ok, np.maximum(before.known_at, np.minimum(then, taken)), before.known_at
        ),
        quality=quality,
        value=np.where(ok, values, before.value),
        sampled_at=np.where(ok, taken, before.sampled_at),
        adopted=before.adopted & ~ok & ~changed,
    )


def _columns(
    rule_set: RuleSet, readings: Mapping[str, NodeReadings], before: AlertTable
) -> tuple[Floats, Floats, Codes]:
    """Values, the times at which they were taken, and their quality: shape (rules, nodes)."""
    shape = before.exists.shape
    values, taken = filled(shape, np.nan), filled(shape, np.nan)
    quality: Codes = np.full(shape, MISSING, np.int8)
    for row, rule in enumerate(rule_set.rules):
        found = readings.get(rule.name)
        if found is None:
            quality[row] = _FAILED
        else:
            values[row], taken[row], quality[row] = found.value, found.taken, found.quality
    return values, taken, quality


def _verdict(  # noqa: PLR0917 - the columns
    node: str,
    hot: bool,  # noqa: FBT001 - the columns
    since: float,
    severity: float,
    early: bool,  # noqa: FBT001 - the columns
    alerts: tuple[Alert, ...],
) -> Verdict:
    return Verdict(node, hot, None if isnan(since) else since, severity, alerts, early)
