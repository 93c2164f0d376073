"""How much fuller a cluster can be at the same overload, for each way to place pods.

    python benchmarks/how_full.py [--seeds 3 | 41-48] [--way NAME]... [--peers] [--scenario NAME]
                                  [--at 60] [--processes N] [--plots FOLDER]

The simulated loop (simulated_loop.py) runs at 50 to 85 % used. The reference is the default
scheduler's node-time over 80 % at ``--at`` percent used. For each way, the table shows the use at
which it reaches the same overload, interpolated linearly between two runs. *Used* is the CPU that
pods got, as a share of all CPU, averaged over the seeds. It is below the planned use if pods wait,
or want more than their node has.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from closedloop import peers
from closedloop.plots import plot_how_full
from closedloop.scenarios import ALL
from closedloop.world import Outcome, simulate
from rich import box
from rich.console import Console
from rich.table import Table
from simulated_loop import DEFAULT, ORACLE, seeds_of, ways

USED = tuple(range(50, 86, 5))
"""Planned mean use by pods, in percent of all CPU."""
Curve = Sequence[tuple[float, float]]
"""(share used, share of node-time over 80 %) for each planned use, ascending."""


def use_at(curve: Curve, overload: float) -> float | None:
    """The lowest use at which the overload is reached; None if it is outside the curve."""
    for (use, hot), (next_use, next_hot) in itertools.pairwise(curve):
        if hot <= overload < next_hot:
            return use + (next_use - use) * (overload - hot) / (next_hot - hot)
    return None


def curves(
    scenario: str, names: Sequence[str], used: Sequence[int], seeds: range, processes: int | None
) -> dict[str, Curve]:
    """The curve of each way, averaged over the seeds at each planned use."""
    jobs = [(scenario, name, share, seed) for name in names for share in used for seed in seeds]
    with multiprocessing.Pool(processes) as pool:
        found = dict(zip(jobs, pool.imap(_one, jobs), strict=True))

    def point(name: str, share: int) -> tuple[float, float]:
        runs = [found[scenario, name, share, seed] for seed in seeds]
        return mean(run.used for run in runs), mean(run.hot for run in runs)

    return {name: [point(name, share) for share in used] for name in names}


def _one(job: tuple[str, str, int, int]) -> Outcome:
    logging.disable(logging.CRITICAL)
    scenario, name, share, seed = job
    return simulate(replace(ALL[scenario], used=share / 100), seed, ways()[name])


def table(found: dict[str, Curve], at: int, used: Sequence[int]) -> Table:
    """A table with one row per way."""
    start, overload = found[DEFAULT][list(used).index(at)]
    shown = Table(
        *("way", f"used at {overload:.1%} overload", "more than by default"),
        *(f"over 80 % at {share} %" for share in used),
        box=box.MARKDOWN,
    )
    for name, curve in found.items():
        use = start if name == DEFAULT else use_at(curve, overload)
        below = all(hot <= overload for _, hot in curve)
        none = f"> {curve[-1][0]:.1%}" if below else f"< {curve[0][0]:.1%}"
        shown.add_row(
            name,
            none if use is None else f"{use:.1%}",
            "" if use is None else f"{100 * (use - start):+.1f} points, {use / start - 1:+.0%}",
            *(f"{hot:.1%}" for _, hot in curve),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=seeds_of, default=range(1, 4), help="a number, or 41-48")
    parser.add_argument("--scenario", choices=sorted(ALL), default="60 % used")
    parser.add_argument("--way", action="append", choices=sorted(ways()), default=None)
    parser.add_argument("--peers", action="store_true", help="only other schedulers, no dynsched")
    parser.add_argument("--at", type=int, choices=USED, default=60, help="percent, by default 60")
    parser.add_argument("--processes", type=int, help="by default one per core")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write a picture there")
    options = parser.parse_args()
    names = options.way or list(peers.ways() if options.peers else ways())
    names = list(dict.fromkeys((DEFAULT, ORACLE, *names)))
    found = curves(options.scenario, names, USED, options.seeds, options.processes)
    Console(width=220).print(table(found, options.at, USED))
    if options.plots is not None:
        options.plots.mkdir(parents=True, exist_ok=True)
        _, overload = found[DEFAULT][USED.index(options.at)]
        plot_how_full(found, overload, options.plots / "how-full.svg")


if __name__ == "__main__":
    main()
