"""An event loop whose clock advances only while everything waits, and then instantly.

Hours of waiting take no real time, and the course of events does not depend on how busy the machine
is. Functions for the executor run inline, so that the same history always takes the same course.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """``now`` is the loop's time in seconds; add to it to advance the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]  # no executor is needed here
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            future.set_exception(error)
        return future


class _NoWaiting(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """No I/O is expected: instead of waiting, it advances the loop's clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: everything waits, and no timer is set")
        self._loop.now += max(0.0, timeout)
        return []
