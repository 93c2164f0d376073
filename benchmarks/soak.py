"""A simulated day of faults: does any resource grow, and does anything go wrong?

    python benchmarks/soak.py [--hours 24] [--nodes 500] [--seed 1]

Real, in this process: `Loop.run`, the rules file and its reload, kopf's watch in its thread, the
node store, the API client with its retries, leader election, Events, the store of ticks with its
metrics, and (in every tenth tick) the Prometheus source. Simulated: the API server (over HTTP on
loopback), Prometheus, and time. A tick does not wait for the next one; instead the clock advances
by 40 s. At the default interval of 10 s a day would have four times as many ticks. Waits on the
machine's own clock (retries, back-off, the watch, the Lease) take a fraction of their usual time.

The bounds apply to the whole process, simulator included. From the first hour on, resident memory
may grow by GROWTH, and Python's memory blocks by BLOCKS. No kind of task (in any thread), open file
or thread may become more numerous, except for CONNECTIONS. Every write is checked for foreign
content, for marks of older rules, for the cap on marks and for the Lease. After a restore of an
older state, dynsched must soon know all nodes as they are. At the end nothing may be due, and a
prune must leave only what older rules put there, which a prune with those removes. Exits with 1 if
a bound is broken.
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
"""Allowed growth of resident memory after the first hour, in MB: eight bytes per node and tick. The
memory in use does not grow; the gaps that the day's peaks leave in the heap take up to 7.5 MB."""
BLOCKS = 20_000
"""Allowed growth in blocks of Python's allocator, of some 400,000: ten per tick. Up to 10,000 come
and go with the current nodes, marks and Events."""
CONNECTIONS = 2
"""Connections to the API server allowed in addition to those of the first hour. Idle ones are kept
for the next call, so their number depends on how many recent calls were concurrent."""
ROOM = Counter({"task RequestHandler.start": CONNECTIONS, "file socket:[N]": 2 * CONNECTIONS})
"""The objects behind CONNECTIONS; this process has both ends of each connection."""
FASTER = 50.0
"""Factor by which waits on the machine's clock are shortened."""


def hurry() -> None:
    """Shorten waits on the machine's clock, and produce all log records but discard them."""
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
class Sample:
    """The resources of the process at one moment.

    ``resident``: MB. ``blocks``: of Python's allocator. ``kinds``: tasks, files and threads.
    """

    hour: float
    resident: float
    blocks: int
    kinds: Counter[str]

    def count(self, what: str) -> int:
        """Number of tasks, files or threads of all kinds."""
        return sum(number for kind, number in self.kinds.items() if kind.startswith(what))


class Meter:
    """Measures the resources while all is calm. ``samples`` has the results."""

    def __init__(self, world: World) -> None:
        self.samples: list[Sample] = []
        self._world = world

    async def measure(self) -> None:
        """Measure for a few seconds: idle resources such as connections go away, leaks stay.

        The first measurement takes the maximum, later ones take the minimum.
        """
        if self.samples:
            usual, until, kinds = self.samples[0].kinds + ROOM, time.monotonic() + 8.0, _kinds()
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
            ctypes.CDLL(None).malloc_trim(0)  # glibc's reserve depends on the last peak
        hour = self._world.clock.passed / HOUR
        self.samples.append(Sample(hour, memory(os.getpid())[0], sys.getallocatedblocks(), kinds))


def _kinds() -> Counter[str]:
    kinds = Counter(f"thread {re.sub('[0-9]+', 'N', one.name)}" for one in threading.enumerate())
    for task in gc.get_objects():  # `asyncio.all_tasks` knows the tasks of one loop only
        if type(task) is asyncio.Task and not task.done():
            # `get_coro` crashes in Python 3.11 if another thread is just creating the task.
            kinds[f"task {getattr(task._coro, '__qualname__', None)}"] += 1  # noqa: SLF001
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            kinds[f"file {re.sub('[0-9]+', 'N', str(file.readlink()))}"] += 1
    return kinds


def broken_bounds(world: World, samples: list[Sample]) -> list[str]:
    """The broken bounds and violations, one line each."""
    first = samples[0]
    broken = world.violations[:20]
    for later in samples[1:]:
        since = f"from hour {first.hour:.1f} to hour {later.hour:.1f}"
        growth = later.resident - first.resident
        if growth > GROWTH:
            broken.append(f"{since} resident memory grew by {growth:.1f} MB")
        if later.blocks - first.blocks > BLOCKS:
            broken.append(f"{since} Python holds {later.blocks - first.blocks:,} more blocks")
        more = later.kinds - first.kinds - ROOM
        broken += [f"{since} there are {number} too many: {kind}" for kind, number in more.items()]
    return broken


async def soak(options: argparse.Namespace, folder: Path) -> tuple[World, list[Sample]]:
    # Start all threads of the pool now; otherwise they would appear later and look like a leak.
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.1) for _ in range(32)))
    world = World(options.nodes, options.seed)
    await world.start()
    gc.freeze()  # exclude what exists already from all later collections
    day = Day(world, folder, options.hours, options.seed)
    meter = Meter(world)
    try:
        await day.live(meter.measure)
    finally:
        await day.close()
        await world.stop()
    return world, meter.samples


def show(title: str, world: World, samples: list[Sample]) -> None:
    console = Console()
    table = Table("what", "how often", title=title)
    for what, number in sorted(world.happened.items(), key=lambda pair: -pair[1]):
        table.add_row(what, f"{number:,}")
    table.add_row("violations", f"{len(world.violations)}")
    console.print(table)
    usage = Table("at hour", "resident memory", "blocks", "tasks", "open files", "threads")
    for each in samples:
        numbers = (str(each.count(what)) for what in ("task", "file", "thread"))
        usage.add_row(f"{each.hour:.1f}", f"{each.resident:.1f} MB", f"{each.blocks:,}", *numbers)
    console.print(usage)
    growth = max(each.resident for each in samples) - samples[0].resident
    blocks = max(each.blocks for each in samples) - samples[0].blocks
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
        parser.error("--hours: at least 1")
    hurry()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        world, samples = asyncio.run(soak(options, Path(folder)))
    took = time.monotonic() - began
    what = f"{options.hours:g} h by {INTERVAL:g} s, {options.nodes} nodes, seed {options.seed}"
    show(f"{what}, in {took:.0f} s", world, samples)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    broken = broken_bounds(world, samples)
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
