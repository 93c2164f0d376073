"""The phases of the measurement of one `dynsched run`, in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from dynsched.sources.prometheus.decode import (
    Clocks,
    answer_limit,
    read_vector,
)
from scaling.asking import UID, Client, times
from scaling.cluster import Readings, node_names
from scaling.processes import Durations, cpu_seconds, get, memory, serving, start

TICK: Final = "dynsched_tick_duration_seconds"
TARGETS: Final = {
    "start": ("5 s", "12 s", "60 s"),
    "memory": ("110 MB", "150 MB", "400 MB"),
    "steady": ("0.04 s", "0.12 s", "0.5 s"),
    "changing": ("0.06 s", "0.2 s", "0.8 s"),
    "stall": ("50 ms", "50 ms", "50 ms"),
    "prioritize": ("0.6 ms", "2 ms", "10 ms"),
    "cpu": ("1 %", "", ""),
}
"""Targets for 5,000, 15,000 and 65,000 nodes."""
SIZES: Final = (5_000, 15_000, 65_000)


class Row(NamedTuple):
    """A row of the table."""

    what: str
    measured: str
    target: str = ""


@dataclass(slots=True)
class Bench:
    """One dynsched instance, the servers around it, and the measured rows."""

    nodes: int
    rules: int
    interval: float
    session: aiohttp.ClientSession
    url: str
    pid: int
    api: str
    api_pid: int
    prometheus: str
    prometheus_pid: int
    started: float
    servers_before: float
    """CPU seconds of the servers when dynsched was started."""
    rows: list[Row] = field(default_factory=list)
    _slowest: dict[str, float] = field(default_factory=dict)

    def found(self, what: str, measured: str, target: str = "") -> None:
        """Add a row and print it at once. ``target``: a key of TARGETS."""
        goals = TARGETS.get(target)
        goal = goals[SIZES.index(self.nodes)] if goals and self.nodes in SIZES else ""
        self.rows.append(Row(what, measured, goal))
        print(f"{time.monotonic() - self.started:6.0f} s  {what}: {measured}", flush=True)

    async def durations(self) -> Durations:
        """The histograms of durations in `/metrics` now."""
        return Durations((await get(self.session, f"{self.url}/metrics"))[1])

    async def ticks(self) -> int:
        """Number of ticks that have queried Prometheus."""
        return int((await get(self.session, f"{self.prometheus}/ticks"))[1])

    async def after(self, ticks: int) -> None:
        """Wait until ``ticks`` more ticks are done, that is, until the next one queries."""
        end = await self.ticks() + ticks + 1
        while await self.ticks() < end:  # noqa: ASYNC110 (another process has no event)
            await asyncio.sleep(0.2)

    async def writes(self) -> list[float]:
        """The time of each write to a node, in Unix seconds."""
        written: list[float] = json.loads((await get(self.session, f"{self.api}/writes"))[1])
        return written

    # --- the phases ---

    async def start(self) -> None:
        """Measure from the start of the process until it is ready."""
        url = f"{self.url}/readyz"
        while (await get(self.session, url))[0] != 200:
            await asyncio.sleep(0.05)
            if time.monotonic() - self.started > 600:
                raise TimeoutError((await get(self.session, url))[1])
        ready = time.monotonic() - self.started
        servers = cpu_seconds(self.api_pid, self.prometheus_pid) - self.servers_before
        self.found("start of the process to ready", f"{ready:.1f} s")
        self.found("  the servers' CPU time meanwhile", f"{servers:.1f} s")
        self.found("  start to ready, the servers' taken off", f"{ready - servers:.1f} s", "start")
        self.found("  its own CPU time meanwhile", f"{cpu_seconds(self.pid):.1f} s")

    async def settle(self, seconds: float) -> None:
        """Measure while no node changes state; only the second half of the time counts."""
        began = time.monotonic()
        await asyncio.sleep(seconds / 2)
        await self.after(0)
        before = await self.durations()
        await asyncio.sleep(1)
        first, used = time.monotonic(), cpu_seconds(self.pid)
        await self.after(max(1, round((began + seconds - first) / self.interval)))
        took, used = time.monotonic() - first, cpu_seconds(self.pid) - used
        resident, peak = memory(self.pid)
        now = await self.durations()
        ticks = now.ticks(before)
        self.found(f"resident memory after {seconds:.0f} s", f"{resident:.0f} MB", "memory")
        self.found("  its peak until then", f"{peak:.0f} MB")
        self.found(
            f"a steady tick beyond Prometheus, mean of {ticks}",
            f"{now.beyond_prometheus(before):.3f} s",
            "steady",
        )
        self.found("  with Prometheus", f"{now.mean(before, TICK):.2f} s")
        self.found("  CPU time of one, all threads", f"{used / took * self.interval:.2f} s")
        self.found(f"steady CPU, a tick every {self.interval:g} s", f"{used / took:.2%} of a core")
        share = used / took - parse_seconds(self.nodes) * self.rules / self.interval
        self.found("  beyond parsing Prometheus's answers", f"{share:.2%} of a core", "cpu")
        self.found("writes in steady state", f"{len(await self.writes())}")

    async def change(self, ticks: int) -> None:
        """Measure while another 1 % of the nodes change state at each tick, from now on."""
        await self.session.post(f"{self.prometheus}/drift?nodes={self.nodes // 100}")
        await self.after(0)
        before, used, began = await self.durations(), cpu_seconds(self.pid), time.monotonic()
        await self.after(ticks)
        used, took = cpu_seconds(self.pid) - used, time.monotonic() - began
        now = await self.durations()
        self.found(
            f"1 % of the nodes change state: a tick, mean of {now.ticks(before)}",
            f"{now.beyond_prometheus(before):.3f} s",
            "changing",
        )
        self.found("  CPU time of one, all threads", f"{used / took * self.interval:.2f} s")

    async def stalls(self, seconds: float) -> None:
        """Measure the latency of /healthz while ticks go on and all pages are requested."""
        async with serving("scaling.probe", "idle") as (_, idle):
            probes = [
                await start("scaling.probe", "ask", url, str(seconds))
                for url in (f"{self.url}/healthz", idle)
            ]
            asking = asyncio.create_task(self._ask_all_kinds())
            try:
                answers = await asyncio.gather(*(probe.communicate() for probe in probes))
            finally:
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asking
        busy, plain = (json.loads(output) for output, _ in answers)
        self.found(f"longest stall of the event loop in {seconds:.0f} s", _longest(busy), "stall")
        self.found("  the same of a server that does nothing", _longest(plain))
        slowest = sorted(self._slowest.items(), key=lambda item: -item[1])
        text = ", ".join(f"{path} {took:.2f} s" for path, took in slowest)
        self.found("  slowest answers meanwhile", text)

    async def _ask_all_kinds(self) -> None:
        """Request the pages one after the other, with pauses."""
        for path in self._kinds():
            began = time.monotonic()
            accept = {"Accept": "application/json"}
            async with self.session.get(f"{self.url}{path}", headers=accept) as response:
                async for _ in response.content.iter_any():
                    pass
            took = time.monotonic() - began
            self._slowest[path] = max(took, self._slowest.get(path, 0.0))
            await asyncio.sleep(0.2)

    def _kinds(self) -> Iterator[str]:
        paths = ("/metrics", "/status", "/page/data", "/nodes")
        yield from itertools.cycle(paths)

    async def prioritize(self, seconds: float) -> None:
        """Measure /prioritize with all names from one client, while ticks go on."""
        split = urlsplit(self.url)
        pod = {"metadata": {"name": "p", "namespace": "d", "uid": UID}, "spec": {}}
        names = node_names(self.nodes)
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        async with Client(split.hostname or "", split.port or 80, "") as client:
            found = sorted(await times(client, "/prioritize", body, seconds))
        p99 = found[int(len(found) * 0.99)]
        self.found(
            "/prioritize of all names",
            f"p50 {statistics.median(found) * 1e3:.2f} ms, p99 {p99 * 1e3:.1f} ms",
            "prioritize",
        )

    async def mark(self, marks: int) -> None:
        """Make ``marks`` nodes hot between two ticks, and measure the writes of their marks."""
        await self.session.post(f"{self.prometheus}/drift?nodes=0")
        before, used = len(await self.writes()), cpu_seconds(self.api_pid)
        await self.session.post(f"{self.prometheus}/heat?nodes={marks}")
        end = time.monotonic() + 120
        while len(written := (await self.writes())[before:]) < marks:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(written)} of {marks} nodes were marked")
            await asyncio.sleep(0.1)
        used = cpu_seconds(self.api_pid) - used
        self.found(f"{marks} nodes marked in", f"{max(written) - min(written):.1f} s")
        self.found("  the API server's CPU time meanwhile", f"{used:.1f} s")
        await self.after(1)
        beyond = len(await self.writes()) - before - marks
        self.found("  writes beyond one a node", f"{beyond}")
        self.found("  resident memory afterwards", f"{memory(self.pid)[0]:.0f} MB")


def _longest(found: Iterable[float]) -> str:
    ordered = sorted(found)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"{ordered[-1] * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms of {len(ordered)}"


def parse_seconds(nodes: int) -> float:
    """CPU seconds to parse one answer."""
    body, limit = Readings(nodes).answer(), answer_limit(nodes, 1)
    found = []
    for _ in range(5):
        answer = bytearray(body)
        began = time.process_time()
        read_vector(answer, Clocks(received=time.time()), limit)
        found.append(time.process_time() - began)
    return min(found)
