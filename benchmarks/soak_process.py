"""The process under test, assembled as in `controller.main`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from soak_prometheus import INTERVAL, Source
from soak_world import IDENTITY, LEASE, World

from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.nodes import Node
from dynsched.core.tick import Tick
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.events import NodeEvents
from dynsched.kube.leader import Elector
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import RulesFile
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.web.ticks import TickStore


class EvaluatorsCluster(NodeCluster):
    """The evaluator's cluster, which passes the nodes that it reads on to the judge.

    The judge needs exactly those, because the watch's thread may change nodes between two reads.
    """

    def __init__(self, client: KubeClient, watch: NodeWatch, world: World) -> None:
        super().__init__(client, watch.store)
        self._world = world

    def nodes(self) -> Mapping[str, Node]:
        """As in `NodeCluster`. A tick reads before it decides, and again after its writes."""
        self._world.seen = super().nodes()
        return self._world.seen


class Process:
    """The parts of `dynsched run`, without its web server and signal handlers."""

    def __init__(self, world: World, kubeconfig: Path, rules_file: RulesFile) -> None:
        self._world = world
        self._kubeconfig = str(kubeconfig)
        self._rules = rules_file
        self._stop = asyncio.Event()
        self._ticks: asyncio.Queue[Tick] = asyncio.Queue()

    async def start(self) -> None:
        """Start; returns once the process leads and knows all nodes."""
        clock, url = self._world.clock, self._world.prometheus.url
        self._api, self._elector = await elector(self._kubeconfig, IDENTITY)
        self.client = KubeClient(await load_credentials(self._kubeconfig), self._elector.writer)
        self._prometheus = PrometheusSource(PrometheusConfig(url, timeout=5.0), clock=clock.wall)
        self._source = Source(self._world.prometheus, self._prometheus)
        self._events = NodeEvents(self.client, own=lambda: self._elector.lease, clock=clock.wall)
        self._watch = NodeWatch(self.client, relist=0.5)
        self.cluster = NodeCluster(self.client, self._watch.store)
        self._store = TickStore(
            clock=clock.monotonic,
            interval=INTERVAL,
            source=url,
            synced=lambda: self.cluster.synced,
        )
        evaluator = Evaluator(
            self._rules,
            queries=Queries({"prometheus": self._source}),
            histories={"prometheus": self._prometheus},
            cluster=EvaluatorsCluster(self.client, self._watch, self._world),
            reporter=Reporter(self._events),
            leadership=self._elector,
            publish=self._publish,
            clock=clock.wall,
            monotonic=clock.monotonic,
        )
        self._parts = [
            asyncio.create_task(part)
            for part in (self._watch.run(self._stop), evaluator.run(self._stop, INTERVAL))
        ]
        self.lead()
        async with asyncio.timeout(60):
            while not (self.cluster.synced and self._elector.may_write):  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)

    async def _publish(self, tick: Tick) -> None:
        """Advance the clock by one interval, because the tick is over."""
        self._store.publish(tick)
        self._source.tick_is_over()
        self._world.clock.passed += INTERVAL
        self._ticks.put_nowait(tick)

    def lead(self) -> None:
        """Stand for election."""
        self._resign = asyncio.Event()
        self._election = asyncio.create_task(self._elector.run(self._resign))

    async def resign(self) -> None:
        """Release the Lease."""
        self._resign.set()
        await self._election

    def is_calm(self) -> bool:
        """Whether the process leads, watches, and knows all nodes as they are stored."""
        is_up = self._world.server.open_watches == 1 and self.cluster.error is None
        return is_up and self._elector.may_write and self.knows_all()

    def knows_all(self) -> bool:
        """Whether the process knows all nodes as they are stored."""
        known = {name: node.resource_version for name, node in self.cluster.nodes().items()}
        return known == {entry.name: str(entry.version) for entry in self._world.entries()}

    async def tick(self) -> Tick:
        """Let one tick run; returns it."""
        self._source.go_on()
        try:
            async with asyncio.timeout(30):
                return await self._ticks.get()
        except TimeoutError:
            for part in self._parts:
                if part.done():  # this one has failed, and raises
                    part.result()
            raise

    async def stop(self) -> None:
        """Stop as on SIGTERM."""
        self._stop.set()
        self._source.go_on()  # releases the tick that waits for its samples
        await asyncio.gather(*self._parts)
        await self.resign()
        await self._events.close()
        await self.client.close()
        await self._api.close()


async def elector(kubeconfig: str, identity: str) -> tuple[KubeApi, Elector]:
    api = KubeApi(await load_credentials(kubeconfig), in_flight=2)
    return api, Elector(api, namespace="default", identity=identity, times=LEASE)
