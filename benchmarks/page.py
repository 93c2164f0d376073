"""The page of a large cluster: what it costs the process, and what it costs a browser.

    python benchmarks/page.py [--nodes 5000] [--rules 3] [--viewers 50] [--no-browser]

The process's part runs here, on Snapshots that the real core makes; the browser is the Chromium on
this machine, and loads the page from a server in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

import aiohttp
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table
from snapshots import Scene

from dynsched.api.app import make_app
from dynsched.api.metrics import Metrics
from dynsched.api.page.data import encoded_page
from dynsched.api.page.history import POINTS, Changes, History
from dynsched.api.snapshots import SnapshotStore
from dynsched.engine.model import Node
from dynsched.engine.snapshot import Snapshot

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

Row = tuple[str, str, str]
TICKS = 8
SETTLED = 0.6
"""Seconds after an update in which the browser lays out and paints."""
ABOUT = {"interval": 2.0, "source": "http://prometheus:9090", "leader": None}


class Cluster:
    """Nodes whose load moves from tick to tick."""

    def __init__(self, nodes: int, rules: int) -> None:
        names = [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(nodes)]
        self.rules = [f"rule-{number}" for number in range(rules)]
        made: list[dict[str, Any]] = [
            {"name": name, "expr": "x", "threshold": 80} for name in self.rules
        ]
        for rule, resource in zip(made, ("cpu", "memory"), strict=False):
            rule["resource"] = resource
        guard = {"pool_label": "pool"}
        self.scene = Scene(
            {"rules": made, "guard": guard},
            [Node(name, labels={"pool": f"pool-{at % 8}"}) for at, name in enumerate(names)],
        )
        self.at = time.time()
        self.requested = {
            resource: {name: at * 33 % 100 for at, name in enumerate(names)}
            for resource in ("cpu", "memory")
        }

    def tick(self) -> Snapshot:
        """A minute later."""
        self.at += 60
        shift = self.scene.ticks * 3.7
        answers = {
            rule.replace("-", "_"): {
                name: (at * 7.31 + shift + 11 * number) % 97
                for at, name in enumerate(self.scene.nodes)
            }
            for number, rule in enumerate(self.rules)
        }
        return self.scene.tick(self.at, **answers)


def store(cluster: Cluster) -> SnapshotStore:
    snapshots = SnapshotStore(
        clock=time.monotonic,
        interval=2.0,
        source="http://prometheus:9090",
        synced=lambda: True,
        metrics=Metrics(CollectorRegistry()),
    )
    snapshots.facts.requested = cluster.requested
    return snapshots


def resident() -> int:
    """Bytes."""
    text = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ms(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} / {max(values):.1f} ms"


async def the_process(cluster: Cluster, ticks: list[Snapshot], viewers: int) -> list[Row]:
    snapshots = store(cluster)
    rows: list[Row] = []
    at_once, first, again, remember, encode = [], [], [], [], []
    async with (
        TestServer(make_app(snapshots)) as server,
        aiohttp.ClientSession(server.make_url("/"), auto_decompress=False) as session,
    ):

        async def ask(headers: dict[str, str] | None = None) -> tuple[float, int, str]:
            began = time.perf_counter()
            async with session.get("/page/data", headers=headers or {}) as answer:
                body = await answer.read()
            return (time.perf_counter() - began) * 1000, len(body), answer.headers["ETag"]

        size = 0
        for number, snapshot in enumerate(ticks):
            past, changes = History(2.0), Changes()
            began = time.process_time()
            past.observe(snapshot)
            changes.observe(snapshot)
            remember.append((time.process_time() - began) * 1000)
            began = time.process_time()
            await encoded_page(snapshot, ABOUT, "")
            encode.append((time.process_time() - began) * 1000)
            snapshots.publish(snapshot)
            if number % 2:
                await asyncio.sleep(0.5)  # a page asks every 1 to 5 s
            took, size, etag = await ask()
            (first if number % 2 else at_once).append(took)
            again += [(await ask())[0] for _ in range(5)]
        unchanged = [(await ask({"If-None-Match": etag}))[0] for _ in range(20)]
        rows += [
            ("CPU to take a tick into the history, in batches", ms(remember), ""),
            ("CPU to encode and compress a tick, in batches", ms(encode), ""),
            ("page/data, asked for at the moment of a tick", ms(at_once[1:]), ""),
            ("page/data, the first request later than that", ms(first), "20 ms"),
            ("page/data, each further request", ms(again), "20 ms"),
            ("page/data, unchanged (304)", ms(unchanged), ""),
            ("page/data, compressed", f"{size / 1000:.0f} kB", "300 kB"),
        ]
        names = list(cluster.scene.nodes)[:50]
        began = time.perf_counter()
        async with session.get(
            "/page/history", params=[("node", name) for name in names]
        ) as answer:
            body = await answer.read()
        took = (time.perf_counter() - began) * 1000
        rows.append(("page/history of 50 nodes", f"{took:.1f} ms, {len(body) / 1000:.0f} kB", ""))
        rows.append(await the_viewers(cluster, snapshots, session, viewers))
    return rows


async def the_viewers(
    cluster: Cluster, snapshots: SnapshotStore, session: aiohttp.ClientSession, viewers: int
) -> Row:
    """CPU time that so many viewers take from one interval of 10 s: each asks twice, and gets the
    bytes once.
    """
    snapshots.publish(cluster.tick())
    etags: list[str] = []

    async def view() -> None:
        async with session.get("/page/data") as answer:
            await answer.read()
            etags.append(answer.headers["ETag"])
        async with session.get("/page/data", headers={"If-None-Match": etags[0]}) as answer:
            await answer.read()

    began = time.process_time()
    await asyncio.gather(*(view() for _ in range(viewers)))
    took = time.process_time() - began
    share = took / 10 * 100
    return (
        f"{viewers} viewers: CPU in an interval of 10 s, client included",
        f"{took * 1000:.0f} ms ({share:.1f} % of one core)",
        "5 %",
    )


async def the_memory(cluster: Cluster, ticks: list[Snapshot]) -> list[Row]:
    """Of an hour of history: resident memory, and what the points themselves are."""
    snapshots = store(cluster)
    before = resident()
    for minute in range(POINTS + 30):
        snapshot = ticks[minute % len(ticks)]
        snapshots.publish(replace(snapshot, taken_at=ticks[0].taken_at + 60 * minute))
    grown = (resident() - before) / 1e6
    points = snapshots.history._points  # noqa: SLF001 (they are measured)
    arrays = [array for point in points for _, array in point.values.values()]
    size = sum(array.nbytes for array in [*arrays, *(point.states for point in points)]) / 1e6
    return [
        ("history of an hour: its points", f"{size:.1f} MB", ""),
        ("history of an hour and 10,000 changes: resident memory", f"{grown:.1f} MB", ""),
    ]


async def the_browser(cluster: Cluster, ticks: list[Snapshot]) -> list[Row]:
    from browser import chromium, tab  # noqa: PLC0415 (without it there are the other figures)

    snapshots = store(cluster)
    async with TestServer(make_app(snapshots)) as server, chromium() as browser:
        snapshots.publish(ticks[0])
        url = str(server.make_url("/"))
        painted, filled, scripting, everything = [], [], [], []
        for _ in range(3):
            async with tab(browser, url) as opened:
                await opened.until("document.querySelectorAll('#nodes tbody tr').length > 9")
                painted.append(await opened.page.evaluate(PAINT))
                filled.append(await opened.page.evaluate(FILLED))
        async with tab(browser, url) as opened:
            await opened.until("document.querySelectorAll('#nodes tbody tr').length > 9")
            session = await opened.page.context.new_cdp_session(opened.page)
            await session.send("Performance.enable")
            for snapshot in ticks[1:]:
                snapshots.publish(snapshot)
                began = await busy(session)
                await opened.look_again()
                await opened.until(
                    "document.documentElement.dataset.tick === given", str(snapshot.tick)
                )
                await asyncio.sleep(SETTLED)
                everything.append((await busy(session) - began) * 1000)
            scripting = (await opened.page.evaluate(UPDATES))[1:]
    return [
        ("browser: first contentful paint", ms(painted), "1000 ms"),
        ("browser: all nodes drawn, since navigation", ms(filled), "1000 ms"),
        ("browser: scripting of one update", ms(scripting), "50 ms"),
        ("browser: main thread, all of one update", ms(everything[1:]), ""),
    ]


async def busy(session: CDPSession) -> float:
    """Seconds for which the page's main thread has worked: scripts, styles, layout, painting."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
FILLED = (
    "(({startTime, duration}) => startTime + duration)(performance.getEntriesByName('update')[0])"
)
UPDATES = "performance.getEntriesByName('update').map((each) => each.duration)"


async def main(options: argparse.Namespace) -> None:
    cluster = Cluster(options.nodes, options.rules)
    ticks = [cluster.tick() for _ in range(TICKS)]
    rows = await the_memory(cluster, ticks)
    rows += await the_process(cluster, ticks, options.viewers)
    if not options.no_browser:
        rows += await the_browser(cluster, ticks)
    table = Table(title=f"{options.nodes} nodes, {options.rules} rules (median / worst)")
    for name in ("what", "measured", "at most"):
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rules", type=int, default=3)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--no-browser", action="store_true")
    asyncio.run(main(parser.parse_args()))
