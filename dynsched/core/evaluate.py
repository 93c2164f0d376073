"""Rules and readings -> alerts and verdicts. `core.transitions` says how an alert changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dynsched.core.alerts import Alerts, AlertTable, Verdicts, table_of
from dynsched.core.columns import (
    CODES,
    MISSING,
    OK,
    Bools,
    Codes,
    Floats,
    NodeReadings,
    Roster,
    filled,
)
from dynsched.core.model import Node, Quality, Reading
from dynsched.core.rules import RuleSet
from dynsched.core.transitions import Limits, Readings, Setting, advance

_FAILED: Final = CODES[Quality.FAILED]
_STALE: Final = CODES[Quality.STALE]


@dataclass(frozen=True, slots=True)
class RuleReadings:
    """One rule's readings in one tick."""

    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By node name; empty when the query failed."""
    failed: bool = False
    """Whether the query failed."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation."""

    alerts: AlertTable
    """By rule name, then by node name."""
    verdicts: Verdicts
    """One per node, by its name."""


def evaluate(
    rule_set: RuleSet,
    readings: Mapping[str, RuleReadings],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
) -> Evaluation:
    """One evaluation of every rule on every node that its ``selector`` selects; ``nodes`` by name.

    A rule without an entry in ``readings`` counts as failed. Alerts of rules and nodes that no
    longer exist are dropped, and so are those of nodes that the rule does not select. A node with
    another uid is another node and gets new alerts. ``now`` may be earlier than in the previous
    evaluation; the times of an alert never go back.
    """
    rules = [rule.name for rule in rule_set.rules]
    before = table_of(previous, rules, Roster(nodes.values()))
    table = evaluated(rule_set, readings, before.with_new(selected(rule_set, nodes), now), now)
    return Evaluation(table, Verdicts.of(table, rule_set))


def selected(rule_set: RuleSet, nodes: Mapping[str, Node]) -> Bools:
    """Which rule applies to which node: shape (rules, nodes)."""
    found = np.ones((len(rule_set.rules), len(nodes)), np.bool_)
    for row, rule in enumerate(rule_set.rules):
        if rule.selector.requirements:
            found[row] = [rule.applies_to(node.labels) for node in nodes.values()]
    return found


def evaluated(
    rule_set: RuleSet, readings: Mapping[str, RuleReadings], before: AlertTable, now: float
) -> AlertTable:
    """The alerts ``before`` after one evaluation of all rules."""
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
    rule_set: RuleSet, readings: Mapping[str, RuleReadings], before: AlertTable
) -> tuple[Floats, Floats, Codes]:
    """Values, the times at which they were taken, and their quality: shape (rules, nodes)."""
    shape = before.exists.shape
    values, taken = filled(shape, np.nan), filled(shape, np.nan)
    quality: Codes = np.full(shape, MISSING, np.int8)
    for row, rule in enumerate(rule_set.rules):
        answer = readings.get(rule.name)
        if answer is None or answer.failed:
            quality[row] = _FAILED
            continue
        found = NodeReadings.of(answer.readings, before.roster)
        values[row], taken[row], quality[row] = found.value, found.taken, found.quality
    return values, taken, quality
