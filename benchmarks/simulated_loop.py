"""How much overload each way to use dynsched removes, in a simulated closed loop.

    python benchmarks/simulated_loop.py [--seeds 3 | 41-48] [--scenario NAME]... [--way NAME]...
                                        [--trace FOLDER] [--peers] [--processes N] [--list]
                                        [--plots FOLDER]
    ... --seeds 941-943 --scenario "packed, *" --way "TargetLoadPacking, target *"

Pods come and go, their true use makes the nodes' load, and metrics lag behind it. Either dynsched's
own loop and extender decide, or another load-aware scheduler (closedloop/peers); a model of
kube-scheduler places the pods. *Avoidable overload* is the node-time over 80 % under the default
scheduler, minus that under an oracle that always sees the true load. No servers are needed. An hour
of 50 nodes takes some seconds.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import logging
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean

from closedloop import peers
from closedloop.modes import (
    SHIPPED,
    TAINT,
    Doc,
    beside_order,
    by_expected_load,
    ordered,
    read_rules,
    scored,
)
from closedloop.peers.low_node_utilization import BY_QUERY, with_low_node_utilization
from closedloop.players import Default, Dynsched, Naive, Oracle
from closedloop.plots import plot_over_time, plot_removed
from closedloop.scenarios import ALL, of_trace
from closedloop.traces import read
from closedloop.workload import Scenario
from closedloop.world import Outcome, Player, World, simulate
from rich import box
from rich.console import Console
from rich.table import Table

Outcomes = Mapping[tuple[str, str, int], Outcome]
"""Scenario, way, seed -> result of the run."""

DEFAULT, ORACLE = "default scheduler", "oracle"


@functools.cache
def shipped() -> Doc:
    """The shipped CPU rule, with the soft taint in addition to the label."""
    content = read_rules(SHIPPED)
    return {**content, "mark": {**content["mark"], "taint": TAINT}}


ORDERS: dict[str, Doc] = {
    "none equal": {"equal_below": 0},
    "equal below 50": {"equal_below": 50},
    "equal below 60": {"equal_below": 60},
    "pack to 50": {"equal_below": 50, "pack": True},
    "pack to 55": {"equal_below": 55, "pack": True},
}
"""Settings of the order that differ from its defaults."""


def label_only() -> Doc:
    """The shipped CPU rule with the label only, as it is shipped."""
    return {**shipped(), "mark": {"label": shipped()["mark"]["label"]}}


def scoring(method: str) -> Doc:
    """The shipped rule, with a profile for the extender."""
    return scored(shipped(), method)


def ways() -> dict[str, Callable[[World], Player]]:
    """The ways to place pods, by name."""

    def by(content: Doc, **how: bool) -> Callable[[World], Dynsched]:
        return functools.partial(Dynsched, content=content, **how)

    extender_only: Doc = {"marks": False, "extender": True}
    expected = by_expected_load(shipped())
    return {
        DEFAULT: Default,
        ORACLE: Oracle,
        "least loaded by the metric": Naive,
        "hot nodes, taint": by(shipped()),
        "hot nodes, taint, and descheduler": by(shipped(), descheduler=True),
        "expected load, taint": by(expected),
        "expected load, label + affinity": by(by_expected_load(label_only()), affinity=True),
        "expected load, taint, kubelets not scraped": by(expected, kubelets=False),
        "expected load, taint, and descheduler": by(expected, descheduler=True),
        "order": by(ordered(shipped()), marks=False, order=True),
        **{
            f"order, {name}": by(ordered(shipped(), **more), marks=False, order=True)
            for name, more in ORDERS.items()
        },
        "order, kubelets not scraped": by(
            ordered(shipped()), marks=False, order=True, kubelets=False
        ),
        "order, use of each pod known": by(
            ordered(shipped()), marks=False, order=True, kubelets=False, knows_each=True
        ),
        "order and hot nodes": by(beside_order(shipped()), order=True),
        "order and hot nodes, and descheduler": by(
            beside_order(shipped()), order=True, descheduler=True
        ),
        "order, and descheduler by load": with_low_node_utilization(
            by(ordered(shipped()), marks=False, order=True), BY_QUERY, World.measured
        ),
        "extender": by(scoring("relative"), **extender_only),
        "extender, kubelets not scraped": by(scoring("relative"), **extender_only, kubelets=False),
        "extender and taint": by(scored(shipped(), "relative"), extender=True),
        "second scheduler": by(scoring("relative"), by_requests=False, **extender_only),
        "extender, linear": by(scoring("linear"), **extender_only),
        **peers.ways(),
    }


def measure(
    scenarios: Iterable[Scenario],
    names: Iterable[str],
    seeds: range,
    processes: int | None = None,
) -> Outcomes:
    """Run all jobs in this many processes; by default one per core."""
    jobs = [
        (scenario, way, seed)
        for scenario in scenarios
        for way in dict.fromkeys((DEFAULT, ORACLE, *names))
        for seed in seeds
    ]
    with multiprocessing.Pool(processes) as pool:
        outcomes = pool.imap(_one, jobs)
        return {
            (scenario.name, way, seed): outcome
            for (scenario, way, seed), outcome in zip(jobs, outcomes, strict=True)
        }


def _one(job: tuple[Scenario, str, int]) -> Outcome:
    logging.disable(logging.CRITICAL)  # the log of thousands of ticks is of no interest
    scenario, way, seed = job
    return simulate(scenario, seed, ways()[way])


def removed(found: Outcomes, scenario: str, way: str, seed: int) -> float:
    """The share of the avoidable overload that the way removes."""
    before, best = found[scenario, DEFAULT, seed].hot, found[scenario, ORACLE, seed].hot
    return (before - found[scenario, way, seed].hot) / (before - best)


def removed_of_all(found: Outcomes, scenario: str, way: str, seeds: range) -> float:
    """As `removed`, for the sum of all seeds: a seed with little to avoid has little weight."""
    before, best, after = (
        sum(found[scenario, name, seed].hot for seed in seeds) for name in (DEFAULT, ORACLE, way)
    )
    return (before - after) / (before - best)


def table(found: Outcomes, scenario: str, names: Iterable[str], seeds: range) -> Table:
    """The table of one scenario, with a row per way."""
    shown = Table(
        *("way", "node-time over 80 %", "removed", "least to most"),
        *("beyond capacity", "pods on hot nodes", "pod-time short of CPU, p99 of pods", "used"),
        *("nodes without a pod", "pods waited", "evicted", "writes an hour and node"),
        title=scenario,
        box=box.MARKDOWN,
    )
    for way in dict.fromkeys((DEFAULT, ORACLE, *names)):
        runs = [found[scenario, way, seed] for seed in seeds]
        shares = [removed(found, scenario, way, seed) for seed in seeds]
        shown.add_row(
            way,
            f"{mean(run.hot for run in runs):.1%}",
            f"{removed_of_all(found, scenario, way, seeds):.0%}",
            f"{min(shares):.0%} to {max(shares):.0%}",
            f"{mean(run.beyond for run in runs):.2%}",
            f"{sum(run.on_hot for run in runs)} of {sum(run.placed for run in runs)}",
            f"{mean(run.starved for run in runs):.2%}, {mean(run.starved_p99 for run in runs):.0%}",
            f"{mean(run.used for run in runs):.1%}",
            f"{mean(run.empty for run in runs):.1f}",
            f"{mean(run.waited for run in runs):.1f} s",
            f"{sum(run.evicted for run in runs)}",
            f"{mean(run.writes for run in runs):.1f}",
        )
    return shown


def summary(found: Outcomes, names: Iterable[str], seeds: range) -> Table:
    """The table of all scenarios: the share of avoidable overload that each way removes."""
    scenarios = list(dict.fromkeys(scenario for scenario, _, _ in found))
    ways_shown = [name for name in names if name not in (DEFAULT, ORACLE)]
    shown = Table(
        *("scenario", "by default over 80 %", "avoidable", *ways_shown),
        title="share of the avoidable overload that is removed",
        box=box.MARKDOWN,
    )
    for scenario in scenarios:
        default, oracle = (
            mean(found[scenario, name, seed].hot for seed in seeds) for name in (DEFAULT, ORACLE)
        )
        shares = (removed_of_all(found, scenario, name, seeds) for name in ways_shown)
        shown.add_row(
            scenario,
            f"{default:.1%}",
            f"{default - oracle:.1%}",
            *(f"{share:.0%}" for share in shares),
        )
    return shown


def fewer_nodes(found: Outcomes, names: Iterable[str], seeds: range) -> Table:
    """The table of all scenarios: nodes without a pod, and node-time over 80 %."""
    shown_ways = list(dict.fromkeys((DEFAULT, *names)))
    title = "nodes without a pod, and node-time over 80 %"
    shown = Table("scenario", *shown_ways, title=title, box=box.MARKDOWN)
    for scenario in dict.fromkeys(scenario for scenario, _, _ in found):
        runs = [[found[scenario, way, seed] for seed in seeds] for way in shown_ways]
        cells = ((mean(run.empty for run in each), mean(run.hot for run in each)) for each in runs)
        shown.add_row(scenario, *(f"{empty:.1f}, {hot:.1%}" for empty, hot in cells))
    return shown


def plot(found: Outcomes, names: Iterable[str], seeds: range, folder: Path) -> None:
    """Write the pictures for docs/effect.md."""
    scenarios = list(dict.fromkeys(scenario for scenario, _, _ in found))
    shown = [name for name in names if name not in (DEFAULT, ORACLE)]
    folder.mkdir(parents=True, exist_ok=True)
    plot_removed(
        {
            way: {name: removed_of_all(found, name, way, seeds) for name in scenarios}
            for way in shown
        },
        folder / "removed.svg",
    )
    first = scenarios[0]
    lines = {way: found[first, way, seeds[0]].by_second for way in (DEFAULT, *shown, ORACLE)}
    plot_over_time(lines, folder / "over-time.svg", f"{first}, one run")


def seeds_of(text: str) -> range:
    """Parse a number of seeds, which start at 1, or the first and the last seed."""
    first, _, last = text.rpartition("-")
    return range(int(first or 1), int(last) + 1)


def matching(patterns: Iterable[str] | None, names: Iterable[str]) -> list[str]:
    """The names that match a pattern, or all without patterns. ValueError if one matches none."""
    known = list(names)
    if patterns is None:
        return known
    found = {pattern: fnmatch.filter(known, pattern) for pattern in patterns}
    for pattern, matches in found.items():
        if not matches:
            raise ValueError(f"no name matches {pattern!r}; --list prints the names")
    return list(dict.fromkeys(itertools.chain.from_iterable(found.values())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=seeds_of, default=range(1, 4), help="a number, or 41-48")
    parser.add_argument("--scenario", action="append", help="a name from --list, or a pattern: *")
    parser.add_argument("--way", action="append", help="a name from --list, or a pattern: *")
    parser.add_argument("--peers", action="store_true", help="only other schedulers, no dynsched")
    parser.add_argument("--processes", type=int, help="by default one per core")
    parser.add_argument(
        "--trace", type=Path, metavar="FOLDER", help="play the series in it (docs/effect.md)"
    )
    parser.add_argument("--list", action="store_true", help="print the scenarios and ways")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write pictures there")
    options = parser.parse_args()
    scenarios = ALL
    if options.trace:
        scenarios = of_trace(options.trace)
        try:
            read(options.trace)  # before the processes start, so that each has it
        except ValueError as error:
            parser.error(f"--trace: {error}")
    if options.list:
        sys.exit("\n".join(["scenarios:", *scenarios, "", "ways:", *ways()]))
    try:
        chosen = matching(options.scenario, scenarios)
        names = matching(options.way, ways())
    except ValueError as error:
        parser.error(str(error))
    if options.peers and options.way is None:
        names = list(peers.ways())
    console = Console(width=220)
    found: dict[tuple[str, str, int], Outcome] = {}
    for scenario in chosen:
        found |= measure([scenarios[scenario]], names, options.seeds, options.processes)
        console.print(table(found, scenario, names, options.seeds))
    console.print(summary(found, names, options.seeds))
    if any(outcome.empty >= 1 for outcome in found.values()):
        console.print(fewer_nodes(found, names, options.seeds))
    if options.plots is not None:
        plot(found, names, options.seeds, options.plots)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, seeds {options.seeds}")


if __name__ == "__main__":
    main()
