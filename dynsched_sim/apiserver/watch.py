"""Watches: streams of changes from a given version until a deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from dynsched_sim.apiserver import api_errors, render
from dynsched_sim.apiserver.render import Renderer
from dynsched_sim.apiserver.requested import ListSelector, number
from dynsched_sim.apiserver.store import (
    ChangeType,
    Entry,
    GoneError,
    Store,
    StoreChange,
    at_version,
)

_SECONDS: Final = 1800.0  # duration of a watch without timeoutSeconds
_BATCH: Final = 100  # lines per write; bounds memory when 5,000 nodes are sent at once


@dataclass(slots=True, eq=False)
class Watch:
    """One open watch: the changes still to send, and its last event."""

    renderer: Renderer
    selector: ListSelector
    transport: asyncio.Transport | None
    since: int
    pending: deque[StoreChange] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_words: bytes | None = None

    def notice(self, change: StoreChange) -> None:
        """Queue a change; the store calls this synchronously."""
        if change.version > self.since:
            self.pending.append(change)
            self.wake.set()

    def end(self, last_words: bytes = b"") -> None:
        self.last_words = last_words
        self.wake.set()

    def batches(self) -> Iterator[bytes]:
        while self.pending:
            taken = [self.pending.popleft() for _ in range(min(_BATCH, len(self.pending)))]
            seen = filter(None, (_as_seen(change, self.selector) for change in taken))
            if lines := b"".join(render.event(kind, self.renderer.one(e)) for kind, e in seen):
                yield lines


def _as_seen(change: StoreChange, selector: ListSelector) -> tuple[ChangeType, Entry] | None:
    """A change as seen through a selector: entering it is ADDED, leaving it is DELETED."""
    if selector.everything:
        return change.type, change.entry
    inside = change.type is not ChangeType.DELETED and selector(change.entry)
    before = change.previous is not None and selector(change.previous)
    if inside:
        return (ChangeType.MODIFIED if before else ChangeType.ADDED), change.entry
    if not before or change.previous is None:
        return None
    if change.type is ChangeType.DELETED:
        return ChangeType.DELETED, change.entry
    return ChangeType.DELETED, at_version(change.previous, change.version)


class Watches:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._open)

    def end(self, *, gone: bool = False) -> int:
        """End all watches, cleanly or with a 410 as their last event; returns their number."""
        error = api_errors.expired("The resourceVersion for the provided watch is too old.")
        last_words = render.event("ERROR", render.encode(error.body)) if gone else b""
        for watch in self._open:
            watch.end(last_words)
        return len(self._open)

    def cut(self) -> int:
        for watch in self._open:
            if watch.transport is not None:
                watch.transport.abort()
        return len(self._open)

    async def serve(
        self, request: web.BaseRequest, renderer: Renderer, selector: ListSelector
    ) -> web.StreamResponse:
        """Stream until the watch ends. ApiError for a streaming list: clients must list first."""
        if "sendInitialEvents" in request.query:
            message = "sendInitialEvents: Forbidden: it is forbidden for watch by this server"
            raise api_errors.invalid(None, "", message)
        version = number(request.query, "resourceVersion") or None
        lasts = number(request.query, "timeoutSeconds") or _SECONDS
        deadline = asyncio.get_running_loop().time() + lasts
        watch = Watch(renderer, selector, request.transport, since=version or 0)
        self._begin(watch, version)
        # No await up to ``subscribe``, so that no change is missed or sent twice.
        unsubscribe = self._store.subscribe(renderer.resource, watch.notice)
        self._open.add(watch)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            with suppress(ConnectionResetError):  # the client left, possibly during a write
                await response.prepare(request)
                await _stream(response, watch, deadline)
                await response.write_eof()
        finally:
            unsubscribe()
            self._open.discard(watch)
        return response

    def _begin(self, watch: Watch, version: int | None) -> None:
        """Queue the changes since ``version``, or all objects if there is no version."""
        resource = watch.renderer.resource
        if version is None:
            found = self._store.entries(resource)
            watch.pending.extend(StoreChange(ChangeType.ADDED, entry, None) for entry in found)
            return
        try:
            watch.pending.extend(self._store.changes(resource, version))
        except GoneError as error:
            gone = api_errors.expired(f"too old resource version: {version} ({error})")
            watch.end(render.event("ERROR", render.encode(gone.body)))


async def _stream(response: web.StreamResponse, watch: Watch, deadline: float) -> None:
    while True:
        watch.wake.clear()
        for lines in watch.batches():
            await response.write(lines)
        if watch.last_words is not None:
            await response.write(watch.last_words)
            return
        try:
            async with asyncio.timeout_at(deadline):
                await watch.wake.wait()
        except TimeoutError:
            return
