"""The checks of what a rule asks of its server: P7, P8, P10 and P11. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from dynsched.engine.wording import counted, some
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import Copies, RuleFacts, World
from dynsched.util.durations import format_duration
from dynsched.util.formatting import one_line

MUCH_OF_INTERVAL: Final = 0.1
MANY_SAMPLES: Final = 10_000_000
"""Of one evaluation; Prometheus ends a query at 50 million (--query.max-samples)."""
_SHOWN: Final = 100


def costs(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P7."""
    seconds, interval = rule.seconds, world.interval
    if seconds is not None and seconds > MUCH_OF_INTERVAL * interval:
        yield (error if seconds > interval else warning)(
            f"the query takes {seconds / interval:.0%} of the interval",
            f"{seconds:.2f} s, with a tick every {format_duration(interval)}"
            + (f"; {rule.samples:,} samples" if rule.samples else ""),
            "compute it by a recording rule (manifests/prometheus), or raise --interval",
        )
    elif rule.samples is not None and rule.samples > MANY_SAMPLES:
        yield warning(
            "one query touches so many samples that Prometheus may refuse it as the cluster grows",
            f"{rule.samples:,} samples; the server's default limit is 50,000,000",
            "compute it by a recording rule (manifests/prometheus)",
        )
    if rule.recorded is not None:
        name, text = rule.recorded
        yield hint(
            "a recording rule computes this already",
            f"{name} records {one_line(text, _SHOWN)}",
            f"write {name} in place of it",
        )


def looks_back_too_far(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P8."""
    retention = world.prometheus.retention
    if retention is None:
        return
    kept = f"Prometheus keeps {format_duration(retention)}"
    back = rule.expression.reach if rule.expression else 0.0
    if back > retention:
        yield error(
            "the expression looks back further than Prometheus keeps samples",
            f"it looks back {format_duration(back)}; {kept}",
            "write a shorter range, or keep samples for longer (--storage.tsdb.retention.time)",
        )
    window = max(rule.rule.hold_duration, rule.rule.keep_firing_for)
    if window > retention:
        yield warning(
            "a restart cannot rebuild the state of this rule: what it looks back on is not kept",
            f"for and keep_firing_for: up to {format_duration(window)}; {kept}",
            "write shorter durations, or keep samples for longer",
        )


def several_clusters(rule: RuleFacts, _: World) -> Iterator[Told]:
    """P10."""
    told = set()
    for facts in rule.selectors:
        for copies in facts.copies:
            if copies.label in told:
                continue
            told.add(copies.label)
            values = [repr(value) if value else "(none)" for value in copies.values]
            yield _how_bad(copies)(
                f"the series come with several values of the label {copies.label}"
                + (": nodes of different clusters have the same address" if copies.shared else ""),
                f"{facts.selector.text}: {some(values, 4)}"
                + (f"; {copies.shared} of `instance` under more than one" if copies.shared else ""),
                f'select one of them: {{{copies.label}="..."}}',
            )


def _how_bad(copies: Copies) -> partial[Told]:
    """Shards and replicas of Prometheus are no clusters."""
    if copies.shared:
        return error
    return hint if copies.label.startswith(("prometheus", "replica")) else warning


def throttling(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P11."""
    pressure = [
        each.selector.text
        for each in rule.selectors
        if each.selector.metric.startswith("node_pressure_cpu_") and not each.selector.is_combined
    ]
    throttled = world.prometheus.throttled
    if throttled and pressure:
        yield warning(
            "the CPU pressure of a node counts containers that are throttled by their own limit, "
            "so that a node that is idle looks hot",
            f"{pressure[0]}; {counted(throttled, 'container')} throttled within 10 minutes",
            "let it count with real use only: PRESSURE and on (instance) (CPU_IN_PERCENT > 50)",
        )
