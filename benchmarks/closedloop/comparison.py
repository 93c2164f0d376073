"""Compares runs on real servers with the simulator's: a table, and whether both agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

import numpy as np
from rich import box
from rich.table import Table

from closedloop.modes import DEFAULT, ORACLE
from closedloop.real import Result
from closedloop.workload import Scenario
from closedloop.world import Outcome


@dataclass(frozen=True)
class Run:
    """One mode with one seed: one run on real servers, and several in the simulator."""

    real: Result
    simulated: Sequence[Outcome]

    def outcomes(self, which: int) -> Sequence[Outcome]:
        """The outcomes on real servers, or in the simulator."""
        return self.simulated if which == _SIMULATED else [self.real.outcome]


Runs = Mapping[tuple[str, int], Run]
"""By mode and seed."""
_REAL, _SIMULATED = 0, 1
_RESAMPLES = 10_000


def removed(runs: Runs, mode: str, which: int) -> tuple[float, list[float]] | None:
    return removed_of({key: mean(_over(run, which)) for key, run in runs.items()}, mode)


def removed_of(
    over: Mapping[tuple[str, int], float], mode: str
) -> tuple[float, list[float]] | None:
    """The share of the avoidable overload that the mode removes: of all seeds, and of each seed.

    ``over``: by mode and seed. None if the default scheduler or the oracle was not played with the
    same seeds, or if nothing was avoidable. The first value is that of the sums, because in a seed
    with little avoidable overload the share is mostly chance.
    """
    found = []
    for (name, seed), hot in over.items():
        before, best = (over.get((end, seed)) for end in (DEFAULT, ORACLE))
        if name == mode and before is not None and best is not None:
            found.append((before - hot, before - best))
    better, avoidable = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
    if avoidable <= 0:
        return None
    return better / avoidable, [one / of for one, of in found if of > 0]


def against_default(
    values: Mapping[tuple[str, int], float], mode: str
) -> tuple[float, float, float] | None:
    """How far the mode's value is above the default scheduler's with the same seed.

    Returns the mean and its 95 % interval, from a bootstrap over the seeds; None with fewer than
    two common seeds. ``values``: by mode and seed.
    """
    found = [
        value - values[DEFAULT, seed]
        for (name, seed), value in values.items()
        if name == mode and (DEFAULT, seed) in values
    ]
    if mode == DEFAULT or len(found) < 2:
        return None
    drawn = np.random.default_rng(1).choice(found, (_RESAMPLES, len(found)))
    low, high = np.quantile(drawn.mean(axis=1), (0.025, 0.975)).tolist()
    return mean(found), low, high


def difference(found: tuple[float, float, float] | None, shown: Callable[[float], str]) -> str:
    """Format a result of `against_default`; a dash if there is none."""
    if found is None:
        return "-"
    middle, low, high = map(shown, found)
    return f"{middle} ({low} to {high})"


def table(runs: Runs, scenario: Scenario) -> Table:
    """Two rows per mode: real servers and simulator. Each cell is the mean of all runs, with
    minimum and maximum; for what is removed see `removed_of`.
    """
    seconds = scenario.seconds - scenario.warm
    total = scenario.nodes * seconds
    capacity = total * scenario.cores
    shown = Table(
        *("mode", "", f"node-seconds over 80 %, of {total:,.0f}", "against default, 95 %"),
        "removed",
        *("core-seconds beyond capacity", "pods on hot nodes", "writes an hour and node"),
        *(
            "evicted",
            "used",
            "nodes without a pod",
            "bound in, p99",
            f"CPU in {seconds:g} s, peak memory",
        ),
        box=box.MARKDOWN,
    )
    for mode in modes_of(runs):
        of_mode = [run for (name, _), run in runs.items() if name == mode]
        waited = max(run.real.waited(0.99) for run in of_mode)
        for which, what in ((_REAL, "real"), (_SIMULATED, "simulated")):
            outcomes = [each for run in of_mode for each in run.outcomes(which)]
            placed = mean(each.placed for each in outcomes)
            unplaced = sum(each.unplaced for each in outcomes)
            shown.add_row(
                mode if which == _REAL else "",
                what,
                spread((hot * total for hot in _hot(outcomes)), "{:.0f}".format),
                difference(
                    against_default(_node_seconds(runs, which, total), mode), "{:+.0f}".format
                ),
                _shown(removed(runs, mode, which)),
                spread((each.beyond * capacity for each in outcomes), "{:.0f}".format),
                spread((each.on_hot for each in outcomes), "{:.0f}".format)
                + f" of {placed:.0f}"
                + (f", {unplaced} never bound" if unplaced else ""),
                spread((each.writes for each in outcomes), "{:.0f}".format),
                spread((each.evicted for each in outcomes), "{:.0f}".format),
                f"{mean(each.used for each in outcomes):.0%}",
                f"{mean(each.empty for each in outcomes):.1f}",
                *((f"{waited:.2f} s", _costs(of_mode)) if which == _REAL else ("", "")),
            )
    return shown


def _node_seconds(runs: Runs, which: int, total: float) -> dict[tuple[str, int], float]:
    return {key: total * mean(_over(run, which)) for key, run in runs.items()}


def modes_of(runs: Runs) -> list[str]:
    """The names of the modes, without duplicates."""
    return list(dict.fromkeys(name for name, _ in runs))


def spread(values: Iterable[float], shown: Callable[[float], str]) -> str:
    """The mean, with minimum and maximum if they differ; a dash without values."""
    found = list(values)
    if not found:
        return "-"
    low, high = shown(min(found)), shown(max(found))
    return shown(mean(found)) + (f" ({low} to {high})" if low != high else "")


def _costs(runs: Sequence[Run]) -> str:
    """Mean CPU seconds and maximum peak memory of each program, over all runs."""
    costs = {name: [run.real.costs[name] for run in runs] for name in runs[0].real.costs}
    return "; ".join(
        f"{name} {mean(cpu for cpu, _ in found):.1f} s, {max(peak for _, peak in found):.0f} MB"
        for name, found in costs.items()
    )


def _shown(share: tuple[float, list[float]] | None) -> str:
    if share is None:
        return "-"
    total, seeds = share
    low, high = (f"{end:.0%}" for end in (min(seeds), max(seeds)))
    return f"{total:.0%}" + (f" ({low} to {high})" if low != high else "")


def agreement(runs: Runs) -> str:
    """Whether the simulator is right about the time above the hot line: are the modes in the same
    order, and are the real runs within the range of the simulator's runs with the same pods?
    """
    pairs = list(combinations(modes_of(runs), 2))
    other = [
        f"{one} and {two}"
        for one, two in pairs
        if _difference(runs, one, two, _REAL) * _difference(runs, one, two, _SIMULATED) < 0
    ]
    outside = [
        f"{mode} {seed} ({'above' if real > max(simulated) else 'below'})"
        for (mode, seed), run in runs.items()
        for (real,), simulated in [(_over(run, _REAL), _over(run, _SIMULATED))]
        if not min(simulated) <= real <= max(simulated)
    ]
    times = min(len(run.simulated) for run in runs.values())
    # Each of n + 1 equivalent values is equally likely to be the minimum or the maximum.
    expected = (times - 1) / (times + 1)
    return (
        f"{len(pairs) - len(other)} of {len(pairs)} pairs of modes are in the same order in the "
        f"simulator; in another: {', '.join(other) or 'none'}.\n"
        f"{len(runs) - len(outside)} of {len(runs)} runs lie within what {times} runs of the "
        f"simulator span (if both were the same, {expected:.0%} would); outside, by mode and seed: "
        f"{', '.join(outside) or 'none'}."
    )


def _difference(runs: Runs, one: str, two: str, which: int) -> float:
    """How much more time above the hot line the first mode has, on average over all runs."""
    means = [
        mean(hot for (name, _), run in runs.items() if name == mode for hot in _over(run, which))
        for mode in (one, two)
    ]
    return means[0] - means[1]


def _over(run: Run, which: int) -> list[float]:
    return _hot(run.outcomes(which))


def _hot(outcomes: Iterable[Outcome]) -> list[float]:
    return [each.hot for each in outcomes]
