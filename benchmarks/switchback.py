"""Whether an experiment (docs/experiment.md) tells the truth, in a simulated closed loop.

    python benchmarks/switchback.py [--seeds 100 | 41-48] [--days 3] [--lives 5m] [--long 20]
                                    [--processes N]

Each seed is one experiment of so many days with the order on and off, and one in which nothing is
ever on. The true effect is the difference between ``--long`` runs in which the order is always on
and as many in which it is always off. Printed is how often the 95 % interval holds it, and how
often nothing is called an effect.

Eight nodes at 60 % of their capacity, ten times faster than life: pods that live for 5 minutes live
for 30 s, a block of 30 minutes takes three, a day 8,640 s. What a pod uses does not depend on
its owner: else each seed would be another cluster, with an effect of its own.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import numpy as np
from closedloop import operator
from closedloop.modes import SHIPPED, Doc, ordered, read_rules, without_early
from closedloop.players import Default, Dynsched
from closedloop.workload import Kind, Scenario
from closedloop.world import Player, World, simulate
from simulated_loop import seeds_of

from dynsched.controller import loop
from dynsched.engine.experiment import is_on
from dynsched.rules.file import parse_rules
from dynsched.tools.experiment.analysis import Effect, effect_of
from dynsched.util.durations import parse_duration

FASTER = 10.0
BLOCK = 1800 / FASTER
WINDOW = 120 / FASTER
SCRAPE = 30 / FASTER
DAY = 86_400 / FASTER
TICK = 4.0
"""And from one decision to the next: 40 s of life, so that a day takes some five seconds."""
UNTIL = "1999-01-01T00:00:00Z"
"""Long after all runs, which begin in 1970."""
NULL, ORDER = "nothing", "order"
EVERY = 10
"""Experiments after which a line is printed."""


@dataclass(frozen=True)
class Job:
    """One run: ``way`` is on in the blocks of ``seed``'s sequence, or (``always``) in all."""

    way: str
    seed: int
    days: float
    lives: float
    always: bool = False

    @property
    def scenario(self) -> Scenario:
        """Its times, in seconds of the simulation. The time to warm up is a pair of blocks."""
        return Scenario(
            "switchback",
            nodes=8,
            kinds=(Kind(lives=self.lives / FASTER),),
            scrape=SCRAPE,
            window=WINDOW,
            tick=TICK,
            warm=2 * BLOCK,
            hours=self.days * DAY / 3600,
        )

    @property
    def rules(self) -> Doc:
        """Those with the order alone; the experiment switches it."""
        found = read_rules(SHIPPED)
        found = ordered({**found, "rules": without_early(found)})
        if self.always:
            return found
        experiment = {"until": UNTIL, "block": f"{BLOCK:g}s", "seed": self.seed}
        return {**found, "experiment": experiment}

    @property
    def wash_out(self) -> float:
        """The default one: the lag (a range of 2m, scraped every 30 s) and the median life."""
        return WINDOW - SCRAPE / 2 + self.lives / FASTER * float(np.log(2))

    @property
    def player(self) -> Callable[[World], Player]:
        """Who places the pods."""
        if self.way == NULL:
            return Default
        return functools.partial(Dynsched, content=self.rules, marks=False, order=True)


def hot_by_block(job: Job) -> np.ndarray:
    """The share of node-time over 80 % in each block that was judged, without its wash-out."""
    logging.disable(logging.CRITICAL)  # thousands of ticks: what dynsched logs is not the point
    by_second = simulate(job.scenario, job.seed, job.player).by_second
    count = int(len(by_second) // BLOCK)
    blocks = np.array(by_second[: int(count * BLOCK)]).reshape(count, int(BLOCK))
    return blocks[:, int(np.ceil(job.wash_out)) :].mean(axis=1)


def effect(job: Job) -> Effect:
    """As `dynsched experiment` has it, by the true load."""
    experiment = parse_rules({**job.rules, "order": None}).experiment
    assert experiment is not None
    values = hot_by_block(job)
    first = round(job.scenario.warm / BLOCK)
    on = np.array([is_on(experiment, first + at) for at in range(len(values))])
    found = effect_of(values[on], values[~on])
    assert found is not None
    return found


def mean_hot(job: Job) -> float:
    """Of a run without blocks, in the same seconds."""
    return float(hot_by_block(job).mean())


def operator_faster() -> None:
    """Pods are remembered by times that are not of the scenario."""
    os.nice(10)
    operator.WINDOW /= FASTER
    operator.SPARE /= FASTER
    loop.RESPONSE = TICK  # type: ignore[misc]


def main() -> None:
    """Print the figures of docs/experiment.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=seeds_of, default=range(1, 101), help="a number, or 41-48")
    parser.add_argument("--days", type=float, default=3.0, help="of one experiment")
    parser.add_argument("--lives", type=parse_duration, default=300.0, help="a pod's mean life")
    parser.add_argument("--long", type=int, default=20, help="runs of so many days for the truth")
    parser.add_argument("--processes", type=int, help="so many; by default one a core")
    options = parser.parse_args()
    began = time.monotonic()

    def jobs(way: str, seeds: range, *, always: bool = False) -> list[Job]:
        return [Job(way, seed, options.days, options.lives, always) for seed in seeds]

    others = range(10_001, 10_001 + options.long)
    with multiprocessing.Pool(options.processes, operator_faster) as pool:
        off = np.array(pool.map(mean_hot, jobs(NULL, others, always=True), 1))
        on = np.array(pool.map(mean_hot, jobs(ORDER, others, always=True), 1))
        truth, error = (on - off).mean(), (on - off).std(ddof=1) / len(on) ** 0.5
        print(f"of node-time over 80 %: always on {on.mean():.2%}, always off {off.mean():.2%}")
        print(
            f"true effect {100 * truth:.2f} points (standard error {100 * error:.2f})", flush=True
        )
        for way, true in ((ORDER, float(truth)), (NULL, 0.0)):
            effects: list[Effect] = []
            for found in pool.imap_unordered(effect, jobs(way, options.seeds), 1):
                effects.append(found)
                if len(effects) % EVERY == 0 or len(effects) == len(options.seeds):
                    print(told(way, effects, true), flush=True)
    print(f"{time.monotonic() - began:.0f} s, {os.cpu_count()} cores")


def told(way: str, effects: list[Effect], true: float) -> str:
    """One line."""
    holds = sum(each.low <= true <= each.high for each in effects)
    called = sum(each.low > 0 or each.high < 0 for each in effects)
    found = mean(each.effect for each in effects)
    half = mean((each.high - each.low) / 2 for each in effects)
    return (
        f"{way}: {holds} of {len(effects)} intervals hold the true effect, {called} are beside 0; "
        f"difference {100 * found:.2f} points, to each side {100 * half:.2f} (means)"
    )


if __name__ == "__main__":
    main()
