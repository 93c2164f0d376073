"""Queries a running dynsched: at a URL that the user named, or its Service, through the API server
of the current context. A URL is queried with the standard library alone, which imports fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.errors import ExpectedError
from dynsched.util.files import read_file
from dynsched.util.proxies import ProxyError, opener, parse_http_url, proxy_for, through

if TYPE_CHECKING:
    from dynsched.kube.credentials import CredentialProvider

_MAX_TOKEN_BYTES: Final = 64 * 1024
_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.REFUSED: "is dynsched running there? check --server",
    Cause.BROKEN: "try again",
    Cause.NOT_TLS: "is it http:// instead of https://? check --server",
    Cause.UNTRUSTED: "name the CA file that signed it in SSL_CERT_FILE, or check --server",
}


class ServerError(ExpectedError):
    """The query failed, or dynsched rejected it. The message is for the person at the terminal."""


@dataclass(slots=True)
class Where:
    """The instance to query: the one at the URL ``server``, or the Service in the cluster of
    ``kubeconfig`` and ``context``, in ``namespace`` (None: in any).

    ``token_file``: the token that ``server`` needs with --web-auth (the API server forwards none).
    ``timeout``: seconds without a byte after which ``server`` counts as hung.
    """

    server: str | None = None
    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    timeout: float = 10.0
    _credentials: CredentialProvider | None = field(default=None, init=False, repr=False)

    async def credentials(self) -> CredentialProvider:
        """The cluster's credentials, loaded once. Raises KubeConfigError."""
        # Imported here, because it takes half a second, and --server does not need it.
        from dynsched.kube.credentials import load_credentials

        if self._credentials is None:
            self._credentials = await load_credentials(self.kubeconfig, self.context)
        return self._credentials


class Answer(NamedTuple):
    """``source``: the cluster or URL that answered, for people."""

    source: str
    status: int
    body: bytes


def ask_json(
    where: Where, path: str, *, key: str = "taken_at", accept: Collection[int] = (HTTPStatus.OK,)
) -> tuple[str, dict[str, Any]]:
    """The source and the JSON object at ``path``, which must be URL-quoted.

    Raises ServerError if the object has no ``key``, or its status is not in ``accept``;
    ExpectedError if there is no answer.
    """
    if where.server is None:
        answer = asyncio.run(_by_service(where, path))
    else:
        answer = _by_url(_url_of(where.server), path, where)
    if answer.status not in accept:
        raise ServerError(_refusal(answer))
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or key not in found:
        raise ServerError(f"{answer.source} does not answer like dynsched; is it another program?")
    return answer.source, found


def _by_url(url: str, path: str, where: Where) -> Answer:
    request = urllib.request.Request(f"{url}{path}", headers={"Accept": "application/json"})  # noqa: S310 (http or https: _url_of)
    if where.token_file is not None:
        if not _is_private(url):
            raise ServerError(
                f"the token in {where.token_file} is not sent to {url}: over plain HTTP, others "
                "could intercept it; use https://, or `kubectl port-forward` and localhost"
            )
        # Not sent to the target of a redirect, which may be another host.
        request.add_unredirected_header("Authorization", f"Bearer {_token(where.token_file)}")
    source = f"server {url}"
    try:
        proxy = proxy_for(url)
        source += through(proxy)
        with opener(proxy).open(request, timeout=where.timeout) as response:
            return Answer(source, response.status, response.read())
    except ProxyError as error:
        raise ServerError(f"cannot ask {url}: {error}") from None
    except urllib.error.HTTPError as error:
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            return Answer(source, error.code, error.read())
        return Answer(source, error.code, b"")
    except (OSError, http.client.HTTPException) as error:
        why = f"{_why(error, url, where.timeout)}{through(proxy)}"
        raise ServerError(f"cannot ask {url}: {why}") from None


def _why(error: Exception, url: str, timeout: float) -> str:
    found = find_failure(error)
    if found is None:
        return f"{str(error) or type(error).__name__}; check --server"
    if found.cause is Cause.TIMEOUT:
        return f"{no_answer(timeout)}; look at {url}/status"
    return f"{found}; {_REMEDIES.get(found.cause, 'check --server')}"


async def _by_service(where: Where, path: str) -> Answer:
    from dynsched.kube import services
    from dynsched.kube.transport import KubeApi

    async with KubeApi(await where.credentials()) as api:
        service = await services.find_service(api, where.namespace)
        answer = await services.ask_service(api, service, path)
        return Answer(f"cluster {api.config.cluster}", answer.status, answer.body)


def _token(file: Path) -> str:
    try:
        found = read_file(str(file), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except UnicodeDecodeError:
        found = ""
    except OSError as error:
        raise ServerError(f"--server-token-file {file}: {error.strerror or error}") from None
    if not found or not found.isprintable() or " " in found:
        raise ServerError(f"--server-token-file {file}: it does not hold one token and no more")
    return found


def _is_private(url: str) -> bool:
    """Whether nobody can intercept the connection: it uses TLS, or stays on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _url_of(server: str) -> str:
    """The URL in ``--server``. As in --webaddr, ``:PORT`` is a port of this machine."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError("--server is not a URL like http://localhost:9000")
    return parts.geturl().rstrip("/")


def _refusal(answer: Answer) -> str:
    """An error response as one line: dynsched's own message, if it has one."""
    try:
        message = " ".join(str(json.loads(answer.body)["error"]).split())
    except (ValueError, KeyError, TypeError):
        # It is not from dynsched, but from a proxy, an ingress, or another program on that port.
        status = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        return f"{answer.source} answered {status}; is it dynsched?"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        message += (
            "; name a file that holds the token with --server-token-file, and --server too: the "
            "API server passes no token on"
        )
    return message
