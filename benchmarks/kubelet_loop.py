"""The closed loop on real kubelets: small, slow, and nothing of it is simulated.

    export KUBEBUILDER_ASSETS=/path/to/bin   # kubelet and all servers, as for `make e2e`; as root
    python benchmarks/kubelet_loop.py --file runs.jsonl [--at-most 2] [--modes default,order]
                                      [--seeds 2] [--seconds 300] [--warm 60] [--used 0.6]

Four nodes, each with 0.3 cores by its cgroup's quota; each pod is a container of a program that
uses CPU (closedloop/burn.c, compiled by `cc`). Prometheus scrapes cAdvisor's and the resource
endpoint's series of each kubelet every 10 s. Everything goes at the speed of life, but pods live 3
minutes on average. What is hot and throttled is read from the nodes' cgroups once a second.

Each run takes --warm and --seconds, and half a minute more; it is added to --file, and those that
are there already are not played again. When all are there the table of the file comes, with the
simulator's figures for the same pods (the mean of eight runs).
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
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from closedloop import on_kubelets
from closedloop.comparison import removed_of, spread
from closedloop.modes import DEFAULT, ORACLE, SHIPPED, Doc, modes, read_rules
from closedloop.on_kubelets import CPU, EXPR, NAMES, Cluster
from closedloop.servers import Page, Servers
from closedloop.workload import Scenario
from closedloop.world import simulate
from envtest import assets
from kubelets import Kubelets, missing

ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
USUAL = (DEFAULT, "taint", "order", "extender", ORACLE)
CHANCES = 8
COLUMNS = (
    *("over 80 %", "removed", "periods throttled", "stopped", "beyond capacity"),
    *("pods on hot nodes", "writes an hour and node", "CPU used", "load average"),
    "simulated: over 80 %, removed",
)
Run = dict[str, Any]


def rules(content: Doc) -> Doc:
    """The rules with the node's value by the kubelets' own series."""
    (rule,) = content["rules"]
    return {**content, "rules": [{**rule, "expr": EXPR}]}


async def measure(
    kubelets: Kubelets, scenario: Scenario, jobs: list[tuple[str, int]], file: Path
) -> None:
    """Play them, each with a Prometheus of its own, so that no pod of another run is known."""
    known = modes(rules(read_rules(SHIPPED)))
    async with Cluster(kubelets, kubelets.folder) as cluster:
        kubelets.stop_scheduler()  # each run has its own, or none
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
    """What is kept of a run."""
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


def table(runs: list[Run], scenario: Scenario) -> str:
    """A row for each way: means of its runs, with the least and the most."""
    lines = [
        f"| | {' | '.join(COLUMNS)} |",
        "|" + " --- |" * (len(COLUMNS) + 1),
    ]
    known = modes(rules(read_rules(SHIPPED)))
    simulated = {
        (run["mode"], run["seed"]): mean(
            simulate(scenario, run["seed"], mode.player(mode.content), chance).hot
            for chance in range(CHANCES)
        )
        for run in runs
        for mode in (known[run["mode"]],)
    }
    real = {(run["mode"], run["seed"]): run["hot"] for run in runs}
    for name in dict.fromkeys(run["mode"] for run in runs):
        mine = [run for run in runs if run["mode"] == name]

        def of(key: str, shown: str, mine: list[Run] = mine) -> str:
            return spread((run[key] for run in mine), shown.format)

        cells = (
            *(name, of("hot", "{:.1%}"), removed(real, name), of("throttled", "{:.1%}")),
            *(of("stopped", "{:.0f} s"), of("beyond", "{:.2%}")),
            f"{sum(run['on_hot'] for run in mine)} of {sum(run['placed'] for run in mine)}",
            *(of("writes", "{:.0f}"), of("used", "{:.0%}"), of("load", "{:.1f}")),
            spread((hot for (each, _), hot in simulated.items() if each == name), "{:.1%}".format)
            + f", {removed(simulated, name)}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def removed(hot: Mapping[tuple[str, int], float], name: str) -> str:
    """Of all seeds together."""
    found = removed_of(hot, name)
    return "-" if found is None else f"{found[0]:.0%}"


def lags(runs: list[Run]) -> str:
    """What takes how long on kubelets: the means of all runs' quantiles, and the most."""
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
    parser.add_argument("--file", type=Path, required=True, help="of the runs, one a line")
    parser.add_argument("--modes", default=",".join(USUAL), help="names, with commas between them")
    parser.add_argument("--seeds", type=int, default=2, help="how many sequences of pods")
    parser.add_argument("--at-most", type=int, default=100, help="runs; 0: the table alone")
    parser.add_argument("--seconds", type=float, default=300, help="that are judged")
    parser.add_argument("--warm", type=float, default=60, help="seconds before those")
    parser.add_argument("--used", type=float, default=0.6, help="share of all CPU")
    return parser


def main() -> None:
    options = arguments().parse_args()
    if os.getpid() != 1 and options.at_most:
        os.execvp(ALONE[0], [*ALONE, sys.executable, *sys.argv])
    logging.disable(logging.CRITICAL)
    scenario = on_kubelets.scenario(options.used, options.warm, options.seconds)
    jobs = [(n, seed) for seed in range(1, options.seeds + 1) for n in options.modes.split(",")]
    done = read(options.file)
    jobs = [job for job in jobs if job not in {(run["mode"], run["seed"]) for run in done}]
    if jobs and options.at_most:
        play(scenario, jobs[: options.at_most], options.file)
        if jobs[options.at_most :]:
            return
    runs = read(options.file)
    print(table(runs, scenario), lags(runs), sep="\n\n")
    points = mean(run["error"] for run in runs)
    print(
        f"\nThe rule's value is {points:.0f} points from what a node used in the last 10 s.\n"
        f"{len(NAMES)} nodes of {CPU} cores on {os.cpu_count()} cores, {options.seconds:g} s "
        f"judged after {options.warm:g} s"
    )


def play(scenario: Scenario, jobs: list[tuple[str, int]], file: Path) -> None:
    """On a cluster that is started for it."""
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
    """The runs in the file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    main()
