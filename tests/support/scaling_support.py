"""Deployments that are scaled down and up, by real servers: which nodes lose their pods. For a test
and for `benchmarks/scale_down.py`.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import EnvtestCluster
from envtest import Envtest
from fake_prometheus import FakePrometheus
from manifest_support import BASE, COMPONENTS, Doc, Kubectl
from operator_support import Operator, until
from pods_support import PODS, STARTED
from replica_support import replica, some_ticks, until_status
from scheduling_support import make_pod, rules, scheduler, set_loads

from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST

APPS = "/apis/apps/v1/namespaces/default"
OURS = {DELETION_COST, COST_ANNOTATION}
THEIRS = {"web-five": "5", "web-minus": "-50"}
"""Two Deployments more, whose pods have a cost of somebody else's by their template."""
HOT = 95.0


@dataclass(frozen=True)
class Plan:
    """``hot`` of the ``nodes``, other ones in each of the ``waves``."""

    nodes: int = 40
    hot: int = 6
    deployments: int = 20
    high: int = 30
    low: int = 20
    waves: int = 3

    @property
    def names(self) -> list[str]:
        return [f"web-{number}" for number in range(self.deployments)]

    def hot_in(self, wave: int) -> set[str]:
        first = wave * self.hot
        return {f"n{number % self.nodes}" for number in range(first, first + self.hot)}


@dataclass
class Outcome:
    """Of the Deployments without a cost of somebody else's. ``could``: how many of those that were
    removed could have been on hot nodes; ``chance``: how many would have been by chance.
    """

    removed: int = 0
    from_hot: int = 0
    could: int = 0
    chance: float = 0.0
    writes: int = 0
    minutes: float = 0.0
    while_steady: int = 0
    foreign_changed: int = 0
    left: int = 0
    """Pods that have a cost of dynsched's after all: it was switched off."""
    notes: dict[str, Doc] = field(default_factory=dict)
    """Annotations of others, by the uid of the pod."""

    @property
    def share(self) -> float:
        return self.from_hot / max(1, self.could)


def deployment(name: str, replicas: int) -> Doc:
    pod = make_pod(name, cpu="10m", memory="10Mi", terminationGracePeriodSeconds=0)
    labels, notes = {"app": name}, {"team": "pay"}
    if name in THEIRS:
        notes[DELETION_COST] = THEIRS[name]
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


class Scaled:
    """The Deployments in a cluster."""

    def __init__(self, cluster: EnvtestCluster, plan: Plan) -> None:
        self.cluster, self.plan, self.outcome = cluster, plan, Outcome()
        self._all = [*plan.names, *THEIRS]

    async def pods(self) -> list[Doc]:
        """With a look at the annotations of others."""
        found: list[Doc] = (await self.cluster.get(PODS, resourceVersion="0")).ok["items"]
        for meta in (each["metadata"] for each in found):
            notes = meta.get("annotations", {})
            rest = {key: text for key, text in notes.items() if key not in OURS}
            if COST_ANNOTATION not in notes:
                rest |= {key: notes[key] for key in notes.keys() & {DELETION_COST}}
            before = self.outcome.notes.setdefault(meta["uid"], rest)
            self.outcome.foreign_changed += before != rest
        return found

    async def scale(self, replicas: int) -> None:
        for name in self._all:
            body = {"spec": {"replicas": replicas}}
            _ = (await self.cluster.patch(f"{APPS}/deployments/{name}", body)).ok
        wanted = len(self._all) * replicas

        async def done() -> bool:
            pods = await self.pods()
            return len(pods) == wanted and all(map(is_ready, pods))

        await until(done, f"{wanted} pods run", 300)

    async def create(self) -> None:
        for name in self._all:
            _ = (await self.cluster.post(f"{APPS}/deployments", deployment(name, 0))).ok
        await self.scale(self.plan.high)

    async def wave(self, hot: set[str]) -> None:
        """Down, and what that removed; and up again."""
        before = {p["metadata"]["uid"]: p for p in await self.pods()}
        await self.scale(self.plan.low)
        after = {p["metadata"]["uid"] for p in await self.pods()}
        on_hot = {uid for uid, p in before.items() if p["spec"]["nodeName"] in hot}
        gone, there = Counter[str](), Counter[str]()
        gone_hot, there_hot = Counter[str](), Counter[str]()
        for uid, pod in before.items():
            app = pod["metadata"]["labels"]["app"]
            there[app] += 1
            there_hot[app] += uid in on_hot
            gone[app] += uid not in after
            gone_hot[app] += uid not in after and uid in on_hot
        for app in self.plan.names:
            self.outcome.removed += gone[app]
            self.outcome.from_hot += gone_hot[app]
            self.outcome.could += min(gone[app], there_hot[app])
            self.outcome.chance += gone[app] * there_hot[app] / there[app]
        await self.scale(self.plan.high)

    async def costed(self) -> Counter[str]:
        """By node, how many pods have a cost of dynsched's."""
        return Counter(
            pod["spec"]["nodeName"]
            for pod in await self.pods()
            if COST_ANNOTATION in pod["metadata"]["annotations"]
        )

    async def to_be_costed(self, hot: set[str]) -> Counter[str]:
        nodes = [
            pod["spec"]["nodeName"]
            for pod in await self.pods()
            if pod["metadata"]["labels"]["app"] in self.plan.names
        ]
        return Counter(node for node in nodes if node in hot)

    async def settled(self, hot: set[str]) -> None:
        async def is_so() -> bool:
            return await self.costed() == await self.to_be_costed(hot)

        await until(is_so, "each pod on a hot node has a cost, and no other one", 200)

    async def writes(self) -> int:
        """How many pods dynsched wrote; each write changes what it may, and no more."""
        found = [
            write
            for write in await self.cluster.writes("pods")
            if write.user_agent.startswith("dynsched/")
        ]
        for write in found:
            metadata = write.body["metadata"]
            assert (write.verb, write.body.keys()) == ("patch", {"metadata"})
            assert metadata.keys() == {"resourceVersion", "annotations"}
            assert metadata["annotations"].keys() <= OURS
        return len(found)


def is_ready(pod: Doc) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


@asynccontextmanager
async def kubelets(cluster: EnvtestCluster) -> AsyncIterator[None]:
    """What kubelets say of pods that were bound: they run."""

    async def run(pod: Doc) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T12:00:00Z"}
        started = {"phase": "Running", "conditions": [ready], "containerStatuses": [STARTED]}
        path = f"{PODS}/{pod['metadata']['name']}/status"
        await cluster.patch(path, {"status": started})

    async def follow() -> None:
        while True:
            bound = "spec.nodeName!=,status.phase=Pending"
            pods = (await cluster.get(PODS, fieldSelector=bound, resourceVersion="0")).ok["items"]
            for first in range(0, len(pods), 10):
                await asyncio.gather(*map(run, pods[first : first + 10]))
            await asyncio.sleep(0.2)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def granted(cluster: EnvtestCluster, folder: Path) -> Iterator[Path]:
    """The kubeconfig of dynsched's own account, with the rights of the component and its policy."""
    kubectl = Kubectl(cluster.kubeconfig)
    component = COMPONENTS / "scale-down"
    for path in (
        *(BASE / f"{name}.yaml" for name in ("namespace", "serviceaccount", "rbac")),
        *(component / f"{name}.yaml" for name in ("rbac", "policy")),
    ):
        kubectl("apply", "-f", path)
    token = kubectl.token("dynsched", "dynsched")
    yield cluster.servers.kubeconfig(folder / "kubeconfig-account", token)
    kubectl("delete", "-f", component / "policy.yaml")


@asynccontextmanager
async def no_dynsched() -> AsyncIterator[None]:
    yield None


async def play(
    envtest: Envtest, cluster: EnvtestCluster, folder: Path, plan: Plan, account: Path | None
) -> Outcome:
    """``account`` None: without dynsched."""
    scaled = Scaled(cluster, plan)
    cool = {f"n{number}": 20.0 for number in range(plan.nodes)}
    stop = envtest.start_controllers("deployment-controller", "replicaset-controller")
    try:
        async with FakePrometheus() as prometheus, kubelets(cluster):
            with scheduler(envtest):
                await set_loads(cluster, prometheus, cool)
                await scaled.create()
                content = rules(mark="none", scale_down=True)
                flags = ("--lease-namespace", "dynsched")
                running: Any = no_dynsched()
                if account is not None:
                    running = replica(
                        cluster, prometheus, folder, *flags, kubeconfig=account, content=content
                    )
                async with running as operator:
                    await _waves(scaled, prometheus, cool, operator)
                    if operator is not None:
                        await _switched_off(scaled, operator, folder)
    finally:
        stop()
        for what in ("deployments", "replicasets"):
            _ = (await cluster.delete(f"{APPS}/{what}")).ok
    return scaled.outcome


async def _waves(
    scaled: Scaled, prometheus: FakePrometheus, cool: dict[str, float], operator: Operator | None
) -> None:
    plan, outcome, began = scaled.plan, scaled.outcome, time.monotonic()
    for wave in range(plan.waves):
        hot = plan.hot_in(wave)
        prometheus.set(load=cool | dict.fromkeys(hot, HOT))
        if operator is not None:
            await operator.until_ready()
            await scaled.settled(hot)
            before = await scaled.writes()
            await some_ticks(operator, 10)
            outcome.while_steady += await scaled.writes() - before
        await scaled.wave(hot)
    outcome.minutes = (time.monotonic() - began) / 60
    outcome.writes = await scaled.writes()


async def _switched_off(scaled: Scaled, operator: Operator, folder: Path) -> None:
    file = folder / "rules.yaml"
    file.write_text(re.sub("scale_down: true", "scale_down: false", file.read_text()))
    await until_status(operator, lambda found: found["scale_down"]["pods"] == 0)
    scaled.outcome.left = sum((await scaled.costed()).values())
