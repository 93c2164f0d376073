"""One run on real servers: pods are created on time, use CPU once they are bound, and end.

There is no kubelet. This process watches the bindings, reports that pods run, knows what each of
them uses, and serves it to Prometheus as exporters would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from cluster import Answer
from pods_support import STARTED
from scaling.processes import cpu_seconds, memory

from closedloop.account import Account, pod_name
from closedloop.modes import Doc, Mode
from closedloop.order_policy import until_told
from closedloop.servers import NODES, PODS, Servers, pod_body
from closedloop.workload import Pod, Scenario, draw
from closedloop.world import Outcome, Player, make_world

_FOREVER = 86400.0
_NOT_FOUND = 404


@dataclass
class Result:
    """The result of one run.

    ``waits``: for each pod bound in the judged time, seconds from the request to create it until
    this process saw the binding. ``costs``: per program, CPU seconds in the judged time, and its
    peak memory in MB.
    """

    outcome: Outcome
    waits: list[float] = field(default_factory=list)
    costs: dict[str, tuple[float, float]] = field(default_factory=dict)

    def waited(self, quantile: float) -> float:
        """A quantile of the waits in seconds; 0 if no pod was bound."""
        return float(np.quantile(self.waits, quantile)) if self.waits else 0.0


async def play(
    servers: Servers, scenario: Scenario, seed: int, mode: Mode, content: Doc | None
) -> Result:
    """Play one run; ``content``: dynsched's rules with the run's durations."""
    pods = draw(scenario, seed)
    await servers.empty(scenario)
    run = Loop(servers, scenario, seed, mode, await servers.owners(pods))
    try:
        async with servers.placing(mode, content, packs=scenario.packs) as pids:
            return await run.play(pods, pids)
    finally:
        servers.page.content = str


class Loop:
    """Runs the pods of one run, and keeps the account of what they use."""

    def __init__(
        self,
        servers: Servers,
        scenario: Scenario,
        seed: int,
        mode: Mode,
        owners: Mapping[str, Doc],
    ) -> None:
        self._servers = servers
        self._cluster = servers.cluster
        self._scenario = scenario
        self._more = mode.pod
        self._ordered = mode.orders
        self._owners = owners
        self._world = make_world(scenario, seed)
        self._places = {name: place for place, name in enumerate(self._world.names)}
        self._account = Account(self._world)
        self.result = Result(self._account.outcome)
        self._placer: Player | None = mode.placer(self._world) if mode.placer else None
        self._bindings: dict[str, asyncio.Future[str]] = {}
        self._evicted: dict[str, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def play(self, pods: list[Pod], pids: Mapping[str, int]) -> Result:
        """Play from the first pod to the end. ``pids``: programs whose costs are measured."""
        versions = {path: await self._servers.version(path) for path in (PODS, NODES)}
        await self._scraped()
        if self._ordered:
            await until_told(self._cluster)
        self._began = self._loop.time()
        self._servers.page.content = lambda: self._account.page(self._now())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._watch_bindings(versions[PODS])),
                group.create_task(self._watch_nodes(versions[NODES])),
                *(group.create_task(self._live(pod)) for pod in pods),
            ]
            await self._until(self._scenario.warm)
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            await self._until(self._scenario.seconds)
            for name, pid in pids.items():
                used = cpu_seconds(pid) - before[name]
                self.result.costs[name] = (used, memory(pid)[1])
            for task in tasks:
                task.cancel()
        self._account.advance(self._now())
        warm = self._scenario.warm
        self.result.outcome.unplaced = sum(
            not self._bindings[pod.uid].done()
            for pod in pods
            if pod.arrives >= warm and pod.uid in self._bindings
        )
        self._account.result()
        return self.result

    def _now(self) -> float:
        """Seconds since the start of the run."""
        return self._loop.time() - self._began

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(self._began + moment - self._loop.time())

    async def _scraped(self) -> None:
        """Wait until Prometheus has the load of all nodes, while they are empty."""
        empty, began = Account(make_world(self._scenario, 0)), self._loop.time()
        self._servers.page.content = lambda: empty.page(self._loop.time() - began)
        wait = self._servers.prometheus.wait_for
        expr = f"sum by (instance) (rate(node_cpu_seconds_total[{self._scenario.window:g}s]))"
        await asyncio.to_thread(wait, expr, len(self._world.names))

    async def _live(self, pod: Pod) -> None:
        """A pod's life from creation to end. An evicted pod is recreated for the rest of its life,
        as its ReplicaSet would.
        """
        await self._until(pod.arrives)
        left = pod.lives
        while left > 0 and await self._place(pod):
            began, gone = self._now(), self._evicted[pod.uid]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):  # in 3.11, wait_for may lose a cancellation
                    await gone.wait()
            self._account.ended(pod, self._now(), evicted=gone.is_set())
            left = left - (self._now() - began) if gone.is_set() else 0.0
        self._evicted.pop(pod.uid, None)
        await self._remove(pod)

    async def _place(self, pod: Pod) -> bool:
        """Create the pod, and wait until it is bound and runs. False if it found no node."""
        binding = self._bindings[pod.uid] = self._loop.create_future()
        self._evicted[pod.uid] = asyncio.Event()
        requested = self._now()
        name = pod_name(pod.uid)
        body = self._body(pod)
        if self._placer is not None:
            place = self._placer.choose(pod)
            if place is None:
                return False
            # Count it now, so that the next choice includes it.
            self._account.bound(pod, place, self._now())
            _ = (await self._cluster.post(PODS, body)).ok
            await self._bind(name, self._world.names[place])
            await binding
        else:
            _ = (await self._cluster.post(PODS, body)).ok
            self._account.bound(pod, self._places[await binding], self._now())
        if self._now() >= self._scenario.warm:
            self.result.waits.append(self._now() - requested)
        await self._start(pod)
        return True

    def _body(self, pod: Pod) -> Doc:
        return pod_body(pod_name(pod.uid), pod, self._owners[pod.owner], self._more)

    async def _start(self, pod: Pod) -> None:
        """Report that the pod runs, as the kubelet would; until then it was only bound."""
        status = {"phase": "Running", "containerStatuses": [STARTED]}
        unless_gone(await self._cluster.patch(f"{path_of(pod)}/status", {"status": status}))

    async def _remove(self, pod: Pod) -> None:
        unless_gone(await self._cluster.delete(path_of(pod), gracePeriodSeconds=0))

    async def _bind(self, pod: str, node: str) -> None:
        target = {"kind": "Node", "name": node}
        body = {"metadata": {"name": pod}, "target": target}
        _ = (await self._cluster.post(f"{PODS}/{pod}/binding", body)).ok

    async def _watch_bindings(self, version: str) -> None:
        """Report each binding: a bound pod enters the selection of this watch."""
        async for what, pod in self._changes(PODS, version, fieldSelector="spec.nodeName!="):
            self._see(what, pod)

    def _see(self, what: str, pod: Doc) -> None:
        """Handle an event of a bound pod."""
        uid = pod["metadata"]["name"].removeprefix(pod_name(""))
        if what == "DELETED" and uid in self._evicted:
            self._evicted[uid].set()
        binding = self._bindings[uid]
        if what == "ADDED" and not binding.done():
            binding.set_result(pod["spec"]["nodeName"])

    async def _watch_nodes(self, version: str) -> None:
        """Count the writes to nodes."""
        async for what, node in self._changes(NODES, version):
            if what == "MODIFIED" and self._is_ours(node):
                self._account.advance(self._now())
                self._account.node_written()

    async def _changes(
        self, path: str, version: str, **selectors: str
    ) -> AsyncIterator[tuple[str, Doc]]:
        """All events after the version; reconnects, because the API server ends slow watches."""
        while True:
            async with self._cluster.watch(path, resourceVersion=version, **selectors) as watch:
                while event := await watch.next(_FOREVER):
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event["type"], event["object"]

    def _is_ours(self, _node: Doc) -> bool:
        """Whether the change was not made by a kubelet; here there is none."""
        return True


def path_of(pod: Pod) -> str:
    """Path of the Pod object at the API server."""
    return f"{PODS}/{pod_name(pod.uid)}"


def unless_gone(answer: Answer) -> None:
    """Assert success, unless the pod has just been evicted."""
    assert answer.status == _NOT_FOUND or answer.ok
