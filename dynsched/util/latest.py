"""The newest value of something that changes, and a way to wait for the next one."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """One publisher, any number of subscribers, all on one event loop. A subscriber that is slow
    misses values, never the newest one.
    """

    def __init__(self) -> None:
        self.value: T | None = None
        self._changed = asyncio.Condition()

    async def publish(self, value: T) -> None:
        """Make ``value``, an object that was not published before, the newest one."""
        async with self._changed:
            self.value = value
            self._changed.notify_all()

    async def after(self, last: T | None) -> T:
        """The newest value, once it is another object than ``last``."""
        async with self._changed:
            while self.value is None or self.value is last:
                await self._changed.wait()
            return self.value
