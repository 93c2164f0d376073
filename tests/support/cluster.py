"""One interface to a cluster in two forms: the simulated one, and a real API server.

An assertion made through it must hold for both; any difference is a bug in ``dynsched_sim``.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import aiohttp
from certificates import Authority
from envtest import Envtest
from sim_readers import SimReaders

from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.examples import make_node

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

_MARKER = "marker-"
_SERVERS_OWN = "apiserver-"
"""Prefix of the Leases that the API server renews for itself."""
_COLLECTIONS = (NODES, EVENTS, "/api/v1/namespaces/default/pods")


@dataclass(frozen=True)
class Answer:
    """A response, read to its end. ``body`` is the decoded JSON, or None if it is not JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]
    text: str

    @property
    def ok(self) -> Any:
        assert self.status < 300, self.text
        return self.body


@dataclass(frozen=True)
class Write:
    """One write request to the API server, accepted or not."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    manager: str
    user_agent: str
    status: int
    body: Any


class Cluster(ABC):
    """The interface. ``kubeconfig`` is the admin's; ``url`` is the API server's."""

    form: str
    url: str
    token: str | None
    kubeconfig: Path
    session: aiohttp.ClientSession
    """Set while the cluster is entered."""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self.ssl() or True)
        agent = {"User-Agent": "tests/1"}
        self.session = aiohttp.ClientSession(self.url, connector=connector, headers=agent)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    def ssl(self) -> ssl.SSLContext | None:
        return None

    @abstractmethod
    async def writes(self, resource: str = "nodes") -> list[Write]:
        """The writes to a resource since the test began, oldest first."""

    @abstractmethod
    async def compact(self) -> None:
        """Make older resourceVersions expire."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        **params: str | int,
    ) -> Answer:
        """Send any request. ``params`` is the query; ``body`` is sent as JSON unless bytes."""
        sent = self._authorized(headers, token)
        if body is not None:
            default = MERGE if method == "PATCH" else "application/json"
            sent["Content-Type"] = content_type or default
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        async with self.session.request(
            method, path, data=data, headers=sent, params=params
        ) as response:
            text = await response.text()
            is_json = response.content_type.startswith("application/json")
            parsed = json.loads(text) if is_json and text else None
            return Answer(response.status, parsed, response.headers, text)

    def _authorized(
        self, headers: Mapping[str, str] | None, token: str | None = None
    ) -> dict[str, str]:
        token = token or self.token
        return {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}

    async def get(self, path: str, **params: str | int) -> Answer:
        return await self.request("GET", path, **params)

    async def post(self, path: str, body: Any, **params: str | int) -> Answer:
        return await self.request("POST", path, body, **params)

    async def put(self, path: str, body: Any, **params: str | int) -> Answer:
        return await self.request("PUT", path, body, **params)

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE, **params: str | int
    ) -> Answer:
        return await self.request("PATCH", path, body, content_type=content_type, **params)

    async def delete(self, path: str, body: Any = None, **params: str | int) -> Answer:
        return await self.request("DELETE", path, body, **params)

    @asynccontextmanager
    async def watch(self, path: str, **params: str | int) -> AsyncIterator[Watch]:
        """Open a watch until the block ends."""
        sent, query = self._authorized({}), {"watch": "1", **params}
        endless = aiohttp.ClientTimeout(total=None)
        async with self.session.get(path, headers=sent, params=query, timeout=endless) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)

    async def create_node(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return (await self.post(NODES, dict(body), fieldManager="creator")).ok

    async def create_nodes(self, *names: str) -> None:
        for index, name in enumerate(names):
            await self.create_node(make_node(name, index))

    async def get_node(self, name: str) -> dict[str, Any]:
        return (await self.get(f"{NODES}/{name}")).ok

    async def patch_node(
        self, name: str, patch: Mapping[str, Any], *, field_manager: str = "tests"
    ) -> dict[str, Any]:
        """Change a node as another client would."""
        answer = await self.patch(f"{NODES}/{name}", dict(patch), fieldManager=field_manager)
        return answer.ok

    async def delete_node(self, name: str) -> None:
        _ = (await self.delete(f"{NODES}/{name}")).ok

    async def list_nodes(self, selector: str = "") -> list[dict[str, Any]]:
        return (await self.get(NODES, labelSelector=selector)).ok["items"]

    async def list_events(self, name: str = "", kind: str = "Node") -> list[dict[str, Any]]:
        """The Events on all objects of a kind, or on the one with this name."""
        selector = f"involvedObject.kind={kind}" + (f",involvedObject.name={name}" if name else "")
        return (await self.get("/api/v1/events", fieldSelector=selector)).ok["items"]

    async def get_lease(self, name: str, namespace: str = "default") -> dict[str, Any] | None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        answer = await self.get(path)
        return None if answer.status == 404 else answer.ok

    async def create_namespace(self, name: str) -> None:
        answer = await self.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert answer.status in {201, 409}, answer.text


class Watch:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, timeout: float = 60.0) -> dict[str, Any] | None:  # noqa: ASYNC109
        """The next event; None if the server has ended the watch."""
        line = b""
        async with asyncio.timeout(timeout):
            # readline limits the length of a line, and a node is longer than that.
            while not line.endswith(b"\n"):
                part = await self._response.content.readuntil(b"\n")
                if not part:
                    break
                line += part
        return json.loads(line) if line.strip() else None

    async def rest(self, timeout: float = 60.0) -> list[dict[str, Any]]:  # noqa: ASYNC109
        events = []
        while (event := await self.next(timeout)) is not None:
            events.append(event)
        return events


class SimCluster(Cluster):
    """The simulated form. ``server`` gives access to faults and other features that only it has."""

    form = "sim"

    def __init__(self, folder: Path, **options: Any) -> None:
        self._ca = ""
        if "token" in options:  # clients send a token over TLS only
            authority = Authority(folder, "sim")
            self._ca = authority.cert
            tls = authority.server(authority.issue("server", "IP:127.0.0.1")), Path(self._ca)
            options |= {"tls": tls}
        self.server = ApiServer(**options)
        self.readers = SimReaders()
        self.server.reviews |= self.readers.reviews()
        self.token = self.server.token
        self._folder = folder

    async def __aenter__(self) -> Self:
        await self.server.start()
        self.url = self.server.url
        self.kubeconfig = self.server.kubeconfig(self._folder / "kubeconfig-sim")
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.server.stop()

    def ssl(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self._ca) if self._ca else None

    async def writes(self, resource: str = "nodes") -> list[Write]:
        parts = [each.name for each in fields(Write) if each.name != "body"]
        return [
            Write(
                *(getattr(record, part) for part in parts), record.json() if record.body else None
            )
            for record in self.server.requests.writes(resource)
        ]

    async def compact(self) -> None:
        self.server.store.compact()


class EnvtestCluster(Cluster):
    """The real form: the servers of the session, emptied before each test."""

    form = "envtest"

    def __init__(self, servers: Envtest, folder: Path) -> None:
        self.servers = servers
        self.url = servers.url
        self.token = servers.token
        self.kubeconfig = servers.kubeconfig(folder / "kubeconfig-envtest")
        self._audited_from = 0

    def ssl(self) -> ssl.SSLContext | None:
        return self.servers.ssl()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.clean()
        await self._settle()
        self._audited_from = self.servers.audit_log.stat().st_size
        return self

    async def clean(self) -> None:
        """Delete what earlier tests left behind."""
        for path in _COLLECTIONS:
            _ = (await self.delete(path, gracePeriodSeconds=0)).ok
        events = (await self.get("/api/v1/events")).ok["items"]
        for namespace in {event["metadata"]["namespace"] for event in events}:
            _ = (await self.delete(f"/api/v1/namespaces/{namespace}/events")).ok
        for group, what, kept in (
            ("/api/v1", "services", "kubernetes"),
            ("/apis/coordination.k8s.io/v1", "leases", _SERVERS_OWN),
        ):
            found = (await self.get(f"{group}/{what}")).ok["items"]
            for meta in (each["metadata"] for each in found):
                if not meta["name"].startswith(kept):  # the server's own
                    place = f"{group}/namespaces/{meta['namespace']}/{what}"
                    await self.delete(f"{place}/{meta['name']}")

    async def writes(self, resource: str = "nodes") -> list[Write]:
        await self._settle()
        with self.servers.audit_log.open("rb") as log:
            log.seek(self._audited_from)
            # The last line may be incomplete; `_settle` put all requests so far before it.
            entries = [json.loads(line) for line in log if line.endswith(b"\n")]
        found = [_audited(entry) for entry in entries]
        not_theirs = (_MARKER, _SERVERS_OWN)
        return [w for w in found if w.resource == resource and not w.name.startswith(not_theirs)]

    async def _settle(self) -> None:
        """Wait until all requests so far are in the audit log."""
        marker = f"{_MARKER}{uuid.uuid4()}"
        await self.patch(f"{NODES}/{marker}", {})
        async with asyncio.timeout(90):
            while not re.search(rf"{marker}.*\n", self.servers.audit_log.read_text()):
                await asyncio.sleep(0.01)

    async def compact(self) -> None:
        await asyncio.to_thread(self.servers.compact)


def _audited(entry: dict[str, Any]) -> Write:
    target = entry.get("objectRef", {})
    query = parse_qs(urlsplit(entry["requestURI"]).query)
    place = {key: target.get(key, "") for key in ("resource", "subresource", "namespace", "name")}
    return Write(
        **place,
        verb=entry["verb"],
        manager=query.get("fieldManager", [""])[0],
        user_agent=entry.get("userAgent", ""),
        status=entry.get("responseStatus", {}).get("code", 0),
        body=entry.get("requestObject"),
    )
