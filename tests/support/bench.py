"""The whole evaluator, ticked by hand: its source, watch, writer and Events are the real ones."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from cluster import NODES, Cluster
from fake_prometheus import Clock, FakePrometheus
from operator_support import write_rules
from prometheus_client import CollectorRegistry

from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.marks import NodePatch
from dynsched.core.tick import Tick
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.events import NodeEvents, Subject
from dynsched.kube.leader import NoElection
from dynsched.kube.node_watch import NodeWatch
from dynsched.rules.file import RulesFile
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.web.metrics import Metrics
from dynsched.web.nodes import node_detail
from dynsched.web.status import rules_answer, status_answer

INTERVAL = 10.0
_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
OPEN: Mapping[str, Any] = {"max_marked": "100%", "max_releases": "100%"}
"""A guard that never binds."""
HOT, COOL = 91.0, 12.0


def rules(*, guard: Mapping[str, Any] = OPEN, mark: Any = None, **rule: Any) -> dict[str, Any]:
    """A file with one rule, ``load`` > 80; ``for_`` stands for ``for``."""
    more = {key.rstrip("_"): value for key, value in rule.items()}
    return {
        "guard": dict(guard),
        "mark": dict(mark or {}),
        "rules": [{"name": "load", "expr": "load", "threshold": 80, **more}],
    }


class Bench:
    """One life of the evaluator. Made by `bench`; its clock is the Prometheus's."""

    def __init__(
        self,
        cluster: Cluster,
        source: PrometheusSource,
        client: KubeClient,
        file: Path,
        clock: Clock,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.client = client
        self.file = file
        self.watch = NodeWatch(client)
        self.storage = Interfered(client, self.watch)
        self.events = NodeEvents(client, own=lambda: _OURSELVES)
        self.metrics = Metrics(CollectorRegistry())
        self.leadership = NoElection()
        self.evaluator = Evaluator(
            RulesFile(file),
            queries=Queries({"prometheus": source}),
            histories={"prometheus": source},
            cluster=self.storage,
            reporter=Reporter(self.events),
            leadership=self.leadership,
            publish=self._publish,
            clock=clock,
            monotonic=clock,
        )
        self.last: Tick

    async def _publish(self, tick: Tick) -> None:
        self.last = tick
        self.metrics.observe(tick)

    def write_rules(self, content: Mapping[str, Any]) -> None:
        write_rules(self.file.parent, content)

    async def tick(self, after: float = INTERVAL) -> Tick:
        """So many seconds pass, the watch brings all that happened, and a tick is due."""
        await self.caught_up()
        self.clock.ahead += after
        tick = await self.evaluator.tick(self.clock())
        assert tick is not None
        return tick

    async def caught_up(self) -> None:
        """Until the watch knows every node as the API server has it."""
        async with asyncio.timeout(60):
            while not self.watch.store.synced or await self._versions() != {
                name: node.resource_version for name, node in self.watch.store.nodes().items()
            }:
                await asyncio.sleep(0.0002 * len(self.watch.store.nodes()) + 0.01)

    async def _versions(self) -> dict[str, str]:
        listed = await self.cluster.request("GET", NODES, headers=_METADATA)
        metadata = (node["metadata"] for node in listed.ok["items"])
        return {each["name"]: each["resourceVersion"] for each in metadata}

    async def marked(self) -> str:
        """The names of the nodes that carry the label, as the API server has it."""
        found = await self.cluster.list_nodes("status=presure")
        return " ".join(sorted(node["metadata"]["name"] for node in found))

    def node(self, name: str) -> Any:
        """What `/nodes/NAME` answers."""
        found = node_detail(self.last, name)
        assert found is not None
        told = msgspec.json.encode(found, enc_hook=str)
        return json.loads(told, object_hook=lambda each: SimpleNamespace(**each))

    def status(self) -> dict[str, Any]:
        error = self.last.error
        found = status_answer(self.last, error=error, source="", leader=None, rules_error=None)
        return dict(json.loads(json.dumps(found)))

    def rules(self) -> list[dict[str, Any]]:
        return list(rules_answer(self.last)["rules"])

    def metric(self, name: str) -> float | None:
        """One series of `/metrics`, by its whole name with labels."""
        lines = self.metrics.exposition().decode().splitlines()
        return next(
            (float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None
        )

    async def told(self, node: str) -> dict[str, int]:
        """Reason and count of the Events so far, on a node."""
        mark = str(uuid.uuid4())  # all that was queued before this is posted
        self.events.post_own(reason="Mark", message=mark)
        async with asyncio.timeout(60):
            while mark not in str(await self.cluster.list_events("dynsched", "Lease")):
                await asyncio.sleep(0.02)
        found = await self.cluster.list_events(node)
        return {event["reason"]: event["count"] for event in found}


_OURSELVES = Subject("Lease", "dynsched", "our-uid", "coordination.k8s.io/v1", "default")


class Interfered(NodeCluster):
    """``meddle[NAME]``, if there is one, runs once between the plan and the write."""

    def __init__(self, client: KubeClient, watch: NodeWatch) -> None:
        super().__init__(client, watch.store)
        self.meddle: dict[str, Any] = {}

    async def patch(self, patch: NodePatch) -> Any:
        meddle = self.meddle.pop(patch.node, None)
        if meddle is not None:
            await meddle()
        return await super().patch(patch)


@asynccontextmanager
async def bench(
    cluster: Cluster,
    prometheus: FakePrometheus,
    folder: Path,
    content: Mapping[str, Any] | None = None,
) -> AsyncIterator[Bench]:
    """From start to stop. A further one on the same cluster is a restart: memory is empty.

    ``content`` None leaves the rules file as it is.
    """
    file = folder / "rules.yaml"
    if content is not None:
        write_rules(folder, content)
    clock = prometheus.clock
    client = KubeClient(await load_credentials(str(cluster.kubeconfig)))
    source = PrometheusSource(PrometheusConfig(prometheus.url, timeout=2.0), clock=clock)
    running = Bench(cluster, source, client, file, clock)
    stop = asyncio.Event()
    watching = asyncio.create_task(running.watch.run(stop))
    try:
        await running.caught_up()
        await running.evaluator.restore(INTERVAL)
        yield running
    finally:
        stop.set()
        await asyncio.wait({watching}, timeout=5)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await running.events.close()
        await client.close()
