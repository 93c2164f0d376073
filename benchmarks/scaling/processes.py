"""Child processes of the bench, and their figures from the kernel and from `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

import aiohttp

_BENCHMARKS: Final = Path(__file__).parent.parent


async def start(module: str, *arguments: str, output: bool = True) -> asyncio.subprocess.Process:
    """Start a module of the bench, or of dynsched, as a child process."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_BENCHMARKS))))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdout=asyncio.subprocess.PIPE if output else None,
        # The tree in PYTHONPATH is measured, not the one in the working directory.
        env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        limit=1 << 26,
    )


@contextlib.asynccontextmanager
async def serving(module: str, *arguments: str) -> AsyncIterator[tuple[int, str]]:
    """Start a server; yields its process id and the URL that it prints once it serves."""
    process = await start(module, *arguments)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise RuntimeError(f"{module} did not start: see its output above")
        yield process.pid, url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def memory(pid: int) -> tuple[float, float]:
    """Resident memory now, and its peak, in MB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024


def cpu_seconds(*pids: int) -> float:
    """CPU seconds used so far by the processes and their children."""
    ticks = 0
    for pid in [*pids, *chain.from_iterable(map(_children, pids))]:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Status and body; status 0 if nothing answers."""
    try:
        async with session.get(url) as response:
            return response.status, await response.text()
    except aiohttp.ClientError:
        return 0, ""


class Durations:
    """Histograms of `/metrics` at one moment, to compare with an earlier one."""

    def __init__(self, text: str) -> None:
        pattern = r"^(dynsched_\w+_seconds(?:_sum|_count)(?:\{[^}]*\})?) (\S+)$"
        found = re.findall(pattern, text, re.MULTILINE)
        self._values = {name: float(value) for name, value in found}

    def mean(self, before: Durations, name: str) -> float:
        """The mean since ``before``; if there are several series, the highest of their means."""
        means = []
        for series, count in self._values.items():
            if not series.startswith(f"{name}_count"):
                continue
            total = series.replace("_count", "_sum", 1)
            count -= before._values.get(series, 0.0)  # noqa: PLW2901 (the count since ``before``)
            if count:
                means.append((self._values[total] - before._values.get(total, 0.0)) / count)
        return max(means, default=0.0)

    def beyond_prometheus(self, before: Durations) -> float:
        """Mean seconds of a tick, less those of the slowest rule's query."""
        tick = self.mean(before, "dynsched_tick_duration_seconds")
        return tick - self.mean(before, "dynsched_rule_query_duration_seconds")

    def ticks(self, before: Durations) -> int:
        """Number of ticks since ``before``."""
        name = "dynsched_tick_duration_seconds_count"
        return int(self._values[name] - before._values.get(name, 0.0))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = []
    for task in tasks:
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found += task.read_text(encoding="ascii").split()
    return [int(child) for child in found]
