"""An event loop in which time passes only while everybody waits, and then at once.

What takes hours takes no time, and takes the same hours on a busy machine. What would run in a
thread runs at once instead, so that the same history always takes the same course.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """``now`` are the seconds that ``time()`` tells; add to it to let time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]  # nobody here needs the executor
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is raised again where the result is asked for
            future.set_exception(error)
        return future


class _NoWaiting(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Nothing here comes from outside: instead of waiting for it, time is let pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing can come that would wake one")
        self._loop.now += max(0.0, timeout)
        return []
