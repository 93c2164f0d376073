"""The newest value of something that changes, and a way to wait for the next one."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """One publisher, any number of subscribers, all on one event loop. A slow subscriber may miss
    values, but never the newest one.
    """

    def __init__(self) -> None:
        self.value: T | None = None
        self._changed = asyncio.Condition()

    async def publish(self, value: T) -> None:
        """Publish ``value``. It must be a new object, because `after` compares identities."""
        async with self._changed:
            self.value = value
            self._changed.notify_all()

    async def after(self, last: T | None) -> T:
        """Wait until the newest value is not the object ``last``, and return it."""
        async with self._changed:
            while self.value is None or self.value is last:
                await self._changed.wait()
            return self.value
