"""The metrics of each node as text. prometheus_client would take a hundred times as long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dynsched.core.alerts import Alert, AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import group_means
from dynsched.core.percent import FULL
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import escaped
from dynsched.web.nodes import Kind, note_of

HOT: Final = 1.0
UNDECIDED: Final = 0.5
COOL: Final = 0.0


def verdict(evaluation: Evaluation, name: str) -> float:
    """One number for a node, for programs that act on it.

    - HOT: the node is marked, and a rule fires with a value that has not cleared.
    - COOL: the node is not marked, every rule has a current value, and none fires or is pending.
    - UNDECIDED: any other state. Programs should do nothing. Examples: a mark that only
      ``keep_firing_for`` keeps, a hot node that the cap leaves unmarked, an unknown value, a
      conflict, a node that must not be marked.
    """
    mark, alerts = evaluation.table.entries[name].mark, counting_alerts(evaluation, name)
    if not mark.may_mark:
        return UNDECIDED
    known = [alert for alert in alerts if alert.quality is Quality.OK]
    if mark.marked:
        goes_on = any(alert.firing and alert.keep_firing_since is None for alert in known)
        return HOT if goes_on else UNDECIDED
    inactive = [alert for alert in known if alert.state is AlertState.INACTIVE]
    return COOL if alerts and len(inactive) == len(alerts) else UNDECIDED


def counting_alerts(evaluation: Evaluation, name: str) -> list[Alert]:
    """The alerts of a node that can mark it: those of rules without `shadow`."""
    rules = evaluation.rule_set.by_name
    return [alert for alert in evaluation.pressures[name].alerts if not rules[alert.rule].shadow]


def node_series(tick: Tick) -> str:
    """The metrics in Prometheus's text format, without those that have no series."""
    text: list[str] = []
    for family, (meaning, series_of) in FAMILIES.items():
        lines = [f"{family}{{{labels}}} {value:.4g}\n" for labels, value in series_of(tick)]
        if lines:
            text += [f"# HELP {family} {meaning}\n# TYPE {family} gauge\n", *lines]
    return "".join(text)


_Lines = Iterator[tuple[str, float]]
"""Labels and value of each series."""


def _verdicts(tick: Tick) -> _Lines:
    # A dry run shows the nodes as they would be marked: no program must move pods because of it.
    most = UNDECIDED if tick.leadership.dry_run else HOT
    for name in tick.evaluation.table.entries:
        yield f'node="{name}"', min(verdict(tick.evaluation, name), most)


def _measured_loads(tick: Tick) -> _Lines:
    for rule in tick.rule_set.rules:
        for name, load in _known_loads(tick.evaluation, rule):
            yield _labels(name, rule), load


def _expected_loads(tick: Tick) -> _Lines:
    for rule in tick.rule_set.rules:
        expected = tick.evaluation.expected.get(rule.name)
        if expected is not None:
            for name, load in _known_loads(tick.evaluation, rule):
                yield _labels(name, rule), expected.of(name, load)


def _above_mean(tick: Tick) -> _Lines:
    groups = tick.evaluation.table.groups
    for rule in tick.rule_set.rules:
        if rule.resource is not None:
            # Capped, because one odd value must not distort the mean.
            loads = {n: min(load, FULL) for n, load in _known_loads(tick.evaluation, rule)}
            means = group_means(loads, groups)
            for name, load in loads.items():
                yield _labels(name, rule), load - means[groups[name]]


def _known_loads(evaluation: Evaluation, rule: Rule) -> Iterator[tuple[str, float]]:
    """The measured load of each node for which the rule has a good value."""
    for name in evaluation.table.entries:
        load = evaluation.measured_load(rule, name)
        if load is not None:
            yield name, load


def _labels(name: str, rule: Rule) -> str:
    return f'node="{name}",rule="{escaped(rule.name)}"'


def _hot_unmarked(tick: Tick) -> _Lines:
    table, hot = tick.evaluation.table, tick.evaluation.hot
    for name, entry in table.entries.items():
        if name in hot and not entry.mark.marked:
            note = note_of(tick, name)
            yield f'node="{name}",reason="{note.kind if note else Kind.NEXT_TICK}"', 1.0


FAMILIES: Final[Mapping[str, tuple[str, Callable[[Tick], _Lines]]]] = {
    "dynsched_node_verdict": (
        "1: marked, value not cleared. 0: known to be cool. 0.5: all else.",
        _verdicts,
    ),
    "dynsched_node_measured_load": (
        "The rule's last good value, in points (100 is full).",
        _measured_loads,
    ),
    "dynsched_node_expected_load": (
        "The measured load, adjusted for pods just bound or just ended.",
        _expected_loads,
    ),
    "dynsched_node_load_above_mean": (
        "Measured load minus the mean of its pool's nodes with the same hard taints, in points.",
        _above_mean,
    ),
    "dynsched_node_hot_unmarked": (
        "1 for each hot node without the mark, and why.",
        _hot_unmarked,
    ),
}
"""Help text and series of each metric. They are absent while ticks are overdue."""
