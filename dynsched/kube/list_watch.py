"""A list, and a watch from its version on, begun again whenever it ends, as often as the API
server can bear it. For what is followed besides the nodes, whose watch is kopf's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Final, NoReturn

import aiohttp
import msgspec

from dynsched.kube import failures
from dynsched.kube.failures import Call, SetupError, TooLargeError
from dynsched.kube.transport import CONNECT_TIMEOUT, MAX_OF_AN_OBJECT, KubeApi, read_body
from dynsched.util.backoff import Backoff, jittered
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.stopping import unless_stopped

WATCH_SECONDS: Final = 290
"""Seconds after which the server is asked to end a watch (timeoutSeconds)."""

logger = logging.getLogger(__name__)

_SILENCE: Final = 120.0
"""Seconds without a byte after which a watch ends: its connection may be dead. Bookmarks come about
every minute."""

_FIRST_WAIT: Final = 1.0
_MAX_BACKOFF: Final = 30.0
_FORBIDDEN_WAIT: Final = 60.0


class ExpiredError(ClusterError):
    """The resourceVersion is too old: begin again with the present one."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"cannot {call}: the resourceVersion is too old")


class Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(Event)


class StreamingApi(KubeApi):
    """KubeApi, and watches. Each holds a connection for minutes."""

    async def watch(
        self, call: Call, query: Mapping[str, str]
    ) -> AsyncGenerator[Event | None, None]:
        """The events of a watch, until the server ends it or was silent for long, as one without
        bookmarks is where nothing happens. None tells that the server has begun to answer.

        Raises ExpiredError for a 410, as a status (which a proxy may give) and as an event; another
        ClusterError, before the first event or in between.
        """
        await self._login_when_due()
        config = self.config
        whole = {**query, "watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=_SILENCE)
        try:
            async with await self._request(call, limit, {"query": whole}) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    said = await read_body(response)
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        await self._login_again(config)  # for the next time
                    if response.status == HTTPStatus.GONE:
                        raise ExpiredError(call)
                    raise failures.from_status(call, self.config.server, response.status, said)
                yield None
                rest = b""
                with contextlib.suppress(TimeoutError):
                    while chunk := await response.content.readany():
                        *lines, rest = (rest + chunk).split(b"\n")
                        for event in filter(None, (_read(call, line) for line in lines)):
                            yield event
                        if len(rest) > MAX_OF_AN_OBJECT:
                            raise TooLargeError(MAX_OF_AN_OBJECT)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = failures.from_exception(call, self.config.server, error, _SILENCE)
            if isinstance(failure, SetupError):  # TLS
                await self._login_again(config)
            raise failure from error


def _read(call: Call, line: bytes) -> Event | None:
    """The event in a line; None for an odd one, which must not end the watch."""
    try:
        event = _event.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if event.type != "ERROR":
        return event
    status = failures.status_in(event.object)
    code = status.code if status else 0
    if code == HTTPStatus.GONE:
        raise ExpiredError(call)
    raise ClusterError(f"cannot {call}: the API server ended it with code {code}")


class ListWatch(ABC):
    """Follows what ``query`` selects: a subclass lists (`begin`), and keeps what it needs of the
    events (`observe`).

    ``error`` is why it does not work at the moment; None while all is well. ``version`` is the one
    to go on from, for a subclass that does not list each time; empty where there is none.
    """

    resource: Call
    query: Mapping[str, str]

    def __init__(self, api: StreamingApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.api = api
        self.clock = clock
        self.error: str | None = None
        self.version = ""

    @abstractmethod
    async def begin(self) -> str:
        """List what is needed; the version to watch from. Raises ClusterError."""

    @abstractmethod
    def observe(self, event: Event | None) -> None:
        """Take in one event; None where the server has begun to answer the watch."""

    def tell(self, error: ClusterError | None) -> None:
        """``error`` is new; or None, and all is well again."""
        logger.debug("%s: %s", type(self).__name__, error or "works again")

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until ``stop`` is set; it never ends before, whatever the API server says."""
        await unless_stopped(stop, self._follow_on())

    async def follow(self, version: str) -> None:
        """One watch, until it ends."""
        where = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        watching = self.api.watch(self.resource, {**self.query, **where})
        async with contextlib.aclosing(watching) as events:
            async for event in events:
                self.take(event)

    def take(self, event: Event | None) -> None:
        """`observe`; an odd object must not end the watch."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            self.observe(event)
        self._note(None)

    async def _follow_on(self) -> NoReturn:
        backoff = Backoff(_FIRST_WAIT, _MAX_BACKOFF)
        while True:
            began = self.clock()
            try:
                try:
                    await self.follow(await self.begin())
                except ExpiredError:
                    self.version = ""
            except ForbiddenError as error:
                self._note(error)
                wait = jittered(_FORBIDDEN_WAIT)
            except ClusterError as error:
                self._note(error)
                if self.clock() - began > _MAX_BACKOFF:
                    backoff.reset()
                wait = backoff.next()
            else:
                backoff.reset()
                # A server may end each watch at once.
                wait = 0.0 if self.clock() - began > _FIRST_WAIT else jittered(_FIRST_WAIT)
            await asyncio.sleep(wait)

    def _note(self, error: ClusterError | None) -> None:
        now = None if error is None else str(error)
        if now != self.error:
            self.error = now
            self.tell(error)
