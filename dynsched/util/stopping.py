"""Waiting that ends early when the process is to stop (the event ``stop``), and pauses before
something that failed is tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep for ``seconds``, or until ``stop`` is set; with 0 or less, other tasks get a turn."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()


async def wait_for(stop: asyncio.Event, is_so: Callable[[], bool], every: float = 0.1) -> None:
    """Until ``is_so()``, checked ``every`` so many seconds, or ``stop`` is set."""
    while not is_so() and not stop.is_set():
        await pause(stop, every)


async def until_done(stop: asyncio.Event, *work: asyncio.Future[Any]) -> None:
    """Until one of ``work`` is done or ``stop`` is set; nothing is cancelled, no result taken."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({stopping, *work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def run_until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """None when ``stop`` is set before; ``work`` is then cancelled, and has ended on return."""
    task = asyncio.create_task(work)
    try:
        await until_done(stop, task)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def jittered(seconds: float) -> float:
    """Between half of ``seconds`` and all of it, so that many clients do not return as one."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


class Backoff:
    """Pauses that double from ``first`` to ``most`` seconds; ``seconds``: the next, unjittered."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self.seconds = first

    def next(self) -> float:
        seconds, self.seconds = self.seconds, min(2 * self.seconds, self._most)
        return jittered(seconds)

    def reset(self) -> None:
        self.seconds = self._first
