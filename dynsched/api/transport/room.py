"""A limit on the bytes that several holders keep in memory together, and on how long they may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

PATIENCE: Final = 1.0
"""Seconds for which the process waits for a caller while others wait for the bytes it holds."""


class Room:
    """``size`` bytes to reserve. A waiting request is served as soon as enough bytes are free, a
    smaller one before a larger one that does not fit: a body of a megabyte must not delay one of a
    kilobyte.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._waited_for: dict[asyncio.Timeout, float] = {}

    async def take(self, size: int) -> None:
        """Reserve ``size`` bytes (not more than the whole); waits until they are free."""
        if self.take_if_free(size):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size
        self._let_in()
        self._hurry()
        try:
            await turn
        except BaseException:
            if self._waiting.pop(turn, None) is None:
                self.give(size)  # it had been let in at the same moment
            raise

    def take_if_free(self, size: int) -> bool:
        """Reserve ``size`` bytes if they are free and nobody waits; whether it was done."""
        if size > self._free or self._waiting:
            return False
        self._free -= size
        return True

    def take_at_once(self, size: int) -> None:
        """Reserve ``size`` bytes without waiting, even beyond the limit; others then wait."""
        self._free -= size

    def give(self, size: int) -> None:
        """Release ``size`` bytes."""
        self._free += size
        self._let_in()

    @contextlib.asynccontextmanager
    async def waiting_for_caller(self, seconds: float) -> AsyncIterator[None]:
        """What waits for a caller inside ends after ``seconds``, or after `PATIENCE` while others
        wait for room. TimeoutError.
        """
        async with asyncio.timeout(seconds) as limit:
            self._waited_for[limit] = asyncio.get_running_loop().time() + PATIENCE
            if self._waiting:
                self._hurry()
            try:
                yield
            finally:
                del self._waited_for[limit]

    def _let_in(self) -> None:
        for turn, size in list(self._waiting.items()):
            if size <= self._free and not turn.done():
                self._free -= size
                del self._waiting[turn]
                turn.set_result(None)

    def _hurry(self) -> None:
        if not self._waiting:
            return
        for limit, latest in self._waited_for.items():
            when = limit.when()
            if not limit.expired() and when is not None and when > latest:
                limit.reschedule(latest)
