"""How many pods the descheduler moves according to dynsched's verdicts, until no node is hot.

    export KUBEBUILDER_ASSETS=/path/to/bin   # with descheduler in it, or DESCHEDULER=...
    python benchmarks/descheduler.py [--only rises] [--cycles 12] [--by-load]

etcd, kube-apiserver, kube-scheduler, `dynsched run` and the descheduler (with the shipped policy)
are real. The load of a node is the use of its pods; a fake Prometheus serves it. An evicted pod is
recreated with the same use, as its ReplicaSet would. A cycle stands for five minutes, and each
cycle is a new process of the descheduler.

Targets: no node is hot at the end if there is room, with at most one and a half times the evictions
needed; nothing moves if all nodes are hot, none is, or one has no verdict; no evicted pod goes to a
marked node while an unmarked one has room.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from cluster import EnvtestCluster
from descheduler_support import (
    BY_LOAD,
    BY_VERDICT,
    Descheduler,
    Verdicts,
    install,
)
from envtest import Envtest, assets
from fake_prometheus import FakePrometheus
from manifest_support import Doc, Kubectl
from operator_support import Operator, until
from programs import find_descheduler
from scheduling_support import AVOID, PODS, TAINT, clear, dynsched, make_pod, scheduler

from dynsched_sim.examples import make_node

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
CORES = 4.0
THRESHOLD, CLEAR = 80.0, 70.0
CYCLE = timedelta(minutes=5)
RULES = {
    "guard": {"max_marked": "50%", "max_releases": "100%"},
    "rules": [
        {"name": "load", "expr": "load", "resource": "cpu", "threshold": THRESHOLD,
         "clear_threshold": CLEAR}
    ],
}  # fmt: skip
LABEL = {"label": "status=presure"}
BOTH = {**LABEL, "taint": TAINT}
RESERVED = {"key": "example.com/team", "value": "red", "effect": "NoSchedule"}
HALF_AGAIN = 1.5


@dataclass(frozen=True)
class Scene:
    """A scenario. ``uses``: for each node, the use of each pod on it, in cores."""

    name: str
    uses: Sequence[Sequence[float]]
    later: Mapping[int, float] = field(default_factory=dict)
    """Node -> factor by which its pods use more in every second cycle."""
    mark: Mapping[str, str] = field(default_factory=lambda: BOTH)
    missing: int | None = None
    """The node without a verdict."""
    roomy: int | None = None
    """A node with eight times the allocatable resources; its load is still relative to CORES."""
    reserved: int = 0
    """Number of additional idle nodes with a taint that no pod tolerates."""
    affinity: bool = False
    """Whether the pods have the soft affinity."""
    needed: int | None = None
    """Number of evictions needed; None: there is no end to reach."""


def rises(factor: float) -> list[list[float]]:
    """Six nodes placed at 48 %; the use of the pods on two of them has risen by ``factor``."""
    return [[0.32 * factor] * 6] * 2 + [[0.32] * 6] * 4


SCENES = [
    Scene("two of six hot, one pod too many each", [[0.85] * 4] * 2 + [[0.5] * 3] * 4, needed=2),
    Scene("use rises after placement, on two of six", rises(1.85), needed=4),
    Scene("the same, and six idle nodes that no pod tolerates", rises(1.85), reserved=6, needed=4),
    Scene("none is hot", [[0.5] * 3] * 6, needed=0),
    Scene("all are hot", [[0.95] * 4] * 6, needed=0),
    Scene("all but one are hot", [[0.9] * 4] * 5 + [[0.5] * 2], needed=0),
    Scene("two are hot, one has no verdict", rises(1.85), missing=5, needed=0),
    Scene("eight times the room, label and taint", rises(1.85), roomy=0, needed=4),
    Scene("eight times the room, label alone, pods with the affinity", rises(1.85), roomy=0,
          mark=LABEL, affinity=True, needed=4),
    Scene("eight times the room, label alone, pods without it", rises(1.85), roomy=0, mark=LABEL),
    Scene("one flaps between 68 and 85 %", [[0.68] * 4] + [[0.4] * 3] * 5, later={0: 1.25}),
    Scene("the mean is at the threshold", [[1.1] * 3] * 3 + [[1.0] * 3] * 3),
]  # fmt: skip


@dataclass
class Result:
    """The result of a scene."""

    scene: Scene
    evictions: int = 0
    cycles: int | None = None
    """Number of cycles after which no node was hot."""
    returned: int = 0
    """Number of evicted pods that went to a marked node while an unmarked one had room."""

    def misses(self) -> str | None:
        """The missed target, or None."""
        needed = self.scene.needed
        if self.returned and needed is not None:
            return f"{self.returned} went to marked nodes"
        if needed == 0 and self.evictions:
            return f"{self.evictions} evictions although none helps"
        if needed and (self.cycles is None or self.evictions > needed * HALF_AGAIN):
            return f"{self.evictions} evictions, {needed} were needed"
        return None

    def row(self) -> tuple[str, ...]:
        """A line of the table."""
        needed = "-" if self.scene.needed is None else str(self.scene.needed)
        cool = "-" if self.cycles is None else str(self.cycles)
        return self.scene.name, needed, str(self.evictions), cool, str(self.returned)


class Trial:
    """Runs one scene on the real servers."""

    def __init__(
        self,
        scene: Scene,
        cluster: EnvtestCluster,
        descheduler: Descheduler,
        folder: Path,
        args: Doc,
    ) -> None:
        self.scene, self.cluster, self.descheduler, self.folder, self.args = (
            scene, cluster, descheduler, folder, args,
        )  # fmt: skip
        self.bodies: dict[str, dict[str, Any]] = {}
        self.uses: dict[str, float] = {}
        self.born: dict[str, int] = {}
        self.moment = 12  # an hour has passed: all pods are old enough
        self.made = 0

    async def run(self, cycles: int) -> Result:
        """Run until the end is reached, but at most ``cycles`` cycles."""
        result = Result(self.scene)
        async with FakePrometheus() as loads, Verdicts() as verdicts:
            await self._populate()
            loads.set(load=await self.loads())
            content = {**RULES, "mark": dict(self.scene.mark)}
            async with dynsched(self.cluster, loads, self.folder, content) as operator:
                # If nothing may move, a few cycles are enough to show it.
                for cycle in range(min(cycles, 4) if self.scene.needed == 0 else cycles):
                    seen = await self._settled(operator, loads, cycle)
                    if result.cycles is None and not any(value == 1 for value in seen.values()):
                        result.cycles = cycle
                        if self.scene.needed:  # the end is reached
                            break
                    if self.args is BY_LOAD:
                        seen = await above_mean(operator)
                    if self.scene.missing is not None:
                        del seen[f"n{self.scene.missing}"]
                    verdicts.show(seen, self.args)
                    descheduled = functools.partial(self.descheduler.cycle, args=self.args)
                    evicted = (await asyncio.to_thread(descheduled, verdicts.url)).evicted
                    self.moment += 1
                    result.evictions += len(evicted)
                    result.returned += await self._make_anew(evicted)
        return result

    async def _populate(self) -> None:
        await clear(self.cluster)
        for number in range(len(self.scene.uses) + self.scene.reserved):
            node = make_node(f"n{number}", number)
            if number >= len(self.scene.uses):
                node["spec"]["taints"] = [RESERVED]
            cores = CORES * 8 if number == self.scene.roomy else CORES
            room = {"cpu": f"{cores:g}", "memory": f"{cores * 4:g}Gi", "pods": "110"}
            node["status"] |= {"capacity": room, "allocatable": room, "images": []}
            del node["metadata"]["labels"]["topology.kubernetes.io/zone"]
            await self.cluster.create_node(node)
        owner = await self._owner()
        for number, uses in enumerate(self.scene.uses):
            for use in uses:
                await self._create(owner, use, born=0, nodeName=f"n{number}")
        await self._age()

    async def _owner(self) -> dict[str, Any]:
        """Create a ReplicaSet to own the pods. No controller manager runs that would act on it."""
        spec = {"selector": {"matchLabels": {"app": "app"}}, "template": make_pod("app")}
        made = (
            await self.cluster.post(REPLICA_SETS, {"metadata": {"name": "app"}, "spec": spec})
        ).ok
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "app",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    async def _create(
        self, owner: Mapping[str, Any], use: float, *, born: int, **placed: Any
    ) -> str:
        """Create a pod with a new name. ``placed``: fields of its spec, such as its node."""
        self.made += 1
        if self.scene.affinity:
            placed["affinity"] = AVOID
        name = f"app-{self.made}"
        body = make_pod(name, cpu="200m", memory="128Mi", terminationGracePeriodSeconds=0, **placed)
        body["metadata"]["ownerReferences"] = [dict(owner)]
        _ = (await self.cluster.post(PODS, body)).ok
        self.bodies[name], self.uses[name], self.born[name] = body, use, born
        return name

    async def _age(self) -> None:
        """Set the status as the kubelet would: running since the cycle of the pod's creation."""
        for name, born in self.born.items():
            since = datetime.now(UTC) - CYCLE * (self.moment - born)
            status = {
                "phase": "Running",
                "startTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await self.cluster.patch(f"{PODS}/{name}/status", {"status": status})

    async def _make_anew(self, evicted: Sequence[str]) -> int:
        """Recreate the evicted pods; returns how many of them went to a marked node although an
        unmarked one has room.
        """
        marked = {node["metadata"]["name"] for node in await self.cluster.list_nodes("status")}
        clean = len(self.scene.uses) - len(marked)
        names = []
        for name in evicted:
            self.born.pop(name)
            (owner,) = self.bodies.pop(name)["metadata"]["ownerReferences"]
            names.append(await self._create(owner, self.uses.pop(name), born=self.moment))
        await until(lambda: self._bound(names), "the new pods are bound")
        places = await self.places()
        return sum(places[name] in marked for name in names) if clean else 0

    async def _bound(self, names: Sequence[str]) -> bool:
        places = await self.places()
        return all(places.get(name) for name in names)

    async def places(self) -> dict[str, str]:
        """The node of each pod."""
        pods = (await self.cluster.get(PODS)).ok["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    async def loads(self, cycle: int = 0) -> dict[str, float]:
        """Each node's load in percent."""
        count = len(self.scene.uses) + self.scene.reserved
        found = dict.fromkeys((f"n{number}" for number in range(count)), 0.0)
        for name, node in (await self.places()).items():
            factor = self.scene.later.get(int(node[1:]), 1.0) if node and cycle % 2 else 1.0
            if node and name in self.uses:
                found[node] += self.uses[name] * factor / CORES * 100
        return {node: min(100.0, load) for node, load in found.items()}

    async def _settled(
        self, operator: Operator, prometheus: FakePrometheus, cycle: int
    ) -> dict[str, float]:
        """The verdicts, once dynsched has seen the current loads and written its marks."""
        await self._age()
        loads = await self.loads(cycle)
        prometheus.set(load=loads)

        async def verdicts() -> dict[str, float] | None:
            nodes = (await operator.nodes())["nodes"]
            shown = {node["name"]: node["rules"][0]["value"] for node in nodes}
            same = all(abs((shown[name] or 0) - load) < 1 for name, load in loads.items())
            calm = same and not any(node["due"] for node in nodes)
            return {node["name"]: verdict(node) for node in nodes} if calm else None

        found: dict[str, float] = await until(verdicts, "dynsched has seen the loads")
        return found


async def above_mean(operator: Operator) -> dict[str, float]:
    """The values that the query of docs/examples/descheduler/by-load.yaml has for these metrics."""
    _, text = await operator.get("/metrics")
    return {
        sample.labels["node"]: min(max(0.5 + sample.value / 100, 0.0), 1.0)
        for family in text_string_to_metric_families(text)
        if family.name == "dynsched_node_load_above_mean"
        for sample in family.samples
    }


def verdict(node: Mapping[str, Any]) -> float:
    """The value of `dynsched_node_verdict` for a node of /nodes."""
    (rule,) = node["rules"]
    if node["marked"] and rule["state"] == "firing" and rule["value"] > CLEAR:
        return 1.0
    return 0.0 if not node["marked"] and rule["state"] == "inactive" else 0.5


async def measure(options: argparse.Namespace, program: str, envtest: Envtest) -> list[str]:
    """Print the table; returns the missed targets."""
    table = Table(
        *("scene", "needed", "evictions", "cycles until none is hot", "back to marked nodes"),
        box=box.MARKDOWN,
    )
    missed = []
    async with EnvtestCluster(envtest, envtest.folder) as cluster:
        token = await asyncio.to_thread(install, Kubectl(cluster.kubeconfig))
        descheduler = Descheduler(program, envtest, token, envtest.folder)
        with scheduler(envtest):
            for scene in SCENES:
                if options.only not in scene.name:
                    continue
                args = BY_LOAD if options.by_load else BY_VERDICT
                trial = Trial(scene, cluster, descheduler, envtest.folder, args)
                result = await trial.run(options.cycles)
                print(json.dumps(result.row()), file=sys.stderr)
                table.add_row(*result.row())
                if missed_target := result.misses():
                    missed.append(f"{scene.name}: {missed_target}")
        await clear(cluster)
    Console(width=120).print(table)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only scenes whose name contains this")
    parser.add_argument("--cycles", type=int, default=12, help="maximum cycles of a scene")
    parser.add_argument("--by-load", action="store_true", help="use the load, not the verdicts")
    options = parser.parse_args()
    programs, program = assets(), find_descheduler()
    if programs is None or program is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-scheduler and "
                 "descheduler")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        envtest = Envtest(programs, Path(name))
        try:
            envtest.start()
            missed = asyncio.run(measure(options, program, envtest))
        finally:
            envtest.stop()
    print("\n".join(["missed:", *missed]) if missed else "every target is met")


if __name__ == "__main__":
    main()
