"""Traces a sample through the modules of dynsched, from its query to the response to the patch.

    python benchmarks/sample_trace.py [--calls]

It runs a tick of the evaluator of `dynsched run`, with the real Prometheus source and API client,
against a simulated API server and a small Prometheus on loopback. One of two nodes is marked. It
was marked some ticks before too, so that nothing is imported or initialised for the first time. It
runs once with a plain rule, and once with the expected load and a pod that was just bound.

An entry is a call of a function by another module of `dynsched/`, or by none, for example by the
event loop or at the start of a thread. Resuming a coroutine is not an entry, nor is a call that
Python makes for an operator or for a new object. ``--calls`` prints each entry.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from cluster import SimCluster
from fake_prometheus import FakePrometheus
from operator_support import until
from pods_support import pod

import dynsched
import dynsched_sim
from dynsched.controller.evaluator import Evaluator
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.tick import Tick
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.events import NodeEvents
from dynsched.kube.leader import NoElection
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import FixedRules
from dynsched.rules.parse import parse_rules
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.util.latest import Latest
from dynsched_sim.examples import make_node

ROOT = str(Path(dynsched.__file__).parent) + "/"
SIMULATOR = str(Path(dynsched_sim.__file__).parent) + "/"
REPORTED = "controller/reporting"
"""The module that reports what was written; the trace ends there."""
RULE: dict[str, Any] = {"name": "node-cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}
EXPECTED = {"by": "expected", "lag": "1m"}


class Entry(NamedTuple):
    module: str
    function: str
    caller: str


def _module(file: str) -> str:
    return file.removeprefix(ROOT).removesuffix(".py")


class Trace:
    """Records the entries while it is active, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seen: set[FrameType] = set()  # keeps frames alive, so that no identity is reused

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or frame in self._seen or not code.co_filename.startswith(ROOT):
            return
        self._seen.add(frame)
        if code.co_name.startswith(("__", "<")) and code.co_name != "<lambda>":
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith((ROOT, SIMULATOR)):
            caller = caller.f_back
        origin = "" if caller is None else caller.f_code.co_filename
        if origin != code.co_filename and not origin.startswith(SIMULATOR):
            names = [_module(code.co_filename), code.co_name, _module(origin)]
            self.entries.append(Entry(*names))


async def trace(rule: dict[str, Any], folder: Path) -> list[Entry]:
    """The entries of the third tick, in which worker-0 gets its mark."""
    rules = FixedRules(parse_rules({"rules": [rule]}))
    stop = asyncio.Event()
    async with SimCluster(folder) as cluster, FakePrometheus() as prometheus:
        for number in range(2):
            await cluster.create_node(make_node(f"worker-{number}", number))
        credentials = await load_credentials(str(cluster.kubeconfig))
        client, api = KubeClient(credentials), KubeApi(credentials)
        known = await NodeCluster.listed(client)
        source = PrometheusSource(PrometheusConfig(prometheus.url))
        pods = PodTracking(api, rules, known, source)
        watch = asyncio.create_task(pods.run(stop))
        evaluator = Evaluator(
            rules,
            queries=Queries({"prometheus": source}),
            histories={"prometheus": source},
            cluster=known,
            reporter=Reporter(NodeEvents(client)),
            leadership=NoElection(),
            publish=Latest[Tick]().publish,
            pods=pods,
        )
        if "by" in rule:
            await until(lambda: pods.known().running is not None, "pods are listed")
            await cluster.post("/api/v1/namespaces/default/pods", pod("new", "worker-0", cpu="1"))
            await until(lambda: pods.sequence, "the pod is known")
        stop.set()
        await watch
        for value in (95, 10, 95):
            prometheus.set(cpu={"worker-0": value, "worker-1": 10})
            await asyncio.sleep(0.5)  # until the Events of the previous tick are written
            # A new pool, because only threads that start later are traced.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            with Trace() as found:
                tick = await evaluator.tick()
        assert tick is not None
        assert [patch.node for patch in tick.writes.applied] == ["worker-0"], tick.error
        await asyncio.gather(client.close(), api.close())
    end = next(at for at, entry in enumerate(found.entries) if entry.module == REPORTED)
    return found.entries[:end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", action="store_true", help="print each entry")
    options = parser.parse_args()
    logging.disable()
    for title, rule in (("measured", RULE), ("expected", RULE | EXPECTED)):
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(trace(rule, Path(folder)))
        if options.calls:
            for module, name, caller in found:
                print(f"{caller or '(none)'} -> {module}.{name}")
        counts = Counter(module for module, *_ in found)
        table = Table(
            "module", "entries", title=f"{title}: {len(counts)} modules, {len(found)} entries"
        )
        for module, number in counts.most_common():
            table.add_row(module, str(number))
        Console().print(table)


if __name__ == "__main__":
    main()
