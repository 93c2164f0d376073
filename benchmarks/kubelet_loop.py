"""The closed loop on real kubelets: small and slow, with nothing simulated.

    export KUBEBUILDER_ASSETS=/path/to/bin   # kubelet and all servers, as for `make e2e`; as root
    python benchmarks/kubelet_loop.py --file runs.jsonl [--at-most 2] [--modes default,order]
                                      [--first-seed 1] [--seeds 12] [--seconds 120] [--warm 60]

There are six nodes, each limited to 0.2 cores by its cgroup's quota. Each pod is a container that
serves requests (closedloop/serve.c, compiled with `cc`): they arrive at random, each takes 1 ms of
CPU, and their latencies are recorded. Prometheus scrapes each kubelet's cAdvisor and resource
endpoints every 10 s. Everything runs in real time, but pods live only 2 minutes on average. Hot and
throttled time is read from the nodes' cgroups once a second.

A run takes --warm, --seconds and another half a minute. Its result is appended to --file; runs that
are already in the file are not repeated. Once all are there, the table is printed, with the
simulator's figures for the same pods (the mean of eight simulator runs for each).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from closedloop import on_kubelets
from closedloop.comparison import against_default, difference, spread
from closedloop.modes import DEFAULT, SHIPPED, Doc, modes, read_rules
from closedloop.on_kubelets import CPU, EXPR, NAMES, QUANTILES, Cluster
from closedloop.servers import Page, Servers
from closedloop.workload import Scenario
from closedloop.world import simulate
from envtest import assets
from kubelets import Kubelets, missing

ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
USUAL = (DEFAULT, "order")
CHANCES = 8
Run = dict[str, Any]
Value = Callable[[Run], float]


def _latency(quantile: str) -> Value:
    return lambda run: float(1000 * run["latency"][quantile])


COMPARED: Mapping[str, tuple[Value, str]] = {
    "over 80 %": (itemgetter("hot"), "{:.1%}"),
    "periods throttled": (itemgetter("throttled"), "{:.1%}"),
    **{f"{name} of the requests, ms": (_latency(name), "{:.0f}") for name in QUANTILES},
}
"""Columns that are shown with their difference from the default scheduler."""
SHOWN: Mapping[str, tuple[Value, str]] = {
    "writes an hour and node": (itemgetter("writes"), "{:.0f}"),
    "CPU used": (itemgetter("used"), "{:.0%}"),
    "load average": (itemgetter("load"), "{:.1f}"),
}


def rules(content: Doc) -> Doc:
    """The rules with the node's value computed from the kubelets' series."""
    (rule,) = content["rules"]
    return {**content, "rules": [{**rule, "expr": EXPR}]}


async def measure(
    kubelets: Kubelets, scenario: Scenario, jobs: list[tuple[str, int]], file: Path
) -> None:
    """Play the runs, each with a new Prometheus, so that it knows no pod of an earlier run."""
    known = modes(rules(read_rules(SHIPPED)))
    async with Cluster(kubelets, kubelets.folder) as cluster:
        kubelets.stop_scheduler()  # each run starts its own scheduler, or none
        for name, seed in jobs:
            folder = kubelets.folder / f"{name}-{seed}"
            with on_kubelets.prometheus(kubelets, folder) as prometheus:
                servers = Servers(
                    *(kubelets, cluster, prometheus, Page(), kubelets.folder),
                    program=("-m", "dynsched"),
                    tick=scenario.tick,
                )
                mode = known[name]
                loop, judged = await on_kubelets.play(servers, scenario, seed, mode, mode.content)
                run = describe(loop, judged) | {"mode": name, "seed": seed}
            with file.open("a") as out:
                out.write(json.dumps(run) + "\n")
            print(f"{name}, seed {seed}: {judged}", file=sys.stderr, flush=True)


def describe(loop: on_kubelets.OnKubelets, judged: on_kubelets.Judged) -> Run:
    """The figures of a run that are stored."""
    outcome = loop.result.outcome
    return asdict(judged) | {
        "beyond": outcome.beyond,
        "wanted_hot": outcome.hot,
        "unplaced": outcome.unplaced,
        "writes": outcome.writes,
        "costs": loop.result.costs,
        "load": mean(loop.loads),
        "error": mean(loop.errors),
        "told": loop.told_after_their_end(),
        "lags": {
            what: [
                len(each),
                round(mean(each), 2),
                *np.quantile(each, (0.1, 0.5, 0.9, 1)).round(2).tolist(),
            ]
            for what, each in loop.lags().items()
            if each
        },
    }


def table(runs: list[Run]) -> str:
    """A row per way: the mean of its runs, with minimum and maximum."""
    compared = [f"{name} | against default, 95 %" for name in COMPARED]
    columns = ("", *compared, "pods on hot nodes", "requests", *SHOWN)
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * (len(columns) + len(compared))]
    for name in dict.fromkeys(run["mode"] for run in runs):
        mine = [run for run in runs if run["mode"] == name]
        cells = [name]
        for value, shown in COMPARED.values():
            apart = against_default({(run["mode"], run["seed"]): value(run) for run in runs}, name)
            cells += [
                spread(map(value, mine), shown.format),
                difference(apart, shown.replace(":", ":+").format),
            ]
        cells.append(
            f"{sum(run['on_hot'] for run in mine)} of {sum(run['placed'] for run in mine)}"
        )
        cells.append(f"{sum(run['requests'] for run in mine)}")
        cells += [spread(map(value, mine), shown.format) for value, shown in SHOWN.values()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def simulated(runs: list[Run], scenario: Scenario) -> str:
    """The simulator's results for the same pods, one line per way."""
    known = modes(rules(read_rules(SHIPPED)))
    hot = {
        (run["mode"], run["seed"]): mean(
            simulate(scenario, run["seed"], mode.player(mode.content), chance).hot
            for chance in range(CHANCES)
        )
        for run in runs
        for mode in (known[run["mode"]],)
    }
    return "\n".join(
        f"{name}: over 80 % {spread(mine, '{:.1%}'.format)}, against default "
        + difference(against_default(hot, name), "{:+.1%}".format)
        for name in dict.fromkeys(name for name, _ in hot)
        for mine in ([each for (mode, _), each in hot.items() if mode == name],)
    )


def lags(runs: list[Run]) -> str:
    """Delays on kubelets: the means of the runs' quantiles, and the maximum."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for run in runs:
        for what, each in run["lags"].items():
            found[what].append(each)
    lines = []
    for what, each in sorted(found.items()):
        count, average, low, median, high, _ = np.mean(each, axis=0)
        most = max(row[-1] for row in each)
        lines.append(
            f"{what}: mean {average:.1f} s, median {median:.1f}, a tenth each below {low:.1f} and "
            f"above {high:.1f}, at most {most:.1f} ({count * len(each):.0f})"
        )
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, required=True, help="results, one run per line")
    parser.add_argument("--modes", default=",".join(USUAL), help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=12, help="number of pod sequences")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--at-most", type=int, default=100, help="runs; 0: print the table only")
    parser.add_argument("--seconds", type=float, default=120, help="judged time of a run")
    parser.add_argument("--warm", type=float, default=60, help="seconds before the judged time")
    parser.add_argument("--used", type=float, default=0.5, help="share of all CPU")
    return parser


def main() -> None:
    options = arguments().parse_args()
    if os.getpid() != 1 and options.at_most:
        os.execvp(ALONE[0], [*ALONE, sys.executable, *sys.argv])
    logging.disable(logging.CRITICAL)
    scenario = on_kubelets.scenario(options.used, options.warm, options.seconds)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [(name, seed) for seed in seeds for name in options.modes.split(",")]
    done = read(options.file)
    jobs = [job for job in jobs if job not in {(run["mode"], run["seed"]) for run in done}]
    if jobs and options.at_most:
        play(scenario, jobs[: options.at_most], options.file)
        if jobs[options.at_most :]:
            return
    runs = read(options.file)
    print(table(runs), "simulated:", simulated(runs, scenario), lags(runs), sep="\n\n")
    points = mean(run["error"] for run in runs)
    print(
        f"\nThe rule's value differs by {points:.0f} points from a node's use in the last 10 s.\n"
        f"{len(NAMES)} nodes of {CPU} cores on {os.cpu_count()} cores, {options.seconds:g} s "
        f"judged after {options.warm:g} s"
    )


def play(scenario: Scenario, jobs: list[tuple[str, int]], file: Path) -> None:
    """Start a cluster, play the runs on it, and stop it."""
    programs = assets()
    if lacking := missing(programs) or ("" if shutil.which("cc") else "cc is not on PATH"):
        sys.exit(lacking)
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="kubelet-loop-") as folder:
        kubelets = on_kubelets.cluster(programs, Path(folder))
        try:
            kubelets.start()
            asyncio.run(measure(kubelets, scenario, jobs, file))
        finally:
            kubelets.stop()


def read(file: Path) -> list[Run]:
    """The runs in the file; none if it does not exist."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    main()
