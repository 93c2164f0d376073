"""Watches: streams of changes, from a given version on, until a deadline."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiohttp import web

from dynsched.sim.apiserver import refusals, render
from dynsched.sim.apiserver.render import Renderer
from dynsched.sim.apiserver.routes import flag, number, version_asked
from dynsched.sim.apiserver.selectors import Selector
from dynsched.sim.apiserver.store import Change, ChangeType, Entry, GoneError, Store, at_version

BOOKMARK_INTERVAL: Final = 60.0
"""Seconds between bookmarks, as in the real server."""

_BEFORE_TIMEOUT: Final = 2.0  # and one more bookmark, so long before the watch times out
_MIN_SECONDS, _MAX_SECONDS = 1800.0, 3600.0  # how long a watch lasts that names no timeout
_BATCH: Final = 100  # lines to a write: bounds memory when 5,000 nodes are told at once


class Options(NamedTuple):
    """What the query asks of a watch: from which version (None: what is there, then all), and how
    long.
    """

    version: int | None
    bookmarks: bool
    timeout: float


def options(query: Mapping[str, str]) -> Options:
    """The options of a watch; ApiError. Lists are not streamed: clients then list before."""
    if "sendInitialEvents" in query:
        message = "Forbidden: sendInitialEvents is forbidden for watch by this server"
        cause = refusals.Cause("FieldValueForbidden", message, "sendInitialEvents")
        raise refusals.invalid(None, "", [cause])
    return Options(
        version=version_asked(query),
        bookmarks=flag(query, "allowWatchBookmarks"),
        timeout=number(query, "timeoutSeconds") or random.uniform(_MIN_SECONDS, _MAX_SECONDS),  # noqa: S311
    )


@dataclass(slots=True, eq=False)
class Watch:
    """One open watch: what is still to be told, and how it is to end."""

    renderer: Renderer
    selector: Selector
    transport: asyncio.Transport | None
    since: int
    pending: deque[Change] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_words: bytes | None = None
    told: int = 0
    is_mute: bool = False

    def notice(self, change: Change) -> None:
        """Take a change in; called by the store, at once."""
        if change.version > self.since and not self.is_mute:
            self.pending.append(change)
            self.wake.set()

    def end(self, last_words: bytes = b"") -> None:
        """Finish the stream in good order."""
        self.last_words = last_words
        self.wake.set()

    def lines(self) -> Iterator[bytes]:
        """What is pending and selected, as lines."""
        while self.pending:
            change = self.pending.popleft()
            seen = _as_seen(change, self.selector)
            if seen is not None:
                yield self.renderer.change(*seen, first=not self.told)
                self.told += 1


def _as_seen(change: Change, selector: Selector) -> tuple[ChangeType, Entry] | None:
    """A change through a selector: entering looks like ADDED, leaving like DELETED."""
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
    """All open watches of a server."""

    def __init__(self, store: Store, *, bookmark_interval: float = BOOKMARK_INTERVAL) -> None:
        self._store = store
        self._interval = bookmark_interval
        self._open: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._open)

    def end(self, *, gone: bool = False) -> int:
        """End all in good order, or with a 410 as their last event; how many there were."""
        error = refusals.expired("The resourceVersion for the provided watch is too old.")
        last_words = render.event("ERROR", render.encode(error.body)) if gone else b""
        for watch in self._open:
            watch.end(last_words)
        return len(self._open)

    def cut(self) -> int:
        """Cut the connections of all; how many there were."""
        for watch in self._open:
            if watch.transport is not None:
                watch.transport.abort()
        return len(self._open)

    def mute(self) -> int:
        """Tell the open ones nothing more, and keep them open; how many there were."""
        for watch in self._open:
            watch.is_mute = True
        return len(self._open)

    async def serve(
        self,
        request: web.BaseRequest,
        renderer: Renderer,
        selector: Selector,
        asked: Options,
    ) -> web.StreamResponse:
        """Answer a watch until it ends."""
        watch = Watch(renderer, selector, request.transport, since=asked.version or 0)
        initial = self._start(watch, asked)
        # Up to ``subscribe`` nothing is awaited: no change is missed, and none is told twice.
        unsubscribe = self._store.subscribe(renderer.resource, watch.notice)
        self._open.add(watch)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            with suppress(ConnectionResetError):  # its client went, maybe while we were writing
                await response.prepare(request)
                await self._tell_initial(response, watch, initial)
                await self._stream(response, watch, asked)
                await response.write_eof()
        finally:
            unsubscribe()
            self._open.discard(watch)
        return response

    def _start(self, watch: Watch, asked: Options) -> tuple[Entry, ...]:
        """What the watch begins with: objects, or else the changes since the asked version."""
        resource = watch.renderer.resource
        if asked.version is None:
            return self._store.entries(resource)
        try:
            watch.pending.extend(self._store.changes(resource, asked.version))
        except GoneError:
            oldest = self._store.oldest(resource)
            error = refusals.expired(f"too old resource version: {asked.version} ({oldest})")
            watch.end(render.event("ERROR", render.encode(error.body)))
        return ()

    @staticmethod
    async def _tell_initial(
        response: web.StreamResponse, watch: Watch, entries: tuple[Entry, ...]
    ) -> None:
        selected = [entry for entry in entries if watch.selector(entry)]
        for at in range(0, len(selected), _BATCH):
            lines = []
            for entry in selected[at : at + _BATCH]:
                first = not watch.told
                lines.append(watch.renderer.change(ChangeType.ADDED, entry, first=first))
                watch.told += 1
            await response.write(b"".join(lines))

    async def _stream(self, response: web.StreamResponse, watch: Watch, asked: Options) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + asked.timeout
        bookmark = self._next_bookmark(clock(), deadline)
        while True:
            watch.wake.clear()
            lines = list(watch.lines())
            for at in range(0, len(lines), _BATCH):
                await response.write(b"".join(lines[at : at + _BATCH]))
            if watch.last_words is not None:
                if watch.last_words:
                    await response.write(watch.last_words)
                return
            now = clock()
            if now >= deadline:
                return
            if now >= bookmark:
                # A watch from a version that is yet to come gets no event until then.
                is_reached = self._store.version >= watch.since and not watch.is_mute
                if asked.bookmarks and is_reached and not watch.pending:
                    await response.write(watch.renderer.bookmark(self._store.version))
                bookmark = self._next_bookmark(now, deadline)
            try:
                async with asyncio.timeout(min(deadline, bookmark) - now):
                    await watch.wake.wait()
            except TimeoutError:
                pass

    def _next_bookmark(self, now: float, deadline: float) -> float:
        regular, last = now + self._interval, deadline - _BEFORE_TIMEOUT
        return last if now < last < regular else regular
