"""Asks a running dynsched: at a URL that the user named (with the standard library alone, which
takes no time to import), or its Service, through the API server of the current context.
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
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


@dataclass(slots=True)
class Where:
    """Which dynsched the user means: the one at the URL ``server``, or the Service in the cluster
    of ``kubeconfig`` and ``context``, in ``namespace`` or in any. ``token_file``: the token that
    the one at ``server`` wants with --web-auth (the API server passes none on). ``timeout``:
    seconds without a byte after which the one at ``server`` counts as hung.
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
        # Here, not above: to import it takes half a second, which --server has no use for.
        from dynsched.kube.credentials import load_credentials

        if self._credentials is None:
            self._credentials = await load_credentials(self.kubeconfig, self.context)
        return self._credentials


class Answer(NamedTuple):
    """``source``: where it is from, for a person."""

    source: str
    status: int
    body: bytes


def ask_json(
    where: Where, path: str, *, key: str = "taken_at", accept: Collection[int] = (HTTPStatus.OK,)
) -> tuple[str, dict[str, Any]]:
    """The source and the JSON object at ``path`` (quoted). ServerError where it has no ``key``, or
    its status is not one to ``accept``; ExpectedError where there is no answer.
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
        raise ServerError(f"{answer.source} does not answer as dynsched does")
    return answer.source, found


def _by_url(url: str, path: str, where: Where) -> Answer:
    request = urllib.request.Request(f"{url}{path}", headers={"Accept": "application/json"})  # noqa: S310 (http or https: _url_of)
    if where.token_file is not None:
        if not _is_private(url):
            raise ServerError(
                f"the token in {where.token_file} is not sent to {url}: by plain HTTP anybody on "
                "the way could read it; use https://, or `kubectl port-forward` and localhost"
            )
        # Not to where a redirect leads: that may be another host.
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
    """Whether nobody can read on the way: by TLS, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _url_of(server: str) -> str:
    """The URL that ``--server`` names. ``:PORT`` is on this machine, as it is for --webaddr."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError("--server is not a URL like http://localhost:9000")
    return parts.geturl().rstrip("/")


def _refusal(answer: Answer) -> str:
    """An answer with an error status as one line: dynsched's own words where they are."""
    try:
        message = " ".join(str(json.loads(answer.body)["error"]).split())
    except (ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or another program on that port.
        status = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        return f"{answer.source} answered {status}; is it dynsched?"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        message += (
            "; name a file that holds the token with --server-token-file, and --server too: the "
            "API server passes no token on"
        )
    return message
