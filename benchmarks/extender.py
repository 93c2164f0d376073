"""How fast the scheduler's questions are answered, and in how much memory.

    python benchmarks/extender.py [--nodes 5000] [--seconds 4] [--url http://host:9000]

Starts the HTTP server in a process of its own, with the readings of a synthetic cluster (a tenth
of its nodes is hot), and asks it as a scheduler does: over connections that stay open, the same
NodeNames for another pod each time; about 500 of them, where each pod is assumed on the best node;
with up to 5,000 whole Nodes (9 KB each); and with a pod bound between any two questions, so that no
answer can be kept. With --url it asks a running dynsched instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from asking import UID, Client, times
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from snapshots import NOON, Scene

from dynsched.core.model import Node
from dynsched.core.pods import BoundPod
from dynsched.core.recent import RecentPods
from dynsched.web.api import make_app
from dynsched.web.extender.answers import Extender
from dynsched.web.extender.scoring import ScoringSnapshot
from dynsched.web.metrics import Metrics
from dynsched.web.server import WebServer, parse_address
from dynsched.web.snapshots import SnapshotStore

TARGET = "p50 1.2 ms, p99 3 ms"
A_SECOND = "1000 a second"
MEMORY = 64 << 20
"""What `--extender-memory 64` allows: for 5,000 whole Nodes."""
SOME = 500
"""What kube-scheduler asks about in a cluster of 5,000 nodes, unless it is told otherwise."""

WHOLE = 5000
"""Whole Nodes that fit into MEMORY."""

RULES = {
    "rules": [
        {"name": "node-cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"},
        {"name": "node-mem-usage", "expr": "mem", "threshold": 85, "resource": "memory"},
    ],
    "extender": {
        "reject": ["node-mem-usage"],
        "profiles": {
            "default": {"score": {"node-cpu": 1, "node-mem-usage": 1}},
            "relative": {"score": {"node-mem-usage": 1}, "method": "relative"},
            "least": {"score": {"node-cpu": 1}, "method": "least"},
        },
    },
}


def node_names(count: int) -> list[str]:
    return [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(count)]


async def serve(count: int, *, bursts: bool) -> None:
    """The server alone; prints its port. ``bursts``: another pod is bound before each question."""
    rng = random.Random(7)
    names = node_names(count)
    room = {"cpu": 16.0, "memory": 64 * 2.0**30}
    nodes = {name: Node(name, allocatable=room) for name in names}
    scene = Scene(RULES, nodes.values())
    loads = {
        name: rng.uniform(86, 99) if rng.random() < 0.1 else rng.uniform(5, 79) for name in names
    }
    bound = RecentPods()

    class Bursting(Extender):
        def prioritize(self, body: bytes | bytearray) -> bytes:
            now = time.monotonic()
            bound.add(BoundPod(str(now), rng.choice(names)), now)
            return super().prioritize(body)

    extender = (Bursting if bursts else Extender)(
        nodes=lambda: nodes,
        synced=lambda: True,
        rules=lambda: scene.rule_set.extender,
        clock=time.monotonic,
        bound=bound,
    )
    snapshot = scene.tick(NOON, node_cpu=loads, node_mem_usage=loads)
    extender.take(ScoringSnapshot(snapshot))
    snapshots = SnapshotStore(
        clock=time.monotonic,
        interval=10.0,
        source="",
        synced=lambda: True,
        metrics=Metrics(CollectorRegistry()),
    )
    app = make_app(snapshots, extender, memory=MEMORY)
    async with WebServer(app, parse_address("127.0.0.1:0")) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


async def rate(make: Callable[[], Client], path: str, body: bytes, seconds: float) -> float:
    """Questions a second of eight clients."""

    async def one() -> int:
        async with make() as client:
            return len(await times(client, path, body, seconds))

    return sum(await asyncio.gather(*(one() for _ in range(8)))) / seconds


def names_body(count: int, scheduler: str = "default-scheduler") -> bytes:
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": UID},
        "spec": {"schedulerName": scheduler},
    }
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": node_names(count)}).encode()


def nodes_body(count: int) -> bytes:
    """Whole Nodes of 9 KB, as a cloud's are: most of it images."""
    images = [
        {"names": [f"registry.example.com/team/image-{n}@sha256:{n:064x}"], "sizeBytes": n * 10**7}
        for n in range(60)
    ]
    items = [
        {
            "metadata": {
                "name": name,
                "labels": {f"topology.example.com/key-{k}": f"value-{k}" for k in range(15)},
            },
            "spec": {"providerID": f"aws:///eu-west-1a/{name}"},
            "status": {"allocatable": {"cpu": "15890m", "memory": "63Gi"}, "images": images},
        }
        for name in node_names(count)
    ]
    pod = {"metadata": {"name": "p"}, "spec": {"schedulerName": "default-scheduler"}}
    return json.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": items}}).encode()


async def start(count: int, *, bursts: bool = False) -> tuple[asyncio.subprocess.Process, int]:
    flags = ["--serve", "--nodes", str(count), *(["--bursts"] if bursts else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *flags, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


async def stop(process: asyncio.subprocess.Process | None) -> None:
    if process is not None and process.returncode is None:
        process.send_signal(signal.SIGKILL)
        await process.wait()


def peak(pid: int) -> float:
    """The most memory that the process ever had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) / 1024


def row(table: Table, what: str, found: list[float], goal: str = "") -> None:
    found.sort()
    p50, p99 = statistics.median(found), found[int(len(found) * 0.99)]
    table.add_row(what, f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms", goal)


async def run(options: argparse.Namespace) -> Table:
    table = Table("question", "found", "target", title=f"{options.nodes} nodes")
    process, pid = None, None
    if options.url:
        split = urlsplit(options.url)
        host, port, prefix = split.hostname or "localhost", split.port or 80, split.path.rstrip("/")
    else:
        process, port = await start(options.nodes)
        host, prefix, pid = "127.0.0.1", "", process.pid

    def client() -> Client:
        return Client(host, port, prefix)

    body = names_body(options.nodes)
    try:
        async with client() as one:
            for path in ("/filter", "/prioritize"):
                row(
                    table,
                    f"{path}, one client",
                    await times(one, path, body, options.seconds),
                    TARGET,
                )
            for scheduler in ("relative", "least"):
                other = names_body(options.nodes, scheduler)
                found = await times(one, "/prioritize", other, options.seconds)
                row(table, f"/prioritize, {scheduler}, one client", found, TARGET)
            some = names_body(min(SOME, options.nodes), "least")
            found = await times(one, "/prioritize", some, options.seconds)
            row(table, f"/prioritize, {SOME} of them, least, one client", found, TARGET)
        for path, asked, what in (
            ("/filter", body, ""),
            ("/prioritize", body, ""),
            ("/prioritize", some, f" {SOME} of them, least,"),
        ):
            found = await rate(client, path, asked, options.seconds)
            table.add_row(f"{path},{what} eight clients", f"{found:.0f} a second", A_SECOND)
        whole = nodes_body(min(WHOLE, options.nodes))
        for path in ("/filter", "/prioritize"):
            took = []
            async with client() as one:
                for _ in range(5):
                    began = time.perf_counter()
                    await one.ask(path, whole)
                    took.append(time.perf_counter() - began)
            size = f"{len(whole) / 1e6:.0f} MB"
            table.add_row(
                f"{path}, {size} of whole Nodes", f"{statistics.median(took):.2f} s", "0.30 s"
            )
        if pid is not None:
            table.add_row("memory at most, since its start", f"{peak(pid):.0f} MB", "300 MB")
    finally:
        await stop(process)
    if not options.url:
        process, port = await start(options.nodes, bursts=True)
        try:
            async with client() as one:
                found = await times(one, "/prioritize", body, options.seconds)
                row(table, "/prioritize, a pod bound before each", found)
        finally:
            await stop(process)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--url", help="a running dynsched to ask instead")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bursts", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.nodes, bursts=options.bursts))
    else:
        Console(width=100).print(asyncio.run(run(options)))


if __name__ == "__main__":
    main()
