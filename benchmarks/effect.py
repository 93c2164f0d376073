"""Where a real kube-scheduler places pods, without dynsched and with each way to use it.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/effect.py [--pods 60] [--nodes 10] [--rounds 1] [--only relative] [--bare]

etcd, kube-apiserver, kube-scheduler and `dynsched run` are real; a fake Prometheus serves the load.
The pods belong to a ReplicaSet, so the scheduler spreads them by default (--bare: they have no
owner, so it does not). They are created concurrently. The scheduler configurations are the shipped
ones.

Targets: no pod on a hot node; no cool node with more than twice the mean of the cool nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from cluster import EnvtestCluster
from envtest import Envtest, assets
from fake_prometheus import FakePrometheus
from manifest_support import COMPONENTS, Kubectl
from operator_support import until
from programs import run
from scheduling_support import (
    AVOID,
    PODS,
    TAINT,
    clear,
    dynsched,
    extended,
    make_pod,
    marked,
    placed,
    replicas,
    rules,
    scheduler,
    set_loads,
)

HOT = 95.0
THRESHOLD = 80.0
SECOND = "mem-real-usage-scheduler"
METHODS = ("linear", "relative")
TWICE = 2.0

Doc = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to use dynsched; ``content`` None: without it.

    ``overlay``: the overlay whose scheduler configuration is used; that scheduler queries dynsched.
    ``inject``: the API server adds the affinity to pods.
    """

    name: str
    content: Doc | None = None
    overlay: str | None = None
    pod: Doc = field(default_factory=dict)
    helps: bool = True
    inject: bool = False


def ways() -> list[Way]:
    found = [
        Way("without dynsched", helps=False),
        Way("label, pods unchanged", rules(), helps=False),
        Way("label + soft affinity", rules(), pod={"affinity": AVOID}),
        Way("label + injected affinity, pods unchanged", rules(), inject=True),
        Way("soft taint, pods unchanged", rules(mark={"taint": TAINT})),
    ]
    for overlay, name in (("extender", "default"), ("real-usage-scheduler", SECOND)):
        for method in METHODS:
            profiles = {name: {"score": {"load": 1}, "method": method}}
            content = rules(extender={"profiles": profiles})
            pod = {"schedulerName": SECOND} if name == SECOND else {}
            what = "second scheduler" if pod else "extender"
            found.append(Way(f"{what}, {method}", content, overlay, pod))
    return found


@dataclass(frozen=True)
class Scenario:
    """Nodes with their loads, and a workload. ``others``: a pod that runs on each cool node."""

    name: str
    loads: Mapping[str, float]
    pods: int
    request: Doc
    others: Doc | None = None

    @property
    def hot(self) -> set[str]:
        """The nodes above the threshold."""
        return {node for node, load in self.loads.items() if load > THRESHOLD}


def scenarios(pods: int, nodes: int) -> list[Scenario]:
    hot = max(1, round(nodes * 0.3))
    cool = nodes - hot
    names = [f"node-{number}" for number in range(nodes)]

    def loads(low: float, high: float) -> dict[str, float]:
        step = (high - low) / max(1, cool - 1)
        return {
            name: HOT if number < hot else low + step * (number - hot)
            for number, name in enumerate(names)
        }

    small: Doc = {"cpu": "100m", "memory": "128Mi"}
    of_the_demonstration: Doc = {"cpu": "50m", "memory": "100Mi"}
    three = {"node-01": 30.0, "node-02": HOT, "node-03": 35.0}
    what = f"{nodes} nodes, {hot} of them hot, the others at"
    return [
        Scenario(f"{pods} pods, {what} 20 to 50 %", loads(20, 50), pods, small),
        Scenario(f"{pods // 2} pods, {what} 23 to 29 %", loads(23, 29), pods // 2, small),
        Scenario(
            "30 replicas, 3 nodes, 1 of them hot and with the most requests left",
            three,
            30,
            of_the_demonstration,
            others={"cpu": "5", "memory": "20Gi"},
        ),
    ]


@dataclass(frozen=True)
class Placement:
    """Where the pods of one trial were placed, and how long that took."""

    scenario: Scenario
    counts: Counter[str]
    seconds: float

    @property
    def on_hot(self) -> int:
        """Number of pods on hot nodes."""
        return sum(self.counts[node] for node in self.scenario.hot)

    @property
    def cool(self) -> list[int]:
        """Number of pods on each cool node, in descending order."""
        names = self.scenario.loads.keys() - self.scenario.hot
        return sorted((self.counts[node] for node in names), reverse=True)

    @property
    def ratio(self) -> float:
        """Pods on the fullest cool node, divided by the mean of the cool nodes."""
        return max(self.cool) * len(self.cool) / max(1, sum(self.cool))

    def row(self, way: Way) -> tuple[str, ...]:
        """A line of the table."""
        total = self.scenario.pods
        return (
            way.name,
            f"{self.on_hot} of {total} ({self.on_hot / total:.0%})",
            " ".join(map(str, self.cool)),
            f"{self.ratio:.1f}",
            f"{self.seconds:.1f} s",
        )


@contextmanager
def beside(envtest: Envtest, config: Doc | None, *, also_default: bool) -> Any:
    """Run the scheduler with ``config``, and the default scheduler too with ``also_default``."""
    with scheduler(envtest, config), scheduler(envtest) if also_default else nullcontext():
        yield


@asynccontextmanager
async def at_work(
    way: Way, scenario: Scenario, cluster: EnvtestCluster, folder: Path
) -> AsyncIterator[Doc | None]:
    """Set the loads, and run dynsched if the way needs it; yields the scheduler's configuration."""
    async with FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, scenario.loads)
        if scenario.others:
            for node in scenario.loads.keys() - scenario.hot:
                pod = make_pod(f"other-{node}", **scenario.others, nodeName=node)
                _ = (await cluster.post(PODS, pod)).ok
        if way.content is None:
            yield None
            return
        more = ["--dry-run"] if way.overlay else []
        async with dynsched(cluster, prometheus, folder, way.content, *more) as operator:
            if way.overlay:
                yield extended(way.overlay, operator.address)
            else:
                await marked(cluster, len(scenario.hot))
                yield None


@asynccontextmanager
async def injected(cluster: EnvtestCluster) -> AsyncIterator[None]:
    """Apply manifests/components/inject, and label the namespace of the pods for it."""
    kubectl = Kubectl(cluster.kubeconfig)
    label = ("label", "namespace", "default")
    await asyncio.to_thread(kubectl, "apply", "-k", COMPONENTS / "inject")
    await asyncio.to_thread(kubectl, *label, "dynsched.io/avoid-pressure=true")

    async def in_force() -> bool:
        return "affinity" in (await cluster.post(PODS, make_pod("probe"), dryRun="All")).ok["spec"]

    try:
        await until(in_force, "the policy is in force")
        yield
    finally:
        await asyncio.to_thread(kubectl, *label, "dynsched.io/avoid-pressure-")
        await asyncio.to_thread(kubectl, "delete", "-k", COMPONENTS / "inject")


async def trial(
    way: Way, scenario: Scenario, envtest: Envtest, cluster: EnvtestCluster, *, owned: bool
) -> Placement:
    await clear(cluster)
    folder = envtest.folder
    giving = injected(cluster) if way.inject else nullcontext()
    async with at_work(way, scenario, cluster, folder) as config, giving:
        with beside(envtest, config, also_default=way.overlay == "real-usage-scheduler"):
            began = time.monotonic()
            names = await replicas(
                cluster, scenario.pods, owned=owned, **scenario.request, **way.pod
            )
            counts = await placed(cluster, names)
            return Placement(scenario, counts, time.monotonic() - began)


async def measure(
    options: argparse.Namespace, envtest: Envtest, folder: Path, console: Console
) -> list[str]:
    """Print the tables; returns the missed targets."""
    missed = []
    async with EnvtestCluster(envtest, folder) as cluster:
        for scenario in scenarios(options.pods, options.nodes):
            table = Table(
                *("way", "on hot nodes", "on the cool ones", "most / mean", "bound in"),
                title=scenario.name,
                box=box.MARKDOWN,
            )
            for way in ways():
                if options.only not in way.name:
                    continue
                rounds = [
                    await trial(way, scenario, envtest, cluster, owned=not options.bare)
                    for _ in range(options.rounds)
                ]
                worst = max(rounds, key=lambda found: (found.on_hot, found.ratio))
                table.add_row(*worst.row(way))
                if way.helps and (worst.on_hot or worst.ratio > TWICE):
                    missed.append(f"{scenario.name}: {way.name}")
            console.print(table)
        await clear(cluster)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="number; the worst is shown")
    parser.add_argument("--only", default="", help="only ways whose name contains this")
    parser.add_argument("--bare", action="store_true", help="pods that have no owner")
    options = parser.parse_args()
    programs = assets()
    if programs is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kube-scheduler")
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        envtest = Envtest(programs, folder)
        try:
            envtest.start()
            missed = asyncio.run(measure(options, envtest, folder, console))
        finally:
            envtest.stop()
    version = run(programs / "kube-scheduler", "--version").stdout.strip()
    print(f"kube-scheduler: {version}; Python {platform.python_version()}, {os.cpu_count()} cores")
    print("\n".join(["missed:", *missed]) if missed else "every target is met")


if __name__ == "__main__":
    main()
