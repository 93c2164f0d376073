"""Lists in pages, all as of one moment, one page in memory at a time; and watches that begin with a
list and are begun again whenever they end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Final, Generic, NoReturn, TypeVar, Unpack

import msgspec

from dynsched.kube import failures
from dynsched.kube.failures import ApiRequest, ExpiredError
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi, RequestOptions
from dynsched.util.errors import ClusterError, ConflictError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import Backoff, jittered, run_until_stopped

logger = logging.getLogger(__name__)

PAGE: Final = 500
"""Objects a page: of nodes, 4 to 10 MB of JSON at a time, whatever the size of the cluster."""
WATCH_SECONDS: Final = 290
"""Seconds after which the server is asked to end a watch (timeoutSeconds)."""
_SILENCE: Final = 120.0
"""Seconds without a byte after which a watch ends. Bookmarks come about every minute."""
_FIRST_WAIT: Final = 1.0
_MAX_BACKOFF: Final = 30.0

METADATA_ONLY: Final = {
    # A server that does not know this form (there is none, but for fakes) sends the whole objects.
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
}

Item = TypeVar("Item")


class _ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[Item], gc=False):
    """A page of a list. What a type of its items does not name costs no memory."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[Item] | None = None


class ObjectMeta(msgspec.Struct, gc=False):
    """The part of metadata that every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class Named(msgspec.Struct, gc=False):
    """Any object, of which nothing but its identity matters."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


async def pages(
    api: KubeApi,
    call: ApiRequest,
    item: type[Item],
    *,
    may_be_unknown: bool = False,
    **request: Unpack[RequestOptions],
) -> AsyncIterator[ListPage[Item]]:
    """The caller must release a page (``del``) before it takes the next, or two would be in
    memory. ``may_be_unknown``: a server that does not know the resource has no such objects.
    ConflictError when the list's snapshot expired between two pages.
    """
    expected = (HTTPStatus.GONE, *([HTTPStatus.NOT_FOUND] if may_be_unknown else ()))
    query = {**(request.get("query") or {}), "limit": str(PAGE)}
    request.setdefault("timeout", LIST_TIMEOUT)
    while True:
        request["query"] = query
        answer = await api.call(
            call,
            accept=expected,
            shape=ListPage[item],  # type: ignore[valid-type]
            **request,
        )
        if answer.status == HTTPStatus.GONE:
            raise ConflictError(f"cannot {call}: the list's snapshot expired between two pages")
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        page: ListPage[Item] | None = answer.body
        if page is None or not page.metadata.version:  # as of ``{}``
            server = api.config.server
            raise ClusterError(f"cannot {call}: {server} answered no list; is a proxy between?")
        query = {**query, "continue": page.metadata.next_page}
        del answer
        yield page
        del page
        if not query["continue"]:
            return


class Event(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(Event)


@dataclass(eq=False)
class ListWatch(ABC):
    """Watches what ``query`` selects. ``error`` is why that does not work at the moment.
    ``version`` is the one to continue from, for a subclass that does not list each time; empty
    where there is none.
    """

    call: ClassVar[ApiRequest]
    query: ClassVar[Mapping[str, str]]
    api: KubeApi
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    error: str | None = field(default=None, init=False)
    version: str = field(default="", init=False)
    _logged: LoggedKinds = field(default_factory=LoggedKinds, init=False)

    @abstractmethod
    async def begin(self) -> str:
        """List; the version to watch from. Raises ClusterError."""

    @abstractmethod
    def observe(self, event: Event | None) -> None:
        """Take in one event; None where the server has begun to answer the watch."""

    def log(self, error: ClusterError | None) -> None:
        """Log that the watch fails, or with None that it has recovered."""
        logger.debug("%s: %s", type(self).__name__, error or "has recovered")

    async def run(self, stop: asyncio.Event) -> None:
        """List and watch, again and again, until ``stop`` is set."""
        await run_until_stopped(stop, self._run())

    async def follow(self, version: str) -> None:
        """Watch from ``version`` on until the server ends it or was silent for long. ExpiredError
        for a 410, as status or event; ClusterError.
        """
        where = {"resourceVersion": version, "allowWatchBookmarks": "true", "watch": "1"}
        query = {**self.query, **where, "timeoutSeconds": str(WATCH_SECONDS)}
        async with self.api.stream(self.call, query, _SILENCE) as response:
            self._take(None)
            with contextlib.suppress(TimeoutError):
                async for line in _lines(response.content.iter_any()):
                    self.take(line)

    def take(self, line: bytes) -> None:
        """`observe` the event in a line. An odd one must not end the watch."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            event = _event.decode(line)
            if event.type == "ERROR":
                status = failures.status_in(event.object)
                code = status.code if status else 0
                if code == HTTPStatus.GONE:
                    raise ExpiredError(self.call)
                raise ClusterError(f"cannot {self.call}: the API server ended it with code {code}")
            self._take(event)

    def _take(self, event: Event | None) -> None:
        self.observe(event)
        self._note(None)

    async def _run(self) -> NoReturn:
        backoff = Backoff(_FIRST_WAIT, _MAX_BACKOFF)
        while True:
            began, failure = self.clock(), None
            try:
                await self.follow(await self.begin())
            except ExpiredError:
                self.version = ""
            except ClusterError as error:
                failure = error
                self._note(error)
            lasted = self.clock() - began
            if failure is None or lasted > _MAX_BACKOFF:
                backoff.reset()
            if failure is not None:  # a 403 too: an API server that has just started has no rights
                wait = backoff.next()
            else:  # a server may end each watch at once
                wait = 0.0 if lasted > _FIRST_WAIT else jittered(_FIRST_WAIT)
            await asyncio.sleep(wait)

    def _note(self, error: ClusterError | None) -> None:
        self.error = None if error is None else str(error)
        if self.error is None:
            is_news = self._logged.forget("watch")
        else:
            is_news = self._logged.is_new("watch", self.error)
        if is_news:
            self.log(error)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest
