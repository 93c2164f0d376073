"""The checks of nodes against samples and marks: N1 and N2. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

from dynsched.engine.guard import count_of, is_eligible, pool_of
from dynsched.engine.mark_state import mark_state
from dynsched.engine.match import NodeIndex, match_samples
from dynsched.engine.model import Node
from dynsched.engine.wording import by_reason, counted, listed, some
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.finding import Finding, NotChecked, Severity
from dynsched.tools.doctor.gathered import ClusterFacts, PrometheusFacts, RuleFacts
from dynsched.util.durations import format_duration

SKEW: Final = 30.0
"""Seconds by which clocks may differ."""
LAG: Final = 60.0
"""Seconds that the newest sample may be old, where three scrapes are not longer."""
_SHOWN: Final = 3


def check_coverage(
    facts: PrometheusFacts, nodes: Mapping[str, Node], rule_set: RuleSet, index: NodeIndex
) -> Iterator[Finding]:
    """N1: which eligible nodes have no sample, and which samples have no node."""
    eligible = [node for node in nodes.values() if is_eligible(node, rule_set.nodes)]
    for rule in facts.rules:
        if rule.answer.error is None and rule.answer.samples:
            asked = [node for node in eligible if rule.rule.applies_to(node.labels)]
            yield from _uncovered(rule, asked, rule_set, index)


def check_clocks(facts: PrometheusFacts, rule_set: RuleSet) -> Iterator[Finding]:
    """N1: clocks that differ, and metrics that come late."""
    if facts.skew is not None and abs(facts.skew) > SKEW:
        ahead = "ahead of" if facts.skew > 0 else "behind"
        yield Finding(
            "N1",
            Severity.WARNING,
            "the clocks of Prometheus and of this machine differ",
            f"Prometheus's is {format_duration(round(abs(facts.skew)))} {ahead} ours",
            "synchronise both by NTP",
        )
    if facts.node_skew is not None and facts.node_skew > SKEW:
        yield Finding(
            "N1",
            Severity.WARNING,
            "the clock of a node differs from Prometheus's",
            f"node_time_seconds: by up to {format_duration(round(facts.node_skew))}",
            "synchronise the nodes by NTP",
        )
    for rule in facts.rules:
        lags = [(each.lag, each) for each in rule.selectors if each.lag is not None]
        lag, late = max(lags, key=itemgetter(0), default=(0.0, None))
        if late is None or lag <= max(LAG, 3 * (late.interval or 0.0)):
            continue
        patience = rule_set.stale_after_of(rule.rule)
        yield Finding(
            "N1",
            Severity.ERROR if lag > patience else Severity.WARNING,
            "the samples come late: a node is hot for that long before the rule can see it",
            f"the newest sample of {late.selector.text} is {format_duration(round(lag))} old",
            "scrape more often, or ask the Prometheus that scrapes",
            rule.rule.name,
        )


def check_marks(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Finding | NotChecked]:
    """N2: what stands on nodes, and a limit that allows no mark."""
    states = {node.name: mark_state(node, rule_set.mark) for node in facts.nodes.values()}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    for why, names in by_reason({n: c for n, c in conflicts.items() if c}).items():
        yield Finding(
            "N2",
            Severity.WARNING,
            "somebody else uses the key of the mark; dynsched never marks such a node",
            f"{counted(len(names), 'node')}, as {some(sorted(names), _SHOWN)}: {why}",
            "choose another mark.label, or remove what was set by hand",
        )
    marked = sorted(name for name, state in states.items() if state.marked)
    if marked and facts.holders == ():
        yield Finding(
            "N2",
            Severity.WARNING,
            "nodes are marked, and no dynsched is running that would release them",
            f"{counted(len(marked), 'node')}: {some(marked, _SHOWN)}",
            "start dynsched, or remove the marks with `dynsched prune`",
        )
    yield from _no_marks(facts.nodes, rule_set)


def _uncovered(
    rule: RuleFacts, eligible: list[Node], rule_set: RuleSet, index: NodeIndex
) -> Iterator[Finding]:
    found = match_samples(rule.rule, rule.answer.samples, index)
    missing = [node for node in eligible if not found.readings.has(node.name)]
    if missing:
        pools = Counter(pool_of(node, rule_set.guard) for node in eligible)
        without = Counter(pool_of(node, rule_set.guard) for node in missing)
        shares = [
            f"{f'pool {pool}: ' if pool else ''}{count} of {pools[pool]}"
            for pool, count in sorted(without.items())
        ]
        names = sorted(node.name for node in missing)
        yield Finding(
            "N1",
            Severity.ERROR if len(missing) == len(eligible) else Severity.WARNING,
            "nodes have no sample: the rule knows nothing of them",
            f"{listed(shares)} nodes: {some(names, _SHOWN)}",
            "is their exporter running and scraped? Look at Prometheus's page of targets",
            rule.rule.name,
        )
    unmatched = [each for each in found.unmatched if each.value]
    if unmatched:
        reasons = by_reason({each.value: each.reason for each in unmatched})
        reason, values = max(reasons.items(), key=lambda item: len(item[1]))
        yield Finding(
            "N1",
            Severity.WARNING if missing else Severity.INFO,
            "samples belong to no node of this cluster",
            f"{counted(len(unmatched), 'sample')}, as {some(sorted(values), _SHOWN)}: {reason}",
            "select only this cluster's series, or set node_label to the label with the node",
            rule.rule.name,
        )


def _no_marks(nodes: Mapping[str, Node], rule_set: RuleSet) -> Iterator[Finding]:
    guard = rule_set.guard
    pools = Counter(
        pool_of(node, guard) for node in nodes.values() if is_eligible(node, rule_set.nodes)
    )
    if nodes and not pools:
        yield Finding(
            "N2",
            Severity.ERROR,
            "no node may be marked at all",
            f"{counted(len(nodes), 'node')}; nodes.selector: {rule_set.nodes.selector or 'none'}",
            "correct nodes.selector, or set nodes.include_control_plane",
        )
    none = sorted(pool for pool, count in pools.items() if count_of(guard.max_marked, count) == 0)
    if none:
        named = [
            f"pool {pool} ({pools[pool]})" if pool else f"{pools[pool]} nodes" for pool in none
        ]
        yield Finding(
            "N2",
            Severity.WARNING,
            "guard.max_marked allows no mark: the share of so few nodes is less than one",
            f"max_marked: {guard.max_marked}; {some(named, _SHOWN)}",
            "write a number of nodes, such as max_marked: 1",
        )
