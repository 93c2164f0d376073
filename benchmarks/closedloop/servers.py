"""etcd, kube-apiserver and Prometheus, which serve one run after another, and the programs that
each run starts: kube-scheduler and `dynsched run`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))

from cluster import NODES, EnvtestCluster
from envtest import Envtest
from operator_support import Operator, write_rules
from prometheus_support import RealPrometheus
from scheduling_support import PODS, clear, extended

from closedloop.faster import SCRAPE, TICK
from closedloop.modes import Doc, Mode
from closedloop.order_policy import NAMESPACE, answering, asking
from closedloop.soft_tainter import beside
from closedloop.workload import MIB, Pod, Scenario
from dynsched.util.durations import format_duration
from dynsched_sim.examples import make_node
from dynsched_sim.prometheus_api import serve

_FASTER = Path(__file__).parent.parent / "dynsched_faster.py"
_REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"

_BOTH = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
MOST_ALLOCATED: Doc = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": {"type": "MostAllocated", "resources": _BOTH}},
                }
            ],
        }
    ],
}


class Page:
    """The page that Prometheus scrapes; ``content`` is called at each scrape."""

    def __init__(self) -> None:
        self.content: Callable[[], str] = str

    def application(self) -> web.Application:
        """An application that serves the page as /metrics."""
        application = web.Application()
        application.router.add_get("/metrics", self._answer)
        return application

    async def _answer(self, _request: web.Request) -> web.Response:
        body = self.content().encode()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})


@dataclass(frozen=True)
class Servers:
    """The servers that outlive a run. ``program``: dynsched, which ticks every ``tick`` seconds."""

    envtest: Envtest
    cluster: EnvtestCluster
    prometheus: RealPrometheus
    page: Page
    folder: Path
    program: tuple[str, ...] = (str(_FASTER),)
    tick: float = TICK

    async def empty(self, scenario: Scenario) -> None:
        """Start with unmarked nodes and no pods."""
        await clear(self.cluster)
        for number in range(scenario.nodes):
            await self.cluster.create_node(_node(number, scenario))

    async def owners(self, pods: list[Pod]) -> dict[str, Doc]:
        """Create a ReplicaSet for each owner of pods; returns the owner references by owner.

        Pods that the scheduler must not spread get a reference to a Job that does not exist.
        kube-scheduler spreads the pods of a ReplicaSet, which it finds by the selector. No
        controller manager runs that would create its replicas.
        """
        jobs = {pod.owner for pod in pods if not pod.spreads}
        job = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        found = {owner: {**job, "name": f"app-{owner}", "uid": owner} for owner in jobs}
        for owner in sorted({pod.owner for pod in pods} - jobs):
            labels = {"app": f"app-{owner}"}
            template = {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "app:1"}]},
            }
            spec = {"selector": {"matchLabels": labels}, "template": template}
            body = {"metadata": {"name": f"app-{owner}"}, "spec": spec}
            made = (await self.cluster.post(_REPLICA_SETS, body)).ok
            found[owner] = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"app-{owner}",
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
        return found

    async def version(self, path: str) -> str:
        """The current resourceVersion of a collection, to start a watch from."""
        listed = (await self.cluster.get(path, limit=1)).ok
        return str(listed["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def placing(
        self, mode: Mode, content: Doc | None, *, packs: bool
    ) -> AsyncIterator[dict[str, int]]:
        """Run the programs of the mode: dynsched (with the rules ``content``), other programs, and
        kube-scheduler. Yields the process ids of the programs that know the load, by name.
        """
        pids, config = {}, MOST_ALLOCATED if packs else None
        async with AsyncExitStack() as stack:
            if content is not None:
                more = (*mode.flags, "--lease-namespace", NAMESPACE)
                if mode.by_webhook:
                    more += await stack.enter_async_context(answering(self.cluster))
                elif mode.orders:
                    await stack.enter_async_context(asking(self.cluster))
                operator = await stack.enter_async_context(self._operator(content, *more))
                pids["dynsched"] = operator.process.pid
                if mode.overlay:
                    config = extended(mode.overlay, operator.address)
            if mode.beside:
                where = (self.cluster, self.envtest, self.prometheus.url)
                pids |= await stack.enter_async_context(beside(mode.beside, *where))
            if mode.placer is None:
                await stack.enter_async_context(self._scheduler(config))
            yield pids

    @asynccontextmanager
    async def _operator(self, content: Doc, *flags: str) -> AsyncIterator[Operator]:
        file = write_rules(self.folder, content)
        # No leader election: the Lease of the killed predecessor would last some seconds more.
        more = ("--no-leader-elect", "--interval", format_duration(self.tick), *flags)
        where = ("--kubeconfig", str(self.cluster.kubeconfig), "--prom", self.prometheus.url)
        arguments = ("run", *where, "-r", str(file), *more)
        async with Operator(self.folder, *arguments, program=self.program) as operator:
            await operator.until_ready()
            yield operator

    @asynccontextmanager
    async def _scheduler(self, config: Doc | None) -> AsyncIterator[None]:
        # start and stop block. A scheduler ends with the thread that started it; the keeper lasts.
        loop, keeper = asyncio.get_running_loop(), self.envtest.keeper
        stop = await loop.run_in_executor(keeper, self.envtest.start_scheduler, config)
        try:
            yield
        finally:
            await loop.run_in_executor(keeper, stop)


@contextmanager
def control_plane(assets: Path) -> Iterator[Envtest]:
    """Start etcd and kube-apiserver, which blocks, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="closed-loop-") as folder:
        envtest = Envtest(assets, Path(folder))
        try:
            envtest.start()
            yield envtest
        finally:
            envtest.stop()


@asynccontextmanager
async def servers(
    envtest: Envtest, folder: Path, rules: Sequence[Path] = ()
) -> AsyncIterator[Servers]:
    """A control plane with a Prometheus; both serve one run at a time.

    ``rules``: additional rule files for Prometheus.
    """
    page = Page()
    async with EnvtestCluster(envtest, folder) as cluster, serve(page.application()) as url:
        job = {
            "job_name": "nodes",
            "honor_labels": True,
            "static_configs": [{"targets": [url.removeprefix("http://")]}],
        }
        interval = format_duration(SCRAPE)
        place = folder / "prometheus"
        with RealPrometheus(place, [job], interval=interval, rule_files=rules) as prometheus:
            yield Servers(envtest, cluster, prometheus, page, folder)


def pod_body(name: str, pod: Pod, owner: Doc, more: Doc) -> Doc:
    """The Pod object; ``more``: additional fields of its spec."""
    requests = {"cpu": f"{pod.cpu * 1000:.0f}m", "memory": f"{pod.memory / MIB:.0f}Mi"}
    return {
        "metadata": {
            "name": name,
            "labels": {"app": owner["name"]},
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [{"name": "app", "image": "app:1", "resources": {"requests": requests}}],
            "terminationGracePeriodSeconds": 0,
            **more,
        },
    }


def _node(number: int, scenario: Scenario) -> Doc:
    """A node of the simulator's world: fully allocatable, and in no zone."""
    node = make_node(f"node-{number}", number)
    size = {"cpu": f"{scenario.cores:g}", "memory": f"{scenario.memory / MIB:.0f}Mi", "pods": "110"}
    node["status"] |= {"capacity": size, "allocatable": size, "images": []}
    del node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    return node


__all__ = ["NODES", "PODS", "Page", "Servers", "pod_body", "servers"]
