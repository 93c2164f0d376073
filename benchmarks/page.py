"""The page of a large cluster: its cost for the process, and for a browser.

    python benchmarks/page.py [--nodes 5000] [--rules 3] [--no-browser]

The real core makes the ticks. The browser is this machine's Chromium; it loads the page from a
server in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

import aiohttp
from aiohttp.test_utils import TestServer
from rich.console import Console
from rich.table import Table
from scenes import Scene
from store_support import make_store

from dynsched.core.nodes import Node
from dynsched.core.tick import Tick
from dynsched.web.app import make_app
from dynsched.web.page.data import encoded_page
from dynsched.web.page.past import Changes

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

Row = tuple[str, str]
TICKS = 8
SETTLED = 0.6
"""Seconds after an update to wait for layout and painting."""
ABOUT = {"interval": 2.0, "graphs": "http://prometheus:9090", "leader": None, "order": None}


def make_ticks(nodes: int, rules: int) -> list[Tick]:
    """Ticks a minute apart; every value changes with each tick."""
    names = [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(nodes)]
    made: list[dict[str, Any]] = [
        {"name": f"rule{number}", "expr": "x", "threshold": 80} for number in range(rules)
    ]
    for rule, resource in zip(made, ("cpu", "memory"), strict=False):
        rule["resource"] = resource
    scene = Scene(
        {"rules": made, "guard": {"pool_label": "pool"}},
        [Node(name, labels={"pool": f"pool-{at % 8}"}) for at, name in enumerate(names)],
    )
    return [
        scene.tick(
            60.0 * minute,
            **{
                rule["name"]: {
                    name: (at * 7.31 + 3.7 * minute + 11 * number) % 97
                    for at, name in enumerate(names)
                }
                for number, rule in enumerate(made)
            },
        )
        for minute in range(TICKS)
    ]


def ms(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} / {max(values):.1f} ms"


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


async def the_process(ticks: list[Tick]) -> list[Row]:
    store = make_store(time.monotonic)
    changes = Changes()
    remember, encode, first, again, unchanged = [], [], [], [], []
    size = 0
    async with (
        TestServer(make_app(store)) as server,
        aiohttp.ClientSession(server.make_url("/"), auto_decompress=False) as session,
    ):

        async def ask(**headers: str) -> tuple[float, int, str]:
            began = time.perf_counter()
            async with session.get("/page/data", headers=headers) as answer:
                body = await answer.read()
            return (time.perf_counter() - began) * 1000, len(body), answer.headers["ETag"]

        for tick in ticks:
            remember.append(cpu_ms(lambda tick=tick: changes.observe(tick)))
            encode.append(cpu_ms(lambda tick=tick: encoded_page(tick, ABOUT)))
            store.publish(tick)
            took, size, etag = await ask()
            first.append(took)
            again += [(await ask())[0] for _ in range(5)]
            unchanged.append((await ask(**{"If-None-Match": etag}))[0])
    return [
        ("CPU to find what changed in a tick", ms(remember)),
        ("CPU to encode a tick", ms(encode)),
        ("page/data, the first request after a tick", ms(first[1:])),
        ("page/data, each further request", ms(again)),
        ("page/data, unchanged (304)", ms(unchanged)),
        ("page/data, compressed", f"{size / 1000:.0f} kB"),
    ]


async def the_browser(ticks: list[Tick]) -> list[Row]:
    from browser import chromium, tab  # noqa: PLC0415 (the other figures need no Playwright)

    store = make_store(time.monotonic)
    async with TestServer(make_app(store)) as server, chromium() as browser:
        store.publish(ticks[0])
        url = str(server.make_url("/"))
        filled, everything = [], []
        for _ in range(3):
            async with tab(browser, url) as opened:
                await opened.until("document.querySelectorAll('#nodes tbody tr').length > 9")
                filled.append(await opened.page.evaluate(FILLED))
        async with tab(browser, url) as opened:
            await opened.until("document.querySelectorAll('#nodes tbody tr').length > 9")
            session = await opened.page.context.new_cdp_session(opened.page)
            await session.send("Performance.enable")
            for tick in ticks[1:]:
                store.publish(tick)
                began = await busy(session)
                await opened.look_again()
                at = f"{tick.taken_at:.0f}"
                await opened.until("document.documentElement.dataset.at === given", at)
                await asyncio.sleep(SETTLED)
                everything.append((await busy(session) - began) * 1000)
            scripting = (await opened.page.evaluate(UPDATES))[1:]
    return [
        ("browser: all nodes drawn, since navigation", ms(filled)),
        ("browser: scripting of one update", ms(scripting)),
        ("browser: main thread, all of one update", ms(everything[1:])),
    ]


async def busy(session: CDPSession) -> float:
    """Seconds that the page's main thread has worked: scripts, styles, layout, painting."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


FILLED = (
    "(({startTime, duration}) => startTime + duration)(performance.getEntriesByName('update')[0])"
)
UPDATES = "performance.getEntriesByName('update').map((each) => each.duration)"


async def main(options: argparse.Namespace) -> None:
    ticks = make_ticks(options.nodes, options.rules)
    rows = await the_process(ticks)
    if not options.no_browser:
        rows += await the_browser(ticks)
    table = Table(title=f"{options.nodes} nodes, {options.rules} rules (median / worst)")
    for name in ("what", "measured"):
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rules", type=int, default=3)
    parser.add_argument("--no-browser", action="store_true")
    asyncio.run(main(parser.parse_args()))
