"""What the page's requests are answered from: the last Snapshot as bytes, and the last hour."""

from __future__ import annotations

import asyncio
import os
import zlib
from typing import Final

from dynsched.api.page.data import About, Requested, page_data
from dynsched.api.page.past import Changes, History
from dynsched.engine.snapshot import Snapshot

_PIECE: Final = 32 << 10
"""Bytes that are compressed in one go: about a millisecond in which nothing else is answered."""
_LEVEL: Final = 3
_GZIP: Final = 31
"""zlib's number for gzip's format, with the largest window."""


Encoded = tuple[str, bytes, bytes]
"""The ETag, the JSON, and the same as gzip."""


class Feed:
    """Encodes each Snapshot once, at the first request, in batches on the event loop. ``interval``:
    seconds from one tick to the next.
    """

    def __init__(self, interval: float) -> None:
        self.history = History(interval)
        self.changes = Changes()
        self._last: tuple[Snapshot, About, Requested] | None = None
        self._encoded: asyncio.Task[Encoded] | None = None
        self._snapshots = 0
        # Another process counts from 1 as well: its bytes must not pass for this one's.
        self._process = os.urandom(4).hex()

    def publish(self, snapshot: Snapshot, about: About, requested: Requested | None = None) -> None:
        self._last = snapshot, about, requested or {}
        self._encoded = None
        self._snapshots += 1
        self.changes.observe(snapshot)
        self.history.observe(snapshot)

    async def encoded(self) -> Encoded | None:
        if self._last is None:
            return None
        if self._encoded is None:
            self._encoded = asyncio.create_task(_encode(*self._last, self.etag))
        # Shielded: one viewer who leaves must not take the answer from the others.
        return await asyncio.shield(self._encoded)

    @property
    def etag(self) -> str:
        """The ETag of everything that is answered from the last Snapshot alone, with quotes."""
        return f'"{self._process}-{self._snapshots}"'


async def _encode(snapshot: Snapshot, about: About, requested: Requested, etag: str) -> Encoded:
    plain = await page_data(snapshot, about, requested)
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    pieces = []
    for start in range(0, len(plain), _PIECE):
        pieces.append(packer.compress(plain[start : start + _PIECE]))
        await asyncio.sleep(0)
    return etag, plain, b"".join((*pieces, packer.flush()))
