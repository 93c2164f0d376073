"""`/metrics`: dynsched's own metrics. Series with a node's name are in `node_series`.

Gauges show the last tick. There are none before the first tick.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client import Counter as CounterMetric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from dynsched import __version__
from dynsched.core.alerts import AlertState
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.marks import Action
from dynsched.core.percent import load_percent
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.web.placements import PlacedOn

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The one text format that every Prometheus reads."""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

EXTENDER_VERBS: Final = ("filter", "prioritize", "preempt", "bind")


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the series
        self.registry = registry
        self._rules: frozenset[str] = frozenset()
        self._tick: Tick | None = None

        def counter(name: str, label: str = "", values: Iterable[str] = ()) -> CounterMetric:
            labels = (label,) if label else ()
            found = CounterMetric(f"dynsched_{name}", _HELP[name], labels, registry=registry)
            for value in values:  # from the start, so that rate() sees the first one
                found.labels(value)
            return found

        def seconds(name: str, *labels: str) -> Histogram:
            name = f"{name}_duration_seconds"
            full = f"dynsched_{name}"
            return Histogram(full, _HELP[name], labels, buckets=_SECONDS, registry=registry)

        self._ticks = counter("ticks", "result", ("ok", "failed"))
        self._tick_duration = seconds("tick")
        self._query_duration = seconds("rule_query", "rule")
        self._query_failures = counter("rule_query_failures", "rule")
        self._patches = counter("patches", "action", Action)
        self._dry_run_patches = counter("dry_run_patches", "action", Action)
        self._patch_failures = counter("patch_failures")
        self._extender = counter("extender_requests", "verb", EXTENDER_VERBS)
        self._reloads = counter("rules_reloads", "result", ("success", "refused"))
        self._placed = counter("pods_placed", "node_state")
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def observe(self, tick: Tick) -> None:
        """A tick that evaluated the last answers again counts neither as a tick nor as a query."""
        self._tick = tick
        if tick.queried:
            self._ticks.labels("ok" if tick.error is None else "failed").inc()
            self._tick_duration.observe(tick.duration)
        for patch in tick.writes.applied:
            self._patches.labels(patch.action.value).inc()
        for patch in tick.planned if tick.leadership.dry_run else ():
            self._dry_run_patches.labels(patch.action.value).inc()
        self._patch_failures.inc(sum(not failure.again for failure in tick.writes.failures))
        self._reloads.labels("success").inc(tick.rules_status.reloaded)
        self._reloads.labels("refused").inc(tick.rules_status.refused)
        for health in tick.rules if tick.queried else ():
            self._query_duration.labels(health.rule.name).observe(health.duration)
            self._query_failures.labels(health.rule.name).inc(0 if health.ok else 1)
        rules = frozenset(health.rule.name for health in tick.rules)
        for gone in self._rules - rules:
            self._query_duration.remove(gone)
            self._query_failures.remove(gone)
        self._rules = rules

    def extender_asked(self, verb: str) -> None:
        self._extender.labels(verb).inc()

    def placed(self, counts: Mapping[PlacedOn, int]) -> None:
        """Pods that were bound since the last Tick. Called without any too, so that the series
        are there for rate() before the first pod.
        """
        for kind in PlacedOn:
            self._placed.labels(kind.value).inc(counts.get(kind, 0))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry: the last Tick as gauges."""
        info = _family("build_info")
        labels = {"version": __version__, "python": platform.python_version()}
        info.add_sample(info.name, labels, 1)
        yield info
        if self._tick is not None:
            yield from _node_gauges(self._tick)
            if self._tick.pods is not NO_PODS:
                yield from _pod_gauges(self._tick.pods)
            yield from _rule_gauges(self._tick)


def _node_gauges(tick: Tick) -> Iterator[Metric]:
    evaluation, table = tick.evaluation, tick.evaluation.table
    hot = len(table.marked & evaluation.hot)
    eligible = {
        name: entry.group.pool
        for name, entry in table.entries.items()
        if entry.mark.ineligible is None
    }
    is_eligible = {"true": len(eligible), "false": len(table.entries) - len(eligible)}
    pools = Counter(eligible.values())
    hot_in_pools = Counter(pool for name, pool in eligible.items() if name in evaluation.hot)
    yield _gauge("nodes", "eligible", is_eligible)
    yield _gauge("marked_nodes", "state", {"hot": hot, "other": len(table.marked) - hot})
    yield _gauge("pressured_nodes", value=len(evaluation.hot))
    yield _gauge("withheld_nodes", value=len(evaluation.decision.limited))
    yield _gauge("delayed_writes", value=tick.delayed)
    yield _gauge("conflicts", value=len(table.conflicts))
    yield _gauge("disputed_nodes", value=len(tick.disputes))
    yield _gauge("capped_pools", value=len(evaluation.decision.capped))
    yield _gauge("last_tick_timestamp_seconds", value=tick.taken_at)
    yield _gauge("dry_run", value=tick.leadership.dry_run)
    yield _gauge("leader", value=tick.leadership.leading)
    yield _gauge("rules_reload_success", value=tick.rules_status.error is None)
    yield _gauge("pool_nodes", "pool", pools)
    yield _gauge("pool_pressured_nodes", "pool", {pool: hot_in_pools[pool] for pool in pools})


def _pod_gauges(known: KnownPods) -> Iterator[Metric]:
    yield _gauge("pods_watch_up", value=known.error is None)
    yield _gauge("pods_recent", value=len(known.recent))
    if known.running is not None:
        yield _gauge("pods_running", value=known.running)
    workloads = {name: len(uses) for name, uses in known.use_of_workloads.items()}
    yield _gauge("workloads_of_known_use", "resource", workloads)


def _rule_gauges(tick: Tick) -> Iterator[Metric]:
    every = {health.rule.name: health for health in tick.rules}
    for state in (AlertState.FIRING, AlertState.PENDING):
        counts = {name: health.states.get(state, 0) for name, health in every.items()}
        yield _gauge(f"rule_{state.value}_nodes", "rule", counts)
    yield _gauge("rule_shadow", "rule", {name: each.rule.shadow for name, each in every.items()})
    loads = {name: load_percent(each.rule, each.rule.threshold) for name, each in every.items()}
    yield _gauge("rule_threshold_load", "rule", loads)
    yield _gauge("rule_samples", "rule", {name: each.samples for name, each in every.items()})
    unmatched = {name: each.unmatched for name, each in every.items()}
    yield _gauge("rule_unmatched_samples", "rule", unmatched)
    readings = _family("rule_readings")
    for name, health in every.items():
        for quality in Quality:
            labels = {"rule": name, "quality": quality.value}
            readings.add_sample(readings.name, labels, health.quality.get(quality, 0))
    yield readings
    times = {name: each.last_success for name, each in every.items()}
    yield _gauge("rule_last_success_timestamp_seconds", "rule", times)


_HELP: Final[Mapping[str, str]] = {
    "ticks": "Finished ticks.",
    "tick_duration_seconds": "How long a tick took, with queries and writes.",
    "rule_query_duration_seconds": "How long a rule's query took.",
    "rule_query_failures": "Queries without a usable answer.",
    "patches": "Patches that the API server accepted.",
    "dry_run_patches": "Patches that a dry run would send.",
    "patch_failures": "Patches that failed.",
    "extender_requests": "Requests to the extender.",
    "rules_reloads": "Changes of the rules file.",
    "pods_placed": "Pods bound, by the state of their node in the tick before: hot, marked (not "
    "hot), clean.",
    "build_info": "Always 1, with the version.",
    "nodes": "Nodes, by whether they may be marked.",
    "marked_nodes": "Nodes with the mark or a part of it: hot, or other (not released yet).",
    "pressured_nodes": "Hot nodes.",
    "withheld_nodes": "Nodes whose mark or release the guard or `mark: none` prevents.",
    "delayed_writes": "Patches that wait for guard.max_writes_per_minute.",
    "conflicts": "Nodes on which someone else set the mark's key to another value.",
    "disputed_nodes": "Nodes whose mark someone else changes too.",
    "capped_pools": "Pools in which guard.max_marked leaves hot nodes unmarked.",
    "last_tick_timestamp_seconds": "When the last tick was done.",
    "dry_run": "1 when nothing is written.",
    "leader": "1 on the replica that writes.",
    "rules_reload_success": "0 while the rules file is refused.",
    "pool_nodes": "Nodes that may be marked, by pool.",
    "pool_pressured_nodes": "Hot nodes, by pool.",
    "pods_watch_up": "0 while the watch of pods fails.",
    "pods_recent": "Pods just bound or just ended.",
    "pods_running": "Running pods.",
    "workloads_of_known_use": "Workloads whose pods' use is known.",
    "rule_firing_nodes": "Nodes on which the rule fires.",
    "rule_pending_nodes": "Nodes on which the rule is pending.",
    "rule_shadow": "1 for a rule with `shadow`.",
    "rule_threshold_load": "The rule's threshold, in points (100 is full).",
    "rule_samples": "Samples in the rule's last answer.",
    "rule_unmatched_samples": "Samples that match no node.",
    "rule_readings": "Nodes, by the quality of their sample.",
    "rule_last_success_timestamp_seconds": "When the rule's query last succeeded.",
}


def _family(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"dynsched_{name}", _HELP[name])


def _gauge(
    name: str, label: str = "", values: Mapping[str, float | None] | None = None, value: float = 0
) -> Metric:
    """A sample for each of ``values`` (by the label's value), or one without a label. None is left
    out.
    """
    family = _family(name)
    for key, each in ({"": value} if values is None else values).items():
        if each is not None:
            family.add_sample(family.name, {label: key} if label else {}, each)
    return family
