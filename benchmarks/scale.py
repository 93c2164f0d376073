"""dynsched against a large cluster: memory, tick, start, and a thousand marks.

    python benchmarks/scale.py [--nodes 5000] [--seconds 60] [--rules 3]

The API server is the simulator's and Prometheus is a stand-in that answers from memory, both in
this process; what is measured is the separate process `dynsched run`, the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import yaml
from aiohttp import web
from rich.console import Console
from rich.table import Table

from dynsched.sim.apiserver.server import ApiServer
from dynsched.sim.nodes import make_node

NODE_BYTES = 9_000
INTERVAL = 5.0
HOT, COOL = 95.0, 20.0


class Prometheus:
    """Answers every instant query with one sample a node, from memory."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.values = dict.fromkeys(addresses, COOL)
        self._answer: bytes | None = None

    def heat(self, count: int) -> None:
        """Make the first ``count`` nodes hot."""
        self.values = {
            address: HOT if number < count else COOL
            for number, address in enumerate(self.addresses)
        }
        self._answer = None

    async def past(self, request: web.Request) -> web.Response:
        """The handler of ``/api/v1/query_range``: cool all along."""
        form = await request.post()
        start, end, step = (float(str(form[name])) for name in ("start", "end", "step"))
        times = [start + step * number for number in range(int((end - start) / step + 1.001))]
        values = [[at, str(COOL)] for at in times]
        result = [
            {"metric": {"instance": f"{address}:9100"}, "values": values}
            for address in self.addresses
        ]
        data = {"resultType": "matrix", "result": result}
        body = msgspec.json.encode({"status": "success", "data": data})
        return web.Response(body=body, content_type="application/json")

    async def answer(self, _request: web.Request) -> web.Response:
        """The handler of ``/api/v1/query``."""
        if self._answer is None:
            now = time.time()
            self._answer = msgspec.json.encode(
                {
                    "status": "success",
                    "data": {
                        "resultType": "vector",
                        "result": [
                            {"metric": {"instance": f"{address}:9100"}, "value": [now, str(value)]}
                            for address, value in self.values.items()
                        ],
                    },
                }
            )
        return web.Response(body=self._answer, content_type="application/json")


@contextlib.asynccontextmanager
async def serve(prometheus: Prometheus) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/api/v1/query", prometheus.answer)
    app.router.add_route("*", "/api/v1/query_range", prometheus.past)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def memory(pid: int) -> tuple[float, float]:
    """Resident memory now, and its peak, in MB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    try:
        async with session.get(url) as response:
            return response.status, await response.text()
    except aiohttp.ClientError:
        return 0, ""


def metric(text: str, name: str) -> float:
    """The sum of all series of a metric."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in values)


def slowest(text: str, name: str) -> float:
    """The mean of a histogram, in the series where it is the highest."""
    sums = re.findall(rf"^{name}_sum({{[^}}]*}}) (\S+)$", text, re.MULTILINE)
    counts = dict(re.findall(rf"^{name}_count({{[^}}]*}}) (\S+)$", text, re.MULTILINE))
    return max(float(total) / float(counts[labels]) for labels, total in sums)


async def measure(options: argparse.Namespace, folder: Path) -> list[tuple[str, str, str]]:
    names = [f"node-{number:05d}" for number in range(options.nodes)]
    nodes = [make_node(name, number, size=NODE_BYTES) for number, name in enumerate(names)]
    prometheus = Prometheus([node["status"]["addresses"][0]["address"] for node in nodes])
    async with ApiServer() as api, serve(prometheus) as url:
        for node in nodes:
            api.objects.create("nodes", node)
        nodes.clear()
        rules = folder / "rules.yaml"
        one = {"expr": "up", "threshold": 90, "clear_threshold": 80, "keep_firing_for": "1m"}
        rules.write_text(
            yaml.safe_dump(
                {
                    "guard": {"max_marked": "50%", "max_releases": "100%"},
                    "rules": [
                        # The first one marks early too, and so the pods are watched.
                        {"name": f"rule-{n}", **one, **({"early": {}} if n == 0 else {})}
                        for n in range(options.rules)
                    ],
                }
            ),
            encoding="utf-8",
        )
        port = free_port()
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "dynsched", "run", "--kubeconfig", str(api.kubeconfig(folder / "config"))),
            *("--prom", url, "--rules", str(rules), "--interval", str(INTERVAL)),
            *("--webaddr", f"127.0.0.1:{port}", "--log-level", "warning"),
        )
        try:
            async with aiohttp.ClientSession() as session:
                return await follow(options, api, prometheus, session, process.pid, port, started)
        finally:
            process.terminate()
            began = time.monotonic()
            await process.wait()
            print(f"stopped in {time.monotonic() - began:.1f} s, exit code {process.returncode}")


async def follow(  # noqa: PLR0917 - the parts of one bench
    options: argparse.Namespace,
    api: ApiServer,
    prometheus: Prometheus,
    session: aiohttp.ClientSession,
    pid: int,
    port: int,
    started: float,
) -> list[tuple[str, str, str]]:
    base = f"http://127.0.0.1:{port}"
    while (await get(session, f"{base}/readyz"))[0] != 200:
        await asyncio.sleep(0.05)
        if time.monotonic() - started > 120:
            raise TimeoutError((await get(session, f"{base}/readyz"))[1])
    ready = time.monotonic() - started
    await asyncio.sleep(options.seconds)
    resident, peak = memory(pid)
    used = cpu_seconds(pid)
    _, text = await get(session, f"{base}/metrics")
    ticks = metric(text, "dynsched_tick_duration_seconds_count")
    tick = metric(text, "dynsched_tick_duration_seconds_sum") / ticks
    query = slowest(text, "dynsched_rule_query_duration_seconds")
    writes_before = sum(r.is_write and r.resource == "nodes" for r in api.requests)

    prometheus.heat(options.marks)
    done = []
    while len(done) < options.marks:
        await asyncio.sleep(0.05)
        done = [record.time for record in api.requests if record.verb == "patch"]
    marking = max(done) - min(done)
    await asyncio.sleep(2 * INTERVAL)
    marked = memory(pid)
    writes = sum(r.is_write and r.resource == "nodes" for r in api.requests) - options.marks
    return [
        ("start of the process to ready", f"{ready:.1f} s", "10 s"),
        (f"resident memory after {options.seconds:.0f} s", f"{resident:.0f} MB", "130 MB"),
        ("  its peak until then", f"{peak:.0f} MB", ""),
        (f"a tick, mean of {ticks:.0f}", f"{tick:.2f} s", ""),
        ("  without Prometheus's time (slowest rule)", f"{tick - query:.2f} s", "0.5 s"),
        ("CPU time until then", f"{used:.1f} s", ""),
        ("writes in steady state", f"{writes_before}", "0"),
        (f"{options.marks} nodes marked in", f"{marking:.1f} s", "5 s"),
        ("  writes beyond one a node", f"{writes}", "0"),
        ("  resident memory afterwards", f"{marked[0]:.0f} MB", "130 MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--marks", type=int, default=1000)
    parser.add_argument("--rules", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(options, Path(folder)))
    title = f"{options.nodes} nodes, {options.rules} rules"
    table = Table("what", "measured", "target", title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")


if __name__ == "__main__":
    main()
