"""Keeps the known nodes current: kopf watches them, and a list at the start and every five minutes
corrects what the watch missed.

kopf is embedded as its documentation shows, in a thread with its own event loop: in ours it would
cancel every task that was created after it. Three things, all necessary, keep it from writing to
nodes. There are only `on.event` handlers (all others write annotations or finalizers). They return
None (a result would be written to the status). The finalizer has a name that no other kopf operator
uses (kopf removes its configured finalizer from any object that needs none).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import aiohttp
import kopf

from dynsched.kube import failures, transport
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeStore
from dynsched.kube.credentials import MIN_GAP
from dynsched.kube.decode_node import node_of
from dynsched.kube.failures import ApiRequest, SetupError
from dynsched.kube.kubeconfig import KubeConfig
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.stopping import Backoff, jittered, pause, until_done

logger = logging.getLogger(__name__)

RELIST: Final = 300.0
"""Seconds between two lists. What a watch misses without an error, such as a restore of etcd, is
noticed within this time."""
RETRY: Final = 10.0
"""Seconds until a failed list is retried."""
STOP_TIMEOUT: Final = 2.5
"""Seconds that kopf may take to end cleanly; then its daemon thread is abandoned."""
CHUNK: Final = 250
"""Nodes per page of kopf's list."""
_BACKOFFS: Final = (0.5, 1.0, 2.0, 4.0)
"""Seconds between kopf's attempts at a request; after the last one kopf ends, and is restarted."""
_LASTED: Final = 60.0
"""Seconds after which a run of kopf counts as a success, and resets the backoff."""
_WATCH: Final = ApiRequest("watch", "nodes", "/api/v1/nodes")


def kopf_settings() -> kopf.OperatorSettings:
    """Settings with which kopf writes nothing: no finalizers, no annotations, no Events."""
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None  # else kopf may SIGKILL the process
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = CHUNK
    # As in client-go, streams end now and then, so that clients spread over the API servers.
    settings.watching.server_timeout = random.randint(300, 600)  # noqa: S311 - spreads load
    settings.watching.reconnect_backoff = 1.0
    settings.queueing.idle_timeout = 0.05
    settings.queueing.exit_timeout = 1.0
    settings.networking.request_timeout = transport.LIST_TIMEOUT
    settings.networking.connect_timeout = transport.CONNECT_TIMEOUT
    settings.networking.error_backoffs = tuple(map(jittered, _BACKOFFS))
    settings.persistence.finalizer = "dynsched.io/never-set"
    return settings


class NodeWatch:
    """Keeps ``store`` current while `run` runs. ``relist``: seconds between two lists."""

    def __init__(self, client: KubeClient, *, relist: float = RELIST) -> None:
        self.store = NodeStore()
        self._client = client
        self._relist = relist
        self._given: KubeConfig | None = None
        self._given_at = -math.inf
        self._logins = Backoff(2.0, 32.0)

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set. ForbiddenError, and SetupError at the start."""
        backoff = Backoff(1.0, 30.0)
        while not (self.store.synced or stop.is_set()):
            if not await self._list():
                await pause(stop, backoff.next())
        if not stop.is_set():
            server = self._client.config.server
            logger.info("watching %d nodes at %s", len(self.store.nodes()), server)
        tasks = [asyncio.create_task(work(stop)) for work in (self._watch, self._relist_until)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _relist_until(self, stop: asyncio.Event) -> None:
        wait = self._relist
        while not stop.is_set():
            await pause(stop, wait)
            if not stop.is_set():
                wait = self._relist if await self._list() else min(RETRY, self._relist)

    async def _list(self) -> bool:
        """List all nodes into the store; returns whether that succeeded."""
        since = self.store.changes
        try:
            self.store.correct(await self._client.list_nodes(), since)
        except ClusterError as error:
            at_start = isinstance(error, SetupError) and not self.store.synced
            if at_start or isinstance(error, ForbiddenError):
                raise
            self._failed(error)
            return False
        self.store.error = None
        return True

    def _failed(self, error: ClusterError) -> None:
        if str(error) != self.store.error:
            logger.warning("the known nodes may be outdated: %s", error)
        self.store.error = str(error)

    async def _watch(self, stop: asyncio.Event) -> None:
        backoff = Backoff(0.5, 30.0)
        while not stop.is_set():
            began = time.monotonic()
            error = _explained(self._client.config.server, await self._run_kopf(stop))
            if stop.is_set():
                return
            if isinstance(error, ForbiddenError):
                raise error
            self._failed(error)
            if time.monotonic() - began > _LASTED:
                backoff.reset()
            await pause(stop, backoff.next())
            if not stop.is_set():
                await self._list()  # for changes in the meantime

    async def _run_kopf(self, stop: asyncio.Event) -> BaseException | None:
        """Run kopf until ``stop`` is set or kopf ends; returns the error that ended it, if any."""
        stopping: concurrent.futures.Future[None] = concurrent.futures.Future()
        loop = asyncio.get_running_loop()
        self._given = None
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def operate() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._operate(stopping, loop))
            except Exception as failed:  # noqa: BLE001 (any error that ends kopf is reported)
                error = failed
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, ended, error)

        threading.Thread(target=operate, name="kopf", daemon=True).start()
        try:
            await until_done(stop, ended)
        finally:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # kopf has ended
                stopping.set_result(None)
        await asyncio.wait({ended}, timeout=STOP_TIMEOUT)
        return ended.result() if ended.done() else None

    async def _operate(
        self, stopping: concurrent.futures.Future[None], ours: asyncio.AbstractEventLoop
    ) -> None:
        # Not a threading.Event: kopf would wait for it in a thread, which does not end with kopf.
        stop_flag = asyncio.wrap_future(stopping)
        # kopf logs each attempt and each object. The error that ends it is logged once, by us.
        verbose = logging.getLogger().isEnabledFor(logging.DEBUG)
        logging.getLogger("kopf").setLevel(logging.NOTSET if verbose else logging.CRITICAL)
        logging.getLogger("kopf.objects").setLevel(logging.WARNING if verbose else logging.CRITICAL)
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login", backoff=MIN_GAP)(partial(self._login, ours))
        kopf.on.event("", "v1", "nodes", registry=registry, id="node")(self._observe)
        try:
            await kopf.operator(
                registry=registry,
                settings=kopf_settings(),
                clusterwide=True,
                standalone=True,
                stop_flag=stop_flag,
                # Else kopf looks up the user's name, and an arbitrary UID in a pod has none.
                identity=cast("Any", "dynsched"),
            )
        finally:
            stop_flag.cancel()

    async def _observe(self, event: kopf.RawEvent, **_: object) -> None:
        """Handle one event, in kopf's thread. Its type is None for an object from kopf's list."""
        node = node_of(event["object"])
        if node is None:
            logger.warning("ignored an event of the watch that has no usable node")
        elif event["type"] == "DELETED":
            self.store.drop(node.name, node.uid)
        else:
            self.store.offer(node)

    async def _login(self, ours: asyncio.AbstractEventLoop, **_: object) -> kopf.AiohttpSession:
        """A session with the current credentials. They are loaded in ``ours``, the event loop of
        all other clients. kopf calls this at the start, when they have expired, and after a 401.
        """
        if time.monotonic() - self._given_at < MIN_GAP:
            # If the API server keeps answering 401, kopf would log in again at once, forever.
            await asyncio.sleep(self._logins.next())
        else:
            self._logins.reset()
        loading = self._client.credentials.current(refused=self._given)
        config = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(loading, ours))
        self._given, self._given_at = config, time.monotonic()
        expiration = None
        if config.refresh_at is not None:
            left = max(config.refresh_at - self._given_at, MIN_GAP) + 1.0
            expiration = datetime.now(UTC) + timedelta(seconds=left)
        return kopf.AiohttpSession(
            server=config.configuration.host,
            aiohttp_session=_session(config),
            expiration=expiration,
        )


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _session(config: KubeConfig) -> aiohttp.ClientSession:
    async def login(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Add the login's headers and the TLS server name. aiohttp would send the headers of a
        session to its proxy too, unencrypted.
        """
        request.headers.extend(config.headers)
        if config.configuration.tls_server_name:
            request.server_hostname = config.configuration.tls_server_name
        return await handler(request)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=config.ssl_context or True),
        headers={"User-Agent": transport.USER_AGENT},
        proxy=config.configuration.proxy,
        **{**transport.SESSION, "middlewares": (login, *transport.SESSION["middlewares"])},
    )


def _explained(server: str, error: BaseException | None) -> ClusterError:
    """Why kopf ended, as an error with a message for people."""
    status = getattr(error, "status", None)  # kopf's APIError is not public
    if error is None:
        return ClusterError("the watch of nodes ended unexpectedly")
    if isinstance(error, aiohttp.ClientConnectionError | TimeoutError):
        return failures.from_exception(_WATCH, server, error, transport.LIST_TIMEOUT)
    if status == HTTPStatus.FORBIDDEN:
        return failures.forbidden(_WATCH, server, str(getattr(error, "message", None) or ""))
    if isinstance(error, kopf.LoginError):
        return ClusterError(f"cannot {_WATCH}: {server} does not accept the credentials")
    if isinstance(status, int):
        return ClusterError(f"cannot {_WATCH}: {server} answered {status}")
    return ClusterError(f"the watch of nodes ended: {type(error).__name__}: {error}"[:300])
