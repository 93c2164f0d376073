"""How much overload each way to use dynsched removes, in a closed loop on real servers.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/closed_loop.py [--modes default,oracle,taint] [--seeds 2] [--rules FILE]
                                     [--seconds 150] [--warm 60] [--jobs] [--packs] [--follow]
                                     [--at-once 1] [--list]

etcd, kube-apiserver, kube-scheduler, Prometheus and `dynsched run` are real; everything runs ten
times faster than in a real cluster. Pods come and go, their true use makes the nodes' load, and
Prometheus scrapes it. No kubelet runs: this process knows what each pod uses. Below each row is
the result of the simulator (closedloop/world.py) for the same pods. A run takes --warm and then
--seconds.

dynsched's own intervals are divided by ten as well (closedloop/faster.py). The simulator advances
in whole seconds, so that there marks and the order follow pods ten times too late. soft-tainter and
the descheduler (closedloop/soft_tainter.py) are programs that you provide; their intervals are
divided too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from closedloop.comparison import Run, Runs, agreement, table
from closedloop.faster import faster, hasten, scenario
from closedloop.modes import DEFAULT, ORACLE, SHIPPED, Doc, Mode, modes, read_rules
from closedloop.real import Result, play
from closedloop.servers import Servers, control_plane, servers
from closedloop.soft_tainter import missing, recorded
from closedloop.workload import Scenario
from closedloop.world import Outcome, simulate
from envtest import Envtest, assets
from rich.console import Console

USUAL = (
    DEFAULT,
    ORACLE,
    "label",
    "taint",
    "order",
    "extender",
    "extender+taint",
    "second",
)
CHANCES = 8
"""Number of simulator runs for each real one."""


class Comparison:
    """The runs to measure, and their results."""

    def __init__(self, options: argparse.Namespace, chosen: Mapping[str, Mode]) -> None:
        self._chosen = chosen
        self._window = options.range
        self.scenario: Scenario = scenario(
            nodes=options.nodes,
            used=options.used,
            seconds=options.seconds,
            warm=options.warm,
            window=options.range,
            jobs=options.jobs,
            packs=options.packs,
            requests=(1.0, 0.5) if options.follow else None,
        )
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        self.jobs = deque((name, seed) for seed in seeds for name in chosen)
        self.found: dict[tuple[str, int], Result] = {}

    async def measure(self, planes: Sequence[Envtest]) -> None:
        """Play every job. On SIGTERM, end the current runs and keep the results so far."""
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            async with contextlib.AsyncExitStack() as stack:
                sets = [
                    await stack.enter_async_context(servers(plane, plane.folder, rules))
                    for plane in planes
                    for rules in [recorded(self._chosen.values(), plane.folder)]
                ]
                async with asyncio.TaskGroup() as group:
                    for each in sets:
                        group.create_task(self._work(each))

    async def _work(self, each: Servers) -> None:
        while self.jobs:
            name, seed = self.jobs.popleft()
            content = self._rules(name)
            result = await play(each, self.scenario, seed, self._chosen[name], content)
            self.found[name, seed] = result
            over = result.outcome.hot * self.scenario.nodes
            over *= self.scenario.seconds - self.scenario.warm
            print(
                f"{name}, seed {seed}: {over:.0f} node-seconds over 80 %; "
                f"p99 of pods bound in {result.waited(0.99):.2f} s",
                file=sys.stderr,
                flush=True,
            )

    def beside_the_simulator(self) -> Runs:
        """The results, with CHANCES simulator runs of each that differ by chance."""
        with multiprocessing.Pool() as pool:
            outcomes = pool.map(self._simulated, self.found)
        pairs = zip(self.found.items(), outcomes, strict=True)
        return {job: Run(result, simulated) for (job, result), simulated in pairs}

    def _simulated(self, job: tuple[str, int]) -> list[Outcome]:
        name, seed = job
        player = self._chosen[name].player(self._rules(name))
        return [simulate(self.scenario, seed, player, chance) for chance in range(CHANCES)]

    def _rules(self, name: str) -> Doc | None:
        content = self._chosen[name].content
        return None if content is None else faster(content, self._window)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default=",".join(USUAL), help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=2, help="number of pod sequences")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150, help="judged time of a run")
    parser.add_argument("--warm", type=float, default=60, help="seconds before the judged time")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--used", type=float, default=0.58, help="share of all CPU")
    parser.add_argument("--jobs", action="store_true", help="two fifths are Jobs, in bursts of 30")
    parser.add_argument("--packs", action="store_true", help="kube-scheduler uses MostAllocated")
    parser.add_argument("--follow", action="store_true", help="requests follow use, spread by 0.5")
    parser.add_argument("--range", type=float, default=5, help="seconds of each rule's rate(...)")
    parser.add_argument(
        "--rules",
        type=Path,
        default=SHIPPED,
        metavar="FILE",
        help="with real-time durations, like rules.yaml; they are divided by ten here",
    )
    parser.add_argument("--at-once", type=int, default=1, help="number of sets of servers")
    parser.add_argument("--list", action="store_true", help="print the names of the modes")
    return parser


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    known = modes(read_rules(options.rules))
    if options.list:
        sys.exit("\n".join(known))
    names = options.modes.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown mode {', '.join(unknown)}; --list prints the names")
    if lacking := {what for name in names for what in missing(known[name])}:
        parser.error(f"missing: {', '.join(sorted(lacking))}; see closedloop/soft_tainter.py")
    programs = assets()
    if programs is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kube-scheduler")
    if not shutil.which("prometheus"):
        sys.exit("prometheus is not on PATH (Debian: apt-get install prometheus)")
    hasten()
    logging.disable(logging.CRITICAL)  # the log of dynsched in the simulator is of no interest
    comparison = Comparison(options, {name: known[name] for name in names})
    with contextlib.ExitStack() as stack:
        number = min(options.at_once, len(comparison.jobs))
        planes = [stack.enter_context(control_plane(programs)) for _ in range(number)]
        failed = False
        try:
            asyncio.run(comparison.measure(planes))
        except ExceptionGroup as failure:  # the results so far are shown all the same
            traceback.print_exception(failure)
            failed = True
    if not comparison.found:
        sys.exit("stopped before the first run had finished")
    found, played = comparison.beside_the_simulator(), comparison.scenario
    Console(width=280).print(table(found, played))
    print(agreement(found))
    used = mean(run.real.outcome.used for run in found.values())
    print(
        f"{played.nodes} nodes, {played.seconds - played.warm:g} s judged after {played.warm:g} s, "
        f"{used:.0%} of all CPU used, rate over {played.window:g} s; "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
