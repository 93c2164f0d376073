"""One run on real kubelets: pods serve requests in containers. It is judged by the nodes' cgroups
and by the requests' latency.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from closedloop.account import pod_name
from closedloop.meters import Floats
from closedloop.modes import Doc, Mode
from closedloop.real import Loop, path_of, unless_gone
from closedloop.servers import PODS, Servers
from closedloop.workload import Kind, Pod, Scenario, draw
from closedloop.world import HOT

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))
sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "e2e"))

from archives import image_of
from cluster import NODES, EnvtestCluster
from cluster import Cluster as AnyCluster
from kubelets import CGROUPS, Kubelets
from operator_support import dynsched, until
from prometheus_support import RealPrometheus, result_of

CPU = 0.2
"""Cores of each node."""
NAMES = tuple(f"loop-{number}" for number in range(6))
CADVISOR, RESOURCE = "kubelet-cadvisor", "kubelet-resource"
SCRAPE, WINDOW = 10.0, 60.0
PODS_OF_NODE = f'container_cpu_usage_seconds_total{{job="{CADVISOR}",id=~"/[^/]+/kubepods"}}'
EXPR = f"max by (instance) (rate({PODS_OF_NODE}[1m])) / {CPU} * 100"
"""The node's load in percent: the use of its pods relative to CPU, not to the machine's size."""
OF_CONTAINERS = 'container_cpu_usage_seconds_total{container="app"}'
SERVE = "localhost/serve:1"
WORK = 0.001
"""CPU seconds per request."""
FOLDER = "/latencies"
"""Folder for latencies in the container."""
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_POLL = 2.0


def scenario(used: float, warm: float, seconds: float) -> Scenario:
    """Pods of two minutes that use a tenth of a node on average, and request a fortieth of it."""
    kind = Kind(mean=0.1, sigma=0.8, lives=120.0, cpu=CPU / 40, memory=float(2**23))
    return Scenario(
        "on kubelets",
        used=used,
        nodes=len(NAMES),
        cores=CPU,
        kinds=(kind,),
        scrape=SCRAPE,
        window=WINDOW,
        cadvisor=True,
        hours=seconds / 3600,
        warm=warm,
    )


def cluster(assets: Path, folder: Path) -> Kubelets:
    """A cluster, not started yet. The loop creates the pods of ReplicaSets, not a controller."""
    program, source = folder / "serve", Path(__file__).with_name("serve.c")
    subprocess.run(["cc", "-O2", "-static", "-o", program, source, "-lm"], check=True)
    image = image_of(folder, "serve", program.read_bytes())
    controllers = "*,-replicaset-controller"
    return Kubelets(assets, folder, [image], nodes=NAMES, cpu=CPU, controllers=controllers)


def prometheus(kubelets: Kubelets, folder: Path) -> RealPrometheus:
    """A Prometheus that scrapes the kubelets with the admin's token."""
    jobs = [
        {
            "job_name": job,
            "scheme": "https",
            "metrics_path": path,
            "authorization": {"credentials": kubelets.token},
            "tls_config": {"ca_file": kubelets.kubelets_ca},
            "static_configs": [
                {"targets": [f"{address}:10250"], "labels": {"instance": name}}
                for name, address in kubelets.nodes.items()
            ],
        }
        for job, path in ((CADVISOR, "/metrics/cadvisor"), (RESOURCE, "/metrics/resource"))
    ]
    return RealPrometheus(folder, jobs, interval=f"{SCRAPE:g}s")


class Cluster(EnvtestCluster):
    """Not emptied at the start, because the kubelets own the nodes and their Leases."""

    async def __aenter__(self) -> Self:
        await AnyCluster.__aenter__(self)
        # cAdvisor has no series of pods for a node without a pod.
        labels = {"app": "system"}
        arguments = ["0.001", f"{WORK}", "0", "/dev/null"]
        container = {"name": "system", "image": SERVE, "args": arguments}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": "system"}, "spec": spec}
        path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
        _ = (await self.post(path, body)).ok

        async def is_ready() -> bool:
            status = (await self.get(f"{path}/system")).ok["status"]
            return bool(status.get("numberReady") == len(NAMES))

        await until(is_ready, "each node has a pod")
        return self


@dataclass
class Judged:
    """Figures from the cgroups, for the time after the warm-up.

    ``hot``: share of node-time. ``used``: share of all CPU. ``throttled``: share of periods of
    100 ms in which a node was throttled. ``stopped``: seconds, summed over nodes and cores.
    ``on_hot``: of ``placed`` pods, those placed on a node that used more than HOT in the second
    before. ``requests``: number of requests; ``latency``: theirs in seconds, by quantile.
    """

    hot: float
    used: float
    throttled: float
    stopped: float
    on_hot: int
    placed: int
    requests: int = 0
    latency: dict[str, float] = field(default_factory=dict)


def judge(
    times: Sequence[float], readings: Floats, bound: Iterable[tuple[float, int]], warm: float
) -> Judged:
    """``readings``: the result of `read` at each of the times. ``bound``: for each pod, the time
    and the index of its node.
    """
    rises, spans = np.diff(readings, axis=0), np.diff(times)
    share = rises[:, :, 0] / spans[:, None] / CPU
    judged = np.array(times[:-1]) >= warm
    weights = spans[judged] / spans[judged].sum()
    periods, throttled, stopped = rises[judged][:, :, 1:].sum(axis=(0, 1)).tolist()
    late = [(at, place) for at, place in bound if at >= warm]
    before = [int(np.searchsorted(times, at, "right")) - 2 for at, _ in late]
    return Judged(
        hot=float(weights @ (share[judged] > HOT).mean(axis=1)),
        used=float(weights @ share[judged].mean(axis=1)),
        throttled=throttled / max(periods, 1),
        stopped=stopped,
        on_hot=sum(
            bool(share[row, place] > HOT) for row, (_, place) in zip(before, late, strict=True)
        ),
        placed=len(late),
    )


def read(names: Iterable[str]) -> list[list[float]]:
    """For each node: CPU seconds, periods, throttled periods, and throttled seconds."""
    found = []
    for name in names:
        used = int((CGROUPS / "cpuacct" / name / "cpuacct.usage").read_text())
        lines = (CGROUPS / "cpu" / name / "cpu.stat").read_text().splitlines()
        stat = {key: int(value) for key, value in (line.split() for line in lines)}
        throttled = (stat["nr_periods"], stat["nr_throttled"], stat["throttled_time"] / 1e9)
        found.append([used / 1e9, *throttled])
    return found


def latencies(folder: Path, begin: float, end: float) -> Floats:
    """Seconds until the response, for the requests that arrived from ``begin`` to ``end``.

    The clock is that of the event loop.
    """
    lines = (file.read_text().splitlines() for file in folder.iterdir())
    rows = [line.split() for each in lines for line in each]
    return np.array([float(took) for came, took in rows if begin <= float(came) < end])


@dataclass
class Times:
    """Times of one pod, in seconds of the event loop's clock.

    ``seen``: by job, when Prometheus first had its CPU time.
    """

    bound: float
    runs: float | None = None
    ends: float | None = None
    gone: float | None = None
    seen: dict[str, float] = field(default_factory=dict)


class OnKubelets(Loop):
    """As on the other servers, but pods run once a kubelet reports it, and end once it has ended
    them. The account, which knows what each pod wants, serves the oracle and the figure ``beyond``.
    """

    def __init__(
        self, servers: Servers, scenario: Scenario, seed: int, mode: Mode, owners: Mapping[str, Doc]
    ) -> None:
        super().__init__(servers, scenario, seed, mode, owners)
        self._world.names = list(NAMES)
        self._places = {name: place for place, name in enumerate(NAMES)}
        self._runs: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._marks: dict[str, Any] = {}
        self._times: list[float] = []
        self._readings: list[list[list[float]]] = []
        self._latencies = Path(tempfile.mkdtemp(prefix="latencies-", dir=servers.folder))
        self.pods: dict[str, Times] = {}
        self.ages: list[float] = []
        """Age in seconds of the nodes' newest samples, at each query."""
        self.errors: list[float] = []
        """Percentage points between the rule's value and a node's use in the last 10 s."""
        self.loads: list[float] = []
        """The machine's load average, for all cores together."""

    async def measure(self, pods: list[Pod], pids: Mapping[str, int]) -> Judged:
        """Play the run, and judge the readings taken during it."""
        for node in (await self._cluster.get(NODES)).ok["items"]:
            self._is_ours(node)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (self._read(), self._poll())]
            await self.play(pods, pids)
            for task in tasks:
                task.cancel()
        times = [at - self._began for at in self._times]
        bound = [
            (each.bound - self._began, self._places[await self._bindings[uid]])
            for uid, each in self.pods.items()
        ]
        judged = judge(times, np.array(self._readings), bound, self._scenario.warm)
        begin, end = self._began + self._scenario.warm, self._began + self._scenario.seconds
        took = latencies(self._latencies, begin, end)
        judged.requests = len(took)
        judged.latency = {name: float(np.quantile(took, at)) for name, at in QUANTILES.items()}
        return judged

    async def _read(self) -> None:
        while True:
            self._times.append(self._loop.time())
            self._readings.append(read(NAMES))
            await asyncio.sleep(1 - self._loop.time() % 1)

    async def _poll(self) -> None:
        """Query Prometheus repeatedly."""
        url = self._servers.prometheus.url
        while True:
            await asyncio.sleep(_POLL)
            exprs = (
                f"time() - timestamp({PODS_OF_NODE})",
                EXPR,
                f"group by (job, pod) ({OF_CONTAINERS})",
            )
            ages, values, known = [await asyncio.to_thread(result_of, url, each) for each in exprs]
            self.ages += [float(each["value"][1]) for each in ages]
            self.loads.append(os.getloadavg()[0])
            if len(self._readings) > 10:
                now, then = np.array(self._readings[-1]), np.array(self._readings[-11])
                used = (now - then)[:, 0] / (self._times[-1] - self._times[-11]) / CPU
                for each in values:
                    true = 100 * used[self._places[each["metric"]["instance"]]]
                    self.errors.append(abs(float(each["value"][1]) - true))
            for one in (each["metric"] for each in known):
                times = self.pods.get(one["pod"].removeprefix(pod_name("")))
                if times is not None:
                    times.seen.setdefault(one["job"], self._loop.time())

    async def _scraped(self) -> None:
        await asyncio.to_thread(self._servers.prometheus.wait_for, EXPR, len(NAMES))

    def _body(self, pod: Pod) -> Doc:
        body = super()._body(pod)
        del body["spec"]["terminationGracePeriodSeconds"]  # with 0, the pod vanishes first
        seed = zlib.crc32(pod.uid.encode())  # the same requests in each mode
        arguments = [f"{pod.uses:.6f}", f"{WORK}", f"{seed}", f"{FOLDER}/{pod.uid}"]
        mount = {"name": "latencies", "mountPath": FOLDER}
        container = {"image": SERVE, "args": arguments, "volumeMounts": [mount]}
        body["spec"]["containers"][0] |= container
        where = {"path": str(self._latencies), "type": "Directory"}
        body["spec"]["volumes"] = [{"name": "latencies", "hostPath": where}]
        return body

    async def _start(self, pod: Pod) -> None:
        await self._runs[pod.uid].wait()

    async def _remove(self, pod: Pod) -> None:
        if pod.uid in self.pods:
            self.pods[pod.uid].ends = self._loop.time()
        unless_gone(await self._cluster.delete(path_of(pod)))

    def _see(self, what: str, pod: Doc) -> None:
        super()._see(what, pod)
        uid, now = pod["metadata"]["name"].removeprefix(pod_name("")), self._loop.time()
        times = self.pods.setdefault(uid, Times(now))
        if pod["status"].get("phase") == "Running" and times.runs is None:
            times.runs = now
            self._runs[uid].set()
        if what == "DELETED":
            times.gone = now

    def _is_ours(self, node: Doc) -> bool:
        meta = node["metadata"]
        marks = (meta.get("labels"), meta.get("annotations"), node["spec"].get("taints"))
        before, self._marks[meta["name"]] = self._marks.get(meta["name"]), marks
        return before != marks

    def lags(self) -> dict[str, list[float]]:
        """Delays in seconds, by kind."""
        samples: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in result_of(self._servers.prometheus.url, f"{OF_CONTAINERS}[15m]"):
            key = one["metric"]["job"], one["metric"]["pod"].removeprefix(pod_name(""))
            samples[key] += [float(at) for at, _ in one["values"]]
        wall = time.time() - self._loop.time()
        found: dict[str, list[float]] = defaultdict(list)
        for uid, each in self.pods.items():
            if each.runs is None:
                continue
            found["bound to running"].append(each.runs - each.bound)
            if each.ends is not None and each.gone is not None:
                found["deleted to gone"].append(each.gone - each.ends)
            for job in (CADVISOR, RESOURCE):
                if job in each.seen:
                    found[f"running to known, {job}"].append(each.seen[job] - each.runs)
                elif each.ends is not None:
                    found[f"never known, lived, {job}"].append(each.ends - each.runs)
                at = sorted(samples.get((job, uid), ()))
                found[f"between samples, {job}"] += np.diff(at).tolist()
                if at and each.ends is not None:
                    found[f"end to last sample, {job}"].append(at[-1] - wall - each.ends)
        return {**found, "age of a node's value": self.ages}

    def told_after_their_end(self) -> dict[str, list[int]]:
        """By job: of the pods gone for more than 30 s, how many still have a value; and all."""
        now = self._loop.time()
        ended = {
            uid for uid, each in self.pods.items() if each.gone is not None and now - each.gone > 30
        }
        found = {job: [0, len(ended)] for job in (CADVISOR, RESOURCE)}
        known = result_of(self._servers.prometheus.url, f"group by (job, pod) ({OF_CONTAINERS})")
        for one in (each["metric"] for each in known):
            found[one["job"]][0] += one["pod"].removeprefix(pod_name("")) in ended
        return found


async def play(
    servers: Servers, scenario: Scenario, seed: int, mode: Mode, content: Doc | None
) -> tuple[OnKubelets, Judged]:
    """Play one run, and remove everything that it created."""
    pods = draw(scenario, seed)
    loop = OnKubelets(servers, scenario, seed, mode, await servers.owners(pods))
    try:
        async with servers.placing(mode, content, packs=scenario.packs) as pids:
            judged = await loop.measure(pods, pids)
    finally:
        await empty(servers.cluster)
    return loop, judged


async def empty(cluster: EnvtestCluster) -> None:
    """Delete all pods and marks."""
    for path in (PODS, "/apis/apps/v1/namespaces/default/replicasets"):
        _ = (await cluster.delete(path)).ok
    code, output = await dynsched("prune", "--kubeconfig", str(cluster.kubeconfig))
    assert code == 0, output

    async def is_empty() -> bool:
        return not (await cluster.get(PODS)).ok["items"]

    await until(is_empty, "the pods are gone")
