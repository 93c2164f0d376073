"""kopf, embedded: it lists and watches Nodes. The nodes are taken out of the answers before it
decodes them (docs/decisions/0018). It runs in a thread with an event loop of its own: in ours it
would take over SIGTERM, and cancel every task that was made after it.

What keeps kopf's hands off a node that reaches it after all, each necessary: `on.event` handlers
only (all others write annotations or finalizers), returning None (a result would be written to the
status), and a finalizer name that no other kopf operator uses: kopf *removes* the one it is
configured with from any object that it needs no finalizer on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, cast

import aiohttp
import kopf
import msgspec
from kubernetes.aio.client.rest import RESTClientObject

from dynsched.engine.model import Node
from dynsched.kube import failures, transport
from dynsched.kube.failures import Call
from dynsched.kube.kubeconfig import TOKEN_MAX_AGE, KubeConfig
from dynsched.kube.lists import Event, ListPage, read_lines
from dynsched.kube.projection import project, read_node
from dynsched.kube.transport import LIST_TIMEOUT, SESSION
from dynsched.util.errors import ClusterError
from dynsched.util.stopping import Backoff, jittered, until_done
from dynsched.util.threads import on_thread

logger = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 2.5
"""Seconds that a clean end of kopf may take; then its thread is left behind (it is a daemon)."""
CHUNK: Final = 250
"""Nodes a page of kopf's list."""
BACKOFFS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the attempts of one request; after the last kopf ends (and is begun again)."""

_PASSING: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.GONE)
_WATCH: Final = Call("watch", "nodes", "/api/v1/nodes")
_NODE_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_PAGE: Final = msgspec.json.Decoder(ListPage[msgspec.Raw])
_EVENT: Final = msgspec.json.Decoder(Event)

Observer = Callable[[str | None, Node | None], None]
"""Called with an event's type (None for a listed object) and the node (None for an object without
a name)."""
Follower = Callable[[], None]
"""Called each time a watch has begun; the list before it is complete then. Both are called in
kopf's thread, must not block and must not raise."""


def settings() -> kopf.OperatorSettings:
    """Without anything that writes: no finalizers, no annotations, no Events."""
    result = kopf.OperatorSettings()
    result.process.ultimate_exiting_timeout = None  # it is a SIGKILL, to the process
    result.posting.enabled = False
    result.scanning.disabled = True
    result.watching.chunk_size = CHUNK
    # As client-go: streams end now and then, so that clients spread over the API servers.
    result.watching.server_timeout = random.randint(300, 600)  # noqa: S311 - spreads load
    result.watching.reconnect_backoff = 1.0
    result.queueing.exit_timeout = 1.0
    result.networking.request_timeout = LIST_TIMEOUT
    result.networking.connect_timeout = transport.CONNECT_TIMEOUT
    result.networking.error_backoffs = tuple(map(jittered, BACKOFFS))
    result.persistence.finalizer = "dynsched.io/never-set"
    return result


class _NodesResponse(aiohttp.ClientResponse):
    """An answer to kopf, of which the nodes are taken out where `take_nodes` was called. One of
    another form goes to kopf as it came.
    """

    _observer: Observer | None = None

    def take_nodes(self, observer: Observer, *, watch: bool) -> None:
        """Give the nodes to ``observer``: those of a ``watch`` line by line, else of a list."""
        if watch:
            self.content = _Lines(self.content, observer)  # type: ignore[assignment]
        else:
            self._observer = observer

    async def json(self, **options: Any) -> Any:
        """What is left for kopf: a list's metadata, without the nodes."""
        if self._observer is not None:
            page = _without_nodes(await self.read(), self._observer)
            if page is not None:
                return page
        return await super().json(**options)


def _without_nodes(body: bytes, observer: Observer) -> dict[str, Any] | None:
    """The page without its items, which were given to ``observer``; None for what is no page."""
    try:
        page = _PAGE.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not page.metadata.version:
        return None
    for item in page.items or ():
        observer(None, read_node(item))
    position = {"resourceVersion": page.metadata.version, "continue": page.metadata.after}
    return {"metadata": position, "items": []}


class _Lines:
    """A StreamReader whose `iter_chunked`, by which kopf reads the lines of a watch, gives a
    bookmark of the same resourceVersion for each event about a node.
    """

    def __init__(self, content: aiohttp.StreamReader, observer: Observer) -> None:
        self._content = content
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Whole lines, from reads of ``size`` bytes at most."""
        async for lines in read_lines(self._content.iter_chunked(size)):
            yield b"\n".join([*map(self._without_node, lines), b""])

    def _without_node(self, line: bytes) -> bytes:
        try:
            event = _EVENT.decode(line)
            if event.type not in _NODE_EVENTS:
                return line
            node = read_node(event.object)
        except (msgspec.DecodeError, ValueError):
            return line
        self._observer(event.type, node)
        # Without a version, kopf keeps the one that it has; from "" it would miss what was deleted.
        position = (
            {"resourceVersion": version} if node and (version := node.resource_version) else {}
        )
        return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": position}})


class WatchBrokenError(ClusterError):
    """The watch ended for a cause that may pass."""


class NodeOperator:
    """One life of the kopf operator; `run` may be called once."""

    def __init__(
        self, config: KubeConfig, observer: Observer, follower: Follower = lambda: None
    ) -> None:
        self._config = config
        self._observer = observer
        self._follower = follower
        self._stop: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._sessions: list[aiohttp.ClientSession] = []
        self._last_login = -math.inf
        self._hasty_logins = Backoff(2.0, 32.0)
        self._next_watch = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set; back within STOP_TIMEOUT then. Raises WatchBrokenError,
        ForbiddenError, or ClusterError for whatever else ended it.
        """
        ended = asyncio.wrap_future(on_thread("kopf", lambda: asyncio.run(self._operate())))
        try:
            await until_done(stop, ended)
            self._request_stop()
            await asyncio.wait({ended}, timeout=STOP_TIMEOUT)
        finally:
            self._request_stop()
            if not ended.done():
                logger.warning("the watch of nodes is still busy; its thread is abandoned")
                ended.cancel()
        error = None if ended.cancelled() else ended.exception()
        if not stop.is_set():
            raise _explained(self._config.server, error) from error

    async def _operate(self) -> None:
        stop_flag = asyncio.wrap_future(self._stop)
        # Kopf logs each attempt and each object. What ends it is raised by us and logged once.
        verbose = logging.getLogger().isEnabledFor(logging.DEBUG)
        logging.getLogger("kopf").setLevel(logging.NOTSET if verbose else logging.CRITICAL)
        logging.getLogger("kopf.objects").setLevel(logging.WARNING if verbose else logging.CRITICAL)
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=settings(),
                clusterwide=True,
                standalone=True,
                stop_flag=stop_flag,
                # Else kopf asks for the user's name, which an arbitrary UID in a pod has not.
                identity=cast("Any", "dynsched"),
            )
        finally:
            stop_flag.cancel()  # and with it `_stop`, which has nobody to tell any more
            for session in self._sessions:  # those that kopf never came to use
                await session.close()

    def _request_stop(self) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has ended, or is told
            self._stop.set_result(None)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, id="login", backoff=TOKEN_MAX_AGE / 10)
        async def login(**_: object) -> kopf.AiohttpSession:
            """Called by kopf whenever it needs credentials."""
            return await self._login()

        @kopf.on.event("", "v1", "nodes", registry=registry, id="observe")
        async def observe(event: kopf.RawEvent, **_: object) -> None:
            """Reached only by what could not be taken out of an answer before."""
            self._observer(event["type"], project(event["object"]))

        return registry

    async def _login(self) -> kopf.AiohttpSession:
        """A session with the credentials as they are now. kopf asks at the start, when the last
        answer expired (between two requests, so no stream is cut) and after a 401.
        """
        since = time.monotonic() - self._last_login
        if since < TOKEN_MAX_AGE / 2:
            # The API server may go on saying 401; kopf itself would ask again at once, for ever.
            await asyncio.sleep(self._hasty_logins.next())
        else:
            self._hasty_logins.reset()
        if self._sessions:
            self._config = await self._config.reload()
        self._last_login = time.monotonic()
        rotates = self._config.refresh_at is not None
        session = self._session(self._config)
        self._sessions = [one for one in self._sessions if not one.closed] + [session]
        return kopf.AiohttpSession(
            server=self._config.configuration.host,
            aiohttp_session=session,
            expiration=datetime.now(UTC) + timedelta(seconds=TOKEN_MAX_AGE) if rotates else None,
        )

    def _session(self, config: KubeConfig) -> aiohttp.ClientSession:
        is_tls = config.server.startswith("https")
        tls = RESTClientObject(config.configuration).ssl_context if is_tls else True
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            # Not the token: aiohttp sends the headers of a session to its proxy too, in the clear.
            headers={"User-Agent": transport.USER_AGENT},
            proxy=config.configuration.proxy,
            response_class=_NodesResponse,
            **{**SESSION, "middlewares": (self._middleware, *SESSION["middlewares"])},
        )

    async def _middleware(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """What kopf has no setting for: the token, for the API server alone; the TLS server name;
        and a pause between two watch requests, which the server may close at once.
        """
        if self._config.authorization and self._config.serves(request.url.host, request.url.port):
            request.headers["Authorization"] = self._config.authorization
        if self._config.configuration.tls_server_name:
            request.server_hostname = self._config.configuration.tls_server_name
        is_watch = "watch" in request.url.query
        if is_watch:
            await asyncio.sleep(max(0.0, self._next_watch - time.monotonic()))
            self._next_watch = time.monotonic() + jittered(1.0)
        response = await handler(request)
        is_good = response.status == HTTPStatus.OK and request.url.path.endswith(_WATCH.path)
        if is_good and isinstance(response, _NodesResponse):
            response.take_nodes(self._observer, watch=is_watch)
            if is_watch:
                self._follower()
        return response


def _explained(server: str, error: BaseException | None) -> ClusterError:
    """Why kopf ended, for a person, and whether it may be started again."""
    status = getattr(error, "status", None)  # of kopf's APIError, which is not public
    if error is None:
        return ClusterError("the watch of nodes ended unexpectedly")
    if isinstance(error, aiohttp.ClientConnectionError | TimeoutError):
        # The cause may be a certificate: that, too, may be put right while we wait.
        lost = failures.from_exception(_WATCH, server, error, LIST_TIMEOUT)
        return WatchBrokenError(str(lost))
    if status == HTTPStatus.FORBIDDEN:
        return failures.forbidden(_WATCH, server, str(getattr(error, "message", None) or ""))
    if isinstance(error, kopf.LoginError):
        return WatchBrokenError(f"cannot {_WATCH}: {server} does not accept the credentials")
    if isinstance(status, int) and (
        status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return WatchBrokenError(f"cannot {_WATCH}: {server} answered {status}")
    said = " ".join(str(error).split())[:300]
    return ClusterError(f"the watch of nodes ended: {type(error).__name__}: {said}")
