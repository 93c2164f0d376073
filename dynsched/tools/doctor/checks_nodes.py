"""The checks of nodes against samples and marks: N1 and N2. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dynsched.engine.guard import count_of, is_eligible, pool_of
from dynsched.engine.mark_state import mark_state
from dynsched.engine.match import match_samples
from dynsched.engine.wording import by_reason, counted, listed, some
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import ClusterFacts, RuleFacts, World
from dynsched.util.durations import format_duration

SKEW: Final = 30.0
"""Seconds by which clocks may differ."""
LAG: Final = 60.0
"""Seconds that the newest sample may be old, where three scrapes are not longer."""
_SHOWN: Final = 3


def clocks(facts: World) -> Iterator[Told]:
    """N1: clocks that differ."""
    if facts.skew is not None and abs(facts.skew) > SKEW:
        ahead = "ahead of" if facts.skew > 0 else "behind"
        yield warning(
            "the clocks of Prometheus and of this machine differ",
            f"Prometheus's is {format_duration(round(abs(facts.skew)))} {ahead} ours",
            "synchronise both by NTP",
        )
    if facts.node_skew is not None and facts.node_skew > SKEW:
        yield warning(
            "the clock of a node differs from Prometheus's",
            f"node_time_seconds: by up to {format_duration(round(facts.node_skew))}",
            "synchronise the nodes by NTP",
        )


def late_samples(rule: RuleFacts, world: World) -> Iterator[Told]:
    """N1: the selector whose samples come latest."""
    late = max(rule.selectors, key=lambda each: each.lag or 0.0, default=None)
    if late is None or not late.lag or late.lag <= max(LAG, 3 * (late.interval or 0.0)):
        return
    yield (error if late.lag > world.rule_set.stale_after_of(rule.rule) else warning)(
        "the samples come late: a node is hot for that long before the rule can see it",
        f"the newest sample of {late.selector.text} is {format_duration(round(late.lag))} old",
        "scrape more often, or ask the Prometheus that scrapes",
    )


def uncovered(rule: RuleFacts, world: World) -> Iterator[Told]:
    """N1: which eligible nodes have no sample, and which samples have no node."""
    if world.index is None or not rule.answer.samples:
        return
    guard, nodes = world.rule_set.guard, world.rule_set.nodes
    asked = [
        node
        for node in world.nodes.values()
        if is_eligible(node, nodes) and rule.rule.applies_to(node.labels)
    ]
    found = match_samples(rule.rule, rule.answer.samples, world.index)
    missing = [node for node in asked if not found.readings.has(node.name)]
    if missing:
        pools = Counter(pool_of(node, guard) for node in asked)
        without = Counter(pool_of(node, guard) for node in missing)
        shares = [
            f"{f'pool {pool}: ' if pool else ''}{count} of {pools[pool]}"
            for pool, count in sorted(without.items())
        ]
        yield (error if len(missing) == len(asked) else warning)(
            "nodes have no sample: the rule knows nothing of them",
            f"{listed(shares)} nodes: {some(sorted(node.name for node in missing), _SHOWN)}",
            "is their exporter running and scraped? Look at Prometheus's page of targets",
        )
    unmatched = {each.value: each.reason for each in found.unmatched if each.value}
    if unmatched:
        reason, values = max(by_reason(unmatched).items(), key=lambda item: len(item[1]))
        yield (warning if missing else hint)(
            "samples belong to no node of this cluster",
            f"{counted(len(unmatched), 'sample')}, as {some(sorted(values), _SHOWN)}: {reason}",
            "select only this cluster's series, or set node_label to the label with the node",
        )


def marks(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """N2: what stands on nodes."""
    states = {node.name: mark_state(node, rule_set.mark) for node in facts.nodes.values()}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    for why, names in by_reason(conflicts).items():
        yield warning(
            "somebody else uses the key of the mark; dynsched never marks such a node",
            f"{counted(len(names), 'node')}, as {some(sorted(names), _SHOWN)}: {why}",
            "choose another mark.label, or remove what was set by hand",
        )
    marked = sorted(name for name, state in states.items() if state.marked)
    if marked and facts.holders == ():
        yield warning(
            "nodes are marked, and no dynsched is running that would release them",
            f"{counted(len(marked), 'node')}: {some(marked, _SHOWN)}",
            "start dynsched, or remove the marks with `dynsched prune`",
        )


def no_marks(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """N2: a selector or a limit that allows no mark."""
    guard, nodes = rule_set.guard, facts.nodes
    pools = Counter(
        pool_of(node, guard) for node in nodes.values() if is_eligible(node, rule_set.nodes)
    )
    if nodes and not pools:
        yield error(
            "no node may be marked at all",
            f"{counted(len(nodes), 'node')}; nodes.selector: {rule_set.nodes.selector or 'none'}",
            "correct nodes.selector, or set nodes.include_control_plane",
        )
    none = [
        f"pool {pool} ({count})" if pool else f"{count} nodes"
        for pool, count in sorted(pools.items())
        if count_of(guard.max_marked, count) == 0
    ]
    if none:
        yield warning(
            "guard.max_marked allows no mark: the share of so few nodes is less than one",
            f"max_marked: {guard.max_marked}; {some(none, _SHOWN)}",
            "write a number of nodes, such as max_marked: 1",
        )
