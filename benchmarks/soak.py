"""A simulated day of faults: does anything grow, and does anything go wrong?

    python benchmarks/soak.py [--hours 24] [--nodes 500] [--seed 1]

Real, in this process: `Loop.run`, the rules file and its reload, kopf's watch in its thread, the
store, the client with its retries, the Lease's election, Events, the store of ticks with its
metrics, and (in one tick of ten) the Prometheus source. Simulated: the API server (over HTTP on
loopback), Prometheus, and time. A tick does not wait for the next one, but is told that 40 s have
passed: at the default interval of 10 s a day would be four times as many. What waits on the
machine's own clock (retries, back-off, the watch, the Lease) waits a fraction of its usual time.

Bounds, on all that this process holds, the simulator included: from the first hour on resident
memory may grow by GROWTH, the number of Python's blocks of memory by BLOCKS; of tasks (in all
threads), open files and threads there may be no more of any kind, but for CONNECTIONS. At every
write, foreign content, the cap on marks and the Lease are looked at; after a restore of an older
state all nodes must soon be known as they are; at the end nothing may be due, and nothing be left
after a prune. Exits with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import platform
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import kopf
from rich.console import Console
from rich.table import Table
from scaling.processes import memory
from soak_day import Day
from soak_prometheus import HOUR, INTERVAL
from soak_world import World

from dynsched.kube import node_watch, transport
from dynsched.util import stopping

GROWTH = 8.0
"""MB of resident memory that may be gained from the first hour on: eight bytes a node and tick.
What is in use does not grow; the gaps that the day's peaks leave in the heap make up to 7.5 MB."""
BLOCKS = 20_000
"""Blocks of Python's allocator that may be gained, of some 400,000: ten a tick. Up to 10,000 come
and go with the nodes, the marks and the Events that there happen to be."""
CONNECTIONS = 2
"""Connections to the API server that may be open beyond those of the first hour: one that is idle
is kept for the next call, and how many there are depends on how many calls were last under way."""
ROOM = Counter({"task RequestHandler.start": CONNECTIONS, "file socket:[N]": 2 * CONNECTIONS})
"""What they are in this process, which has both ends of each."""
FASTER = 50.0
"""What waits on the machine's clock waits so many times less."""


def hurry() -> None:
    """Shorten what waits on the machine's clock, and make the log but throw it away."""
    usual, kopfs = stopping.jittered, node_watch.kopf_settings

    def settings() -> kopf.OperatorSettings:
        result = kopfs()
        result.watching.reconnect_backoff /= FASTER
        return result

    modules = (stopping, transport, node_watch)
    for module, name, value in (
        *((module, "jittered", lambda seconds: usual(seconds) / FASTER) for module in modules),
        (node_watch, "kopf_settings", settings),
        (node_watch, "RETRY", node_watch.RETRY / FASTER),
    ):
        setattr(module, name, value)
    for name in ("dynsched", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Held:
    """What the process holds at one moment. ``resident`` in MB; ``blocks`` of Python's allocator;
    ``kinds`` of tasks, files and threads.
    """

    hour: float
    resident: float
    blocks: int
    kinds: Counter[str]

    def count(self, what: str) -> int:
        """All kinds of tasks, files or threads together."""
        return sum(number for kind, number in self.kinds.items() if kind.startswith(what))


class Meter:
    """Measures, when all is calm. ``held`` is what it found."""

    def __init__(self, world: World) -> None:
        self.held: list[Held] = []
        self._world = world

    async def measure(self) -> None:
        """What is idle (a connection, say) goes within a second or two, what leaked does not: at
        first the most that is there after that counts, later the least.
        """
        if self.held:
            usual, until, kinds = self.held[0].kinds + ROOM, time.monotonic() + 8.0, _kinds()
            while time.monotonic() < until and not kinds <= usual:
                await asyncio.sleep(0.2)
                kinds &= _kinds()
        else:
            await asyncio.sleep(1.5)
            kinds = Counter()
            for _ in range(10):
                await asyncio.sleep(0.2)
                kinds |= _kinds()
        gc.collect()
        with suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # what it keeps in reserve depends on the last peak
        hour = self._world.clock.passed / HOUR
        self.held.append(Held(hour, memory(os.getpid())[0], sys.getallocatedblocks(), kinds))


def _kinds() -> Counter[str]:
    kinds = Counter(f"thread {re.sub('[0-9]+', 'N', one.name)}" for one in threading.enumerate())
    for task in gc.get_objects():  # of all threads: `asyncio.all_tasks` knows one loop's only
        if type(task) is asyncio.Task and not task.done():
            kinds[f"task {getattr(task.get_coro(), '__qualname__', task)}"] += 1
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which we list
            kinds[f"file {re.sub('[0-9]+', 'N', str(file.readlink()))}"] += 1
    return kinds


def broken_bounds(world: World, held: list[Held]) -> list[str]:
    """What is not as it should be, one line each."""
    first = held[0]
    broken = world.violations[:20]
    for later in held[1:]:
        since = f"from hour {first.hour:.1f} to hour {later.hour:.1f}"
        growth = later.resident - first.resident
        if growth > GROWTH:
            broken.append(f"{since} resident memory grew by {growth:.1f} MB")
        if later.blocks - first.blocks > BLOCKS:
            broken.append(f"{since} Python holds {later.blocks - first.blocks:,} blocks more")
        more = later.kinds - first.kinds - ROOM
        broken += [f"{since} there are {number} too many: {kind}" for kind, number in more.items()]
    return broken


async def soak(options: argparse.Namespace, folder: Path) -> tuple[World, list[Held]]:
    # All threads of the pool from the start: it makes them one by one, when it first needs them.
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.1) for _ in range(32)))
    world = World(options.nodes, options.seed)
    await world.start()
    gc.freeze()  # what is there already need not be looked through again and again
    day = Day(world, folder, options.hours, options.seed)
    meter = Meter(world)
    try:
        await day.live(meter.measure)
    finally:
        await day.close()
        await world.stop()
    return world, meter.held


def show(title: str, world: World, held: list[Held]) -> None:
    console = Console()
    table = Table("what", "how often", title=title)
    for what, number in sorted(world.happened.items(), key=lambda pair: -pair[1]):
        table.add_row(what, f"{number:,}")
    table.add_row("violations", f"{len(world.violations)}")
    console.print(table)
    holds = Table("at hour", "resident memory", "blocks", "tasks", "open files", "threads")
    for each in held:
        numbers = (str(each.count(what)) for what in ("task", "file", "thread"))
        holds.add_row(f"{each.hour:.1f}", f"{each.resident:.1f} MB", f"{each.blocks:,}", *numbers)
    console.print(holds)
    growth = max(each.resident for each in held) - held[0].resident
    blocks = max(each.blocks for each in held) - held[0].blocks
    print(
        f"memory {growth:+.1f} MB, bound {GROWTH:g}; blocks {blocks:+,}, bound {BLOCKS:,}; "
        f"of each kind of task, file and thread: bound 0, and {CONNECTIONS} connections"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.hours < 1:
        parser.error("--hours: an hour at least")
    hurry()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        world, held = asyncio.run(soak(options, Path(folder)))
    took = time.monotonic() - began
    what = f"{options.hours:g} h by {INTERVAL:g} s, {options.nodes} nodes, seed {options.seed}"
    show(f"{what}, in {took:.0f} s", world, held)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    broken = broken_bounds(world, held)
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
