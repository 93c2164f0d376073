"""Which running dynsched a command asks, and how: by a URL, or by its Service in the cluster
through the API server, with the user's kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from dynsched.tools import http_client
from dynsched.tools.http_client import Answer, ServerError
from dynsched.util.defaults import DEFAULT_SERVER
from dynsched.util.errors import ClusterError
from dynsched.util.proxies import proxy_for, through

if TYPE_CHECKING:
    from dynsched.kube.services import Service
    from dynsched.kube.transport import KubeApi

LOCAL_TIMEOUT: Final = 2.0
"""Seconds in which a dynsched on this machine says that it is one. Other programs listen on that
port too, and not all of them speak HTTP."""


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said about which dynsched to ask.

    ``server``: its URL, and ``token_file`` the token that it wants with --web-auth; the API server
    passes none on. Without ``server``, the one at DEFAULT_SERVER if ``tries_local`` and one answers
    there, else the Service in the cluster that ``kubeconfig`` and ``context`` name, in
    ``namespace`` or in any. ``timeout``: seconds for an answer; None for the usual ones.
    """

    server: str | None = None
    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    tries_local: bool = True
    timeout: float | None = None


class Running(ABC):
    """A running dynsched. ``shown``: where it is, for a person; ``remedy``: what to do where it
    wants a token; ``by``: the proxy on the way.
    """

    shown: str
    remedy: str
    by: str = ""

    @abstractmethod
    def raw(self, path: str, etag: str | None = None) -> Answer:
        """What it answers at ``path`` (quoted), whatever the status. ExpectedError."""

    def ask(self, path: str, etag: str | None = None) -> Answer:
        """What it answers. ExpectedError for everything but 200, and 304 where ``etag`` still
        holds.
        """
        answer = self.raw(path, etag)
        if answer.status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            return answer
        needs_token = answer.status == HTTPStatus.UNAUTHORIZED
        why = http_client.refusal(self.shown, answer) + (self.remedy if needs_token else "")
        raise ServerError(why + self.by)

    def nodes(self, *, marked: bool) -> dict[str, Any]:
        """`/nodes`, or those of them that carry the mark."""
        return self.read(self.ask(nodes_path(marked=marked)))

    def node(self, name: str) -> dict[str, Any]:
        """`/nodes/NAME`."""
        return self.read(self.ask(f"/nodes/{quote(name, safe='')}"))

    def read(self, answer: Answer, *, key: str = "taken_at") -> dict[str, Any]:
        """The JSON object of an answer; ServerError where it has no ``key``, as another's."""
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or key not in found:
            raise ServerError(f"{self.shown} does not answer as dynsched does; use --server URL")
        return found


def nodes_path(*, marked: bool) -> str:
    """The path of all nodes, or of those that carry the mark."""
    return "/nodes?marked=true" if marked else "/nodes"


class ByUrl(Running):
    """A dynsched that is asked directly."""

    def __init__(
        self, server: str, timeout: float | None = None, token_file: Path | None = None
    ) -> None:
        self.shown = http_client.url_of(server)
        self.remedy = (
            f"; it was read from --server-token-file {token_file}"
            if token_file
            else "; name a file that holds the token with --server-token-file"
        )
        self._token_file = token_file
        self._timeout = timeout or http_client.TIMEOUT

    def raw(self, path: str, etag: str | None = None) -> Answer:
        answer = http_client.ask(
            self.shown, path, etag=etag, token_file=self._token_file, timeout=self._timeout
        )
        self.by = through(proxy_for(self.shown))
        return answer


class InCluster(Running):
    """A dynsched that is asked through the API server. Closed with `close`."""

    remedy = (
        "; the API server passes no token on: use a port-forward, --server and --server-token-file"
    )

    def __init__(self, where: Where) -> None:
        # One loop for as long as this lives: connections belong to it.
        self._runner = asyncio.Runner()
        self._timeout = where.timeout
        try:
            self._api, self.service = self._runner.run(_opened(where))
        except BaseException:
            self._runner.close()
            raise
        self.shown = f"the {self.service}"

    def raw(self, path: str, etag: str | None = None) -> Answer:
        """ClusterError for what the API server refuses."""
        from dynsched.kube import services

        timeout = self._timeout or services.TIMEOUT
        asked = services.ask_service(self._api, self.service, path, etag=etag, timeout=timeout)
        answer = self._runner.run(asked)
        return Answer(answer.status, answer.body, answer.headers.get("ETag"))

    def close(self) -> None:
        """Close the connections."""
        try:
            self._runner.run(self._api.close())
        finally:
            self._runner.close()


async def _opened(where: Where) -> tuple[KubeApi, Service]:
    # Here, not above: to import them takes half a second, which --server has no use for.
    from dynsched.kube.kubeconfig import load_config
    from dynsched.kube.services import find_service
    from dynsched.kube.transport import KubeApi

    api = KubeApi(await load_config(where.kubeconfig, where.context))
    try:
        async with asyncio.timeout(where.timeout):
            return api, await find_service(api, where.namespace)
    except BaseException:
        await api.close()
        raise


@contextmanager
def opened(where: Where) -> Iterator[Running]:
    """The dynsched that is to be asked. ExpectedError where none is found."""
    if where.server is not None:
        yield ByUrl(where.server, where.timeout, where.token_file)
        return
    if where.tries_local and _answers(ByUrl(DEFAULT_SERVER, LOCAL_TIMEOUT, where.token_file)):
        yield ByUrl(DEFAULT_SERVER, where.timeout, where.token_file)
        return
    try:
        found = InCluster(where)
    except ClusterError as error:
        if not where.tries_local:
            raise
        raise ServerError(
            f"found no running dynsched: none answers at {DEFAULT_SERVER}; {error}; or name its "
            "URL with --server"
        ) from None
    try:
        yield found
    finally:
        found.close()


def _answers(local: ByUrl) -> bool:
    """Whether it is a dynsched, if only one that wants a token, or is not well."""
    try:
        answer = local.raw("/status")
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            local.read(answer, key="error")
        elif answer.status in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
            local.read(answer, key="dry_run")
        else:
            return False
    except ServerError:
        return False
    return True
