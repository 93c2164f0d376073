"""A simulated kube-apiserver on loopback, complete enough for what dynsched uses.

    async with ApiServer() as server:
        server.objects.create("nodes", make_node("worker-1", 1))
        kubeconfig = server.kubeconfig(Path("kubeconfig"))   # for kubectl, or for dynsched

It speaks plain HTTP unless ``tls`` is given, keeps all objects in memory and records the requests
(``server.requests``). Tests inject failures with ``server.faults``, ``down()`` and ``up()``,
``drop_watches()``, ``restore()`` and ``store.compact()``.
``server.serves_metrics`` adds NodeMetrics, which are created like any other object.
``server.reviews`` maps the path of an access review to the function that answers it, and
``server.proxy.backends`` maps a Service to the URL that the service proxy forwards to.
Start the server and touch its objects in the same event loop's thread.

Any difference from the real server is a bug here: the tests run against both.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from dynsched_sim.apiserver import api_errors, requested, resources, rest, service_proxy
from dynsched_sim.apiserver.faults import Fault, Faults
from dynsched_sim.apiserver.objects import Objects
from dynsched_sim.apiserver.record import RequestLog, RequestRecord
from dynsched_sim.apiserver.render import encode
from dynsched_sim.apiserver.service_proxy import ServiceProxy
from dynsched_sim.apiserver.store import HISTORY, Backup, Store
from dynsched_sim.apiserver.watch import Watches

_HOST: Final = "127.0.0.1"
_REQUESTS_KEPT: Final = 20_000
_BODY_KEPT: Final = 64 * 1024  # bytes of a request's body that the record keeps
_STOP_GRACE: Final = 1.0
_OWN_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Review = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Maps the ``spec`` of an access review to its ``status``."""


class ApiServer:
    """The server, as an async context manager; ``start`` and ``stop`` do the same explicitly.

    ``token``: bearer token that every request must carry; clients send it only over TLS.
    ``tls``: the server's TLS context, and the CA file that kubeconfigs name.
    ``forbidden``: denied (verb, resource) pairs; can be changed at any time.
    ``history``: number of changes per resource that a watch can start from.
    ``idle_timeout``: seconds after which a connection without a request is closed.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        tls: tuple[ssl.SSLContext, Path] | None = None,
        history: int = HISTORY,
        idle_timeout: float = 3630.0,  # clients usually close an idle connection earlier
    ) -> None:
        self.port = 0
        self.token = token
        self._tls = tls
        self.forbidden: set[tuple[str, str]] = set()
        self.reviews: dict[str, Review] = {_OWN_REVIEWS: self._own_rights}
        self.store = Store(history=history)
        self.objects = Objects(self.store)
        self.requests = RequestLog(maxlen=_REQUESTS_KEPT)
        self.faults = Faults()
        self.serves_metrics = False
        self.proxy = ServiceProxy(self.objects)
        self._idle_timeout = idle_timeout
        self._watches = Watches(self.store)
        self._rest = rest.Rest(self.objects, self._watches)
        self._http: web.Server | None = None
        self._listening: asyncio.Server | None = None

    # --- lifecycle ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start to listen; sets ``port`` to the port that was chosen."""
        # Handlers are cancelled on disconnect, because a watch must not outlive its client.
        self._http = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=self._idle_timeout,
        )
        await self.up()

    async def stop(self) -> None:
        self._watches.end()
        if self._http is not None:
            await asyncio.sleep(0)  # let the watches send their last events
            self._close_listener()
            await self._http.shutdown(_STOP_GRACE)
            self._http = None

    async def up(self) -> None:
        assert self._http is not None, "it was never started"  # noqa: S101
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self._http,
            _HOST,
            self.port,
            ssl=self._tls and self._tls[0],
            reuse_address=True,
            backlog=1024,
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse new connections and cut the open ones; the objects are kept."""
        self._close_listener()
        if self._http is not None:
            for connection in tuple(self._http.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await asyncio.sleep(0)

    def _close_listener(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    # --- for callers ---

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{_HOST}:{self.port}"

    def kubeconfig(self, path: Path) -> Path:
        user = {"token": self.token} if self.token else {}
        ca = {"certificate-authority": str(self._tls[1])} if self._tls else {}
        return write_kubeconfig(path, "sim", user, {"server": self.url, **ca})

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def drop_watches(self, how: str = "end") -> int:
        """End all open watches: ``end`` cleanly, ``gone`` with a 410, ``cut`` with a reset."""
        if how == "cut":
            return self._watches.cut()
        return self._watches.end(gone=how == "gone")

    async def restore(self, backup: Backup) -> None:
        """Stop, restore a backup made with ``store.back_up``, and start again.

        Versions continue from the backup's, so new objects reuse versions that clients have seen.
        """
        await self.down()
        self.store.restore(backup)
        await self.up()

    # --- request handling ---

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        record = RequestRecord(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            user_agent=request.headers.get("User-Agent", ""),
            time=time.time(),
        )
        self.requests.append(record)
        body = await request.read()
        record.body = body[:_BODY_KEPT]
        try:
            target = service_proxy.target_of(request.rel_url.raw_path)
            served = resources.ALL if self.serves_metrics else resources.ALWAYS
            target = target or requested.parse(request.path, served)
            if target is not None:
                record.resource, record.namespace = target.resource.name, target.namespace
                record.name, record.subresource = target.name or _named_in(body), target.subresource
                record.verb = requested.verb_of(request.method, target, request.query)
            response = await self._answer(request, record, target, body)
        except api_errors.ApiError as error:
            response = rest.respond(encode(error.body), error.code)
        if request.transport is not None and not request.transport.is_closing():
            record.status = response.status
        return response

    async def _answer(
        self,
        request: web.BaseRequest,
        record: RequestRecord,
        target: requested.Target | None,
        body: bytes,
    ) -> web.StreamResponse:
        """Serve the request, with the armed faults applied before or after it."""
        afterwards: Fault | None = None
        for fault in self.faults.struck(record):
            if fault.seconds is not None:
                await asyncio.sleep(fault.seconds)
            elif fault.after:
                afterwards = fault
            else:
                return _fail(request, fault)
        if afterwards is None:
            return await self._serve(request, record, target, body)
        with suppress(api_errors.ApiError):  # the fault replaces error responses too
            await self._serve(request, record, target, body)
        return _fail(request, afterwards)

    async def _serve(
        self,
        request: web.BaseRequest,
        record: RequestRecord,
        target: requested.Target | None,
        body: bytes,
    ) -> web.StreamResponse:
        self._authenticate(request)
        if target is None:
            return self._about(request, body)
        resource, verb = target.resource, record.verb
        if (verb, f"{resource.name}/{target.subresource}".rstrip("/")) in self.forbidden:
            where = target.name, target.namespace
            raise api_errors.forbidden(resource, *where, verb, target.subresource)
        if target.subresource == "proxy":
            return await self.proxy.answer(target, request)
        if verb == "watch":
            record.status = 200  # a watch counts as answered while it streams
        return await self._rest.answer(rest.Call(request, target, verb, request.query, body))

    def _about(self, request: web.BaseRequest, body: bytes) -> web.Response:
        """Answer discovery and access reviews; 404 for any other path."""
        review = self.reviews.get(request.path)
        if review is not None:
            _, _, group, _, plural = request.path.split("/")
            if ("create", plural) in self.forbidden:
                raise api_errors.forbidden(resources.Resource(group, plural, ""), "", "", "create")
            request_body = msgspec.json.decode(body)
            answer = {**request_body, "status": review(request_body["spec"])}
            return rest.respond(encode(answer), 201)
        found = resources.DOCUMENTS.get(request.path.rstrip("/"))
        if found is None:
            return web.Response(text="404 page not found\n", status=404)
        return rest.respond(encode(found))

    def _own_rights(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        what = spec["resourceAttributes"]
        name = f"{what['resource']}/{what.get('subresource', '')}".rstrip("/")
        return {"allowed": (what["verb"], name) not in self.forbidden}

    def _authenticate(self, request: web.BaseRequest) -> None:
        if self.token is None:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise api_errors.ApiError(401, "Unauthorized", "Unauthorized")


def write_kubeconfig(
    path: Path, name: str, user: Mapping[str, str], cluster: Mapping[str, str]
) -> Path:
    """Write a kubeconfig with one cluster, user and context of this name; returns ``path``."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")  # JSON is YAML
    path.chmod(0o600)
    return path


def _named_in(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["metadata"]["name"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _fail(request: web.BaseRequest, fault: Fault) -> web.Response:
    if not fault.status:
        transport = request.transport
        if transport is not None:
            # Linger for 0 s, so that the client sees a reset instead of a clean end.
            connection = transport.get_extra_info("socket")
            option = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
            transport.abort()
        return web.Response()  # the client is gone
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
    if isinstance(fault.body, str):
        return web.Response(text=fault.body, status=fault.status, headers=headers)
    headers["Content-Type"] = "application/json"
    return web.Response(body=encode(fault.body), status=fault.status, headers=headers)
