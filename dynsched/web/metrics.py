"""`/metrics`: dynsched's own metrics. The metrics of each node are in `node_series`.

Gauges show the last tick. Most are absent before the first tick.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client import Counter as CounterMetric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from dynsched import __version__
from dynsched.core.alerts import AlertState
from dynsched.core.load.expected import NO_PODS
from dynsched.core.marks import Action
from dynsched.core.percent import load_percent
from dynsched.core.samples import Quality
from dynsched.core.tick import RuleHealth, Tick
from dynsched.features.order.status import OrderStatus
from dynsched.web.page.past import PlacedOn

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The only text format that every version of Prometheus reads."""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

EXTENDER_VERBS: Final = ("filter", "prioritize", "preempt", "bind")


class Metrics:
    """``order``: set once the rules have an `order`, unless this is a dry run."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the series
        self.order: OrderStatus | None = None
        self._registry = CollectorRegistry()
        self._rules: frozenset[str] = frozenset()
        self._tick: Tick | None = None

        def counter(
            name: str, text: str, label: str = "", values: Iterable[str] = ()
        ) -> CounterMetric:
            labels = [label] if label else []
            found = CounterMetric(f"dynsched_{name}", text, labels, registry=self._registry)
            for value in values:  # from the start, so that rate() sees the first increase
                found.labels(value)
            return found

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            full = f"dynsched_{name}_duration_seconds"
            return Histogram(full, text, labels, buckets=_SECONDS, registry=self._registry)

        self._ticks = counter("ticks", "Finished ticks.", "result", ("ok", "failed"))
        self._tick_duration = seconds("tick", "How long a tick took, with queries and writes.")
        self._query_duration = seconds("rule_query", "How long a rule's query took.", "rule")
        self._query_failures = counter(
            "rule_query_failures", "Queries without a usable answer.", "rule"
        )
        self._patches = counter(
            "patches", "Patches that the API server accepted.", "action", Action
        )
        self._dry_run_patches = counter(
            "dry_run_patches", "Patches that a dry run would send.", "action", Action
        )
        self._patch_failures = counter("patch_failures", "Patches that failed.")
        self._extender = counter(
            "extender_requests", "Requests to the extender.", "verb", EXTENDER_VERBS
        )
        self._reloads = counter(
            "rules_reloads", "Changes of the rules file.", "result", ("success", "refused")
        )
        self._placed = counter(
            "pods_placed",
            "Pods bound, by the state of their node in the tick before: hot, marked (not hot), "
            "clean.",
            "node_state",
        )
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def observe(self, tick: Tick) -> None:
        """Update the metrics. A tick without queries counts neither as a tick nor as a query."""
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
        for health in tick.rules:
            durations = self._query_duration.labels(health.rule.name)
            failures = self._query_failures.labels(health.rule.name)
            if tick.queried and health.is_new:
                durations.observe(health.duration)
                failures.inc(not health.ok)
        rules = frozenset(health.rule.name for health in tick.rules)
        for gone in self._rules - rules:
            self._query_duration.remove(gone)
            self._query_failures.remove(gone)
        self._rules = rules

    def extender_asked(self, verb: str) -> None:
        self._extender.labels(verb).inc()

    def placed(self, counts: Mapping[PlacedOn, int]) -> None:
        """Count pods that were bound since the last tick. Empty counts create the series, so that
        rate() sees the first pod.
        """
        for kind in PlacedOn:
            self._placed.labels(kind.value).inc(counts.get(kind, 0))

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry: the metrics of the last tick and of the order."""
        info = GaugeMetricFamily("dynsched_build_info", "Always 1, with the version.")
        labels = {"version": __version__, "python": platform.python_version()}
        info.add_sample(info.name, labels, 1)
        yield info
        if self._tick is not None:
            yield from _node_gauges(self._tick)
            yield from _rule_gauges(self._tick.rules)
        if self.order is not None:
            yield from _order_metrics(self.order)


def _node_gauges(tick: Tick) -> Iterator[Metric]:
    evaluation, table = tick.evaluation, tick.evaluation.table
    hot = len(table.marked & evaluation.hot)
    eligible = {
        name: entry.group.pool
        for name, entry in table.entries.items()
        if entry.mark.ineligible is None
    }
    is_eligible = {"true": len(eligible), "false": len(table.entries) - len(eligible)}
    yield _gauge("nodes", "Nodes, by whether they may be marked.", is_eligible, "eligible")
    marked = {"hot": hot, "other": len(table.marked) - hot}
    yield _gauge("marked_nodes", "Marked nodes: hot, or other (not released yet).", marked, "state")
    yield _gauge("pressured_nodes", "Hot nodes.", len(evaluation.hot))
    decision, error = evaluation.decision, tick.rules_status.error
    yield _gauge(
        "withheld_nodes", "Nodes that guard or `mark: none` hold back.", len(decision.limited)
    )
    yield _gauge("conflicts", "Nodes with another value of the mark's key.", len(table.conflicts))
    yield _gauge("disputed_nodes", "Nodes whose mark someone else changes.", len(tick.disputes))
    yield _gauge("capped_pools", "Pools with more hot nodes than max_marked.", len(decision.capped))
    yield _gauge("last_tick_timestamp_seconds", "When the last tick was done.", tick.taken_at)
    yield _gauge("leader", "1 on the replica that writes.", tick.leadership.leading)
    yield _gauge("rules_reload_success", "0 while the rules file is refused.", error is None)
    pools = Counter(eligible.values())
    hot_in_pools = Counter(pool for name, pool in eligible.items() if name in evaluation.hot)
    yield _gauge("pool_nodes", "Nodes that may be marked, by pool.", pools, "pool")
    by_pool = {pool: hot_in_pools[pool] for pool in pools}
    yield _gauge("pool_pressured_nodes", "Hot nodes, by pool.", by_pool, "pool")
    if tick.pods is not NO_PODS:
        if tick.pods.running is not None:
            yield _gauge("pods_running", "Running pods.", tick.pods.running)
        yield _gauge(
            "workloads_of_known_use",
            "Workloads whose pods' use is known.",
            {name: len(uses) for name, uses in tick.pods.use_of_workloads.items()},
            "resource",
        )


def _rule_gauges(rules: Iterable[RuleHealth]) -> Iterator[Metric]:
    every = {health.rule.name: health for health in rules}

    def of_rules(name: str, text: str, values: Iterable[float | None]) -> Metric:
        known = zip(every, values, strict=True)
        return _gauge(
            f"rule_{name}", text, {rule: each for rule, each in known if each is not None}, "rule"
        )

    for state, text in (
        (AlertState.FIRING, "Nodes on which the rule fires."),
        (AlertState.PENDING, "Nodes on which the rule is pending."),
    ):
        counts = (each.states.get(state, 0) for each in every.values())
        yield of_rules(f"{state.value}_nodes", text, counts)
    shadow = (each.rule.shadow for each in every.values())
    yield of_rules("shadow", "1 for a rule with `shadow`.", shadow)
    yield of_rules(
        "threshold_load",
        "The rule's threshold, in points (100 is full).",
        (load_percent(each.rule, each.rule.threshold) for each in every.values()),
    )
    unmatched = (each.unmatched for each in every.values())
    yield of_rules("unmatched_samples", "Samples that match no node.", unmatched)
    readings = GaugeMetricFamily(
        "dynsched_rule_readings",
        "Nodes, by the quality of their sample.",
        labels=["rule", "quality"],
    )
    for name, health in every.items():
        for quality in Quality:
            readings.add_metric([name, quality.value], health.quality.get(quality, 0))
    yield readings


def _order_metrics(status: OrderStatus) -> Iterator[Metric]:
    writes = CounterMetricFamily(
        "dynsched_order_writes", "Writes and deletions of the NodeOrder.", labels=["result"]
    )
    for result, count in status.calls.items():
        writes.add_metric([result], count)
    yield writes
    if status.in_force is not None:
        yield _gauge(
            "order_last_write_timestamp_seconds",
            "When this replica last wrote the NodeOrder in force.",
            status.in_force.at,
        )
    if (order := status.order) is None:
        return
    sizes = {pool: len(order.pools[pool].ranked) for pool in order.lists}
    yield _gauge("order_nodes", "Nodes that the order ranks, by pool.", sizes, "pool")
    if status.pods.running is not None:
        text = "Running pods that got the order when created."
        yield _gauge("order_pods", text, status.pods.with_order)


def _gauge(name: str, text: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    """``values``: numbers by label value; without a label, one number."""
    family = GaugeMetricFamily(f"dynsched_{name}", text)
    for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
        family.add_sample(family.name, {label: key} if label else {}, value)
    return family
