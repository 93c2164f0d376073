"""Waits that end early when the process is stopping (the event ``stop`` is set), and delays before
retries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep for ``seconds``, or until ``stop`` is set. With 0 or less, other tasks still run."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()


async def wait_for(stop: asyncio.Event, condition: Callable[[], bool], every: float = 0.1) -> None:
    """Wait until ``condition()``, checked every ``every`` seconds, or until ``stop`` is set."""
    while not condition() and not stop.is_set():
        await pause(stop, every)


async def until_done(stop: asyncio.Event, *work: asyncio.Future[Any]) -> None:
    """Wait until one of ``work`` is done or ``stop`` is set. Cancels no work, reads no result."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({stopping, *work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def run_until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of ``work``; None if ``stop`` is set first. ``work`` is then cancelled, and has
    ended on return.
    """
    task = asyncio.create_task(work)
    try:
        await until_done(stop, task)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def jittered(seconds: float) -> float:
    """A random time from half of ``seconds`` to all of it, so that clients do not retry in step."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


class Backoff:
    """Delays that double from ``first`` to ``most`` seconds. ``seconds`` is the next one, before
    jitter.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self.seconds = first

    def next(self) -> float:
        seconds, self.seconds = self.seconds, min(2 * self.seconds, self._most)
        return jittered(seconds)

    def reset(self) -> None:
        self.seconds = self._first
