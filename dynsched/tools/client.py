"""Which running dynsched a command asks, and how: by a URL (with the standard library alone: that
takes no time to import), or by its Service through the API server, with the user's kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.defaults import DEFAULT_SERVER
from dynsched.util.errors import ClusterError, ExpectedError, NotRunningError
from dynsched.util.files import FileTooLargeError, read_file
from dynsched.util.proxies import ProxyError, opener, parse_http_url, proxy_for, through

if TYPE_CHECKING:
    from dynsched.kube.services import Service
    from dynsched.kube.transport import KubeApi

TIMEOUT: Final = 10.0
"""Seconds without a byte after which the server counts as hung."""
LOCAL_TIMEOUT: Final = 2.0
"""Seconds in which a dynsched on this machine says that it is one. Other programs listen on that
port too, and not all of them speak HTTP."""
_NO_TOKEN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_LOOKS: Final = 4
"""How often it is asked, a second apart, for what Prometheus has to be asked for."""
_MAX_TOKEN_BYTES: Final = 64 * 1024
_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.REFUSED: "is dynsched running? use --server URL",
    Cause.BROKEN: "try again",
    Cause.NOT_TLS: "is it http:// instead of https://? use --server URL",
    Cause.UNTRUSTED: "name the CA file that signed it in SSL_CERT_FILE, or use --server URL",
}


class ServerError(ExpectedError):
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


class Response(NamedTuple):
    """An answer; with status 304, it has no body. ``etag`` is its name."""

    status: int
    body: bytes
    etag: str | None


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said about which dynsched to ask: ``server``, its URL, and ``token_file``, the
    token that it wants with --web-auth (the API server passes none on). Without ``server``, the one
    at DEFAULT_SERVER if ``tries_local`` and one answers there, else the Service in the cluster that
    ``kubeconfig`` and ``context`` name, in ``namespace`` or in any. ``timeout``: seconds for an
    answer; None for the usual ones.
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
    def raw(self, path: str, etag: str | None = None) -> Response:
        """What it answers at ``path`` (quoted), whatever the status. ExpectedError."""

    def ask(self, path: str, etag: str | None = None) -> Response:
        """ExpectedError for everything but 200, and 304 where ``etag`` still holds."""
        answer = self.raw(path, etag)
        if answer.status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            return answer
        needs_token = answer.status == HTTPStatus.UNAUTHORIZED
        why = _refusal(self.shown, answer) + (self.remedy if needs_token else "")
        raise ServerError(why + self.by)

    def json(self, path: str, *, key: str = "taken_at") -> dict[str, Any]:
        """The JSON object at ``path``; ServerError where it has no ``key``, as another's."""
        return self.read(self.ask(path), key=key)

    def above(self, name: str) -> list[dict[str, Any]]:
        """The pods furthest above their requests on a node, where that is known: Prometheus is
        asked once somebody looks, so that the answer comes a moment later.
        """
        with contextlib.suppress(ServerError):  # an older one
            for attempt in range(_LOOKS):
                time.sleep(attempt and 1.0)
                found = self.json(f"/page/node?node={quote(name, safe='')}", key="above")["above"]
                if found is not None:
                    return list(found)
        return []

    def read(self, answer: Response, *, key: str = "taken_at") -> dict[str, Any]:
        """The JSON object of an answer; ServerError where it has no ``key``, as another's."""
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or key not in found:
            raise ServerError(f"{self.shown} does not answer as dynsched does; use --server URL")
        return found


def nodes_path(*, marked: bool) -> str:
    return "/nodes?marked=true" if marked else "/nodes"


class ByUrl(Running):
    def __init__(
        self, server: str, timeout: float | None = None, token_file: Path | None = None
    ) -> None:
        self.shown = _url_of(server)
        self.remedy = (
            f"; it was read from --server-token-file {token_file}"
            if token_file
            else "; name a file that holds the token with --server-token-file"
        )
        self._token_file = token_file
        self._timeout = timeout or TIMEOUT

    def raw(self, path: str, etag: str | None = None) -> Response:
        headers = {"Accept": "application/json"} | ({"If-None-Match": etag} if etag else {})
        request = urllib.request.Request(f"{self.shown}{path}", headers=headers)  # noqa: S310 (http or https: _url_of)
        if self._token_file is not None:
            # Not to where a redirect leads: that may be another host.
            request.add_unredirected_header("Authorization", f"Bearer {_token(self._token_file)}")
        try:
            self.by = through(proxy_for(self.shown))
            with opener().open(request, timeout=self._timeout) as response:
                return Response(response.status, response.read(), response.headers.get("ETag"))
        except ProxyError as error:
            raise ServerError(f"cannot ask {self.shown}: {error}") from None
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(OSError, http.client.HTTPException):
                return Response(error.code, error.read(), error.headers.get("ETag"))
            return Response(error.code, b"", None)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"cannot ask {self.shown}: {self._why(error)}{self.by}") from None

    def _why(self, error: Exception) -> str:
        found = find_failure(error)
        if found is None:
            return f"{str(error) or type(error).__name__}; use --server URL"
        if found.cause is Cause.TIMEOUT:
            return f"{no_answer(self._timeout)}; look at {self.shown}/status"
        return f"{found}; {_REMEDIES.get(found.cause, 'use --server URL')}"


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

    def raw(self, path: str, etag: str | None = None) -> Response:
        """ClusterError for what the API server refuses."""
        from dynsched.kube import services

        timeout = self._timeout or services.TIMEOUT
        asked = services.ask_service(self._api, self.service, path, etag=etag, timeout=timeout)
        answer = self._runner.run(asked)
        return Response(answer.status, answer.body, answer.headers.get("ETag"))

    def close(self) -> None:
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
        kind = NotRunningError if isinstance(error, NotRunningError) else ServerError
        raise kind(
            f"found no running dynsched: none answers at {DEFAULT_SERVER} (--server names another "
            f"URL); {error}"
        ) from None
    with contextlib.closing(found):
        yield found


def _answers(local: ByUrl) -> bool:
    """Whether it is a dynsched, if only one that wants a token, or is not well."""
    with contextlib.suppress(ServerError):
        answer = local.raw("/status")
        local.read(answer, key="error" if answer.status in _NO_TOKEN else "dry_run")
        return answer.status in (*_NO_TOKEN, HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
    return False


def _token(file: Path) -> str:
    try:
        found = read_file(str(file), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except (FileTooLargeError, UnicodeDecodeError):
        found = ""
    except OSError as error:
        raise ServerError(f"--server-token-file {file}: {error.strerror or error}") from None
    if not found or not found.isprintable() or " " in found:
        raise ServerError(f"--server-token-file {file}: it does not hold one token and no more")
    return found


def _url_of(server: str) -> str:
    """The URL that ``--server`` names. ``:PORT`` is on this machine, as it is for --webaddr."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError(f"--server is not a URL like {DEFAULT_SERVER}")
    return parts.geturl().rstrip("/")


def _refusal(shown: str, answer: Response) -> str:
    """An answer with an error status as one line: dynsched's own words where they are."""
    try:
        message = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or something else on that port.
        told = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        return f"{shown} answered {told}; is it dynsched? use --server URL"
    return " ".join(str(message).split())
