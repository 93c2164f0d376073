"""Asks a running dynsched: for the commands ``nodes`` and ``why``. Synchronous, standard library.

Every failure is a ServerError, one line with the cause and what to do.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote

from dynsched.core.defaults import DEFAULT_SERVER
from dynsched.core.errors import ExpectedError
from dynsched.plumbing.connection_errors import Cause, find_failure, no_answer
from dynsched.plumbing.files import TooLargeError, read_file
from dynsched.plumbing.proxies import ProxyError, opener, proxy_for, through
from dynsched.plumbing.urls import parse_http_url

_PAGES: Final = frozenset({"nodes", "status", "rules", "metrics", "healthz", "readyz"})
_MAX_TOKEN_BYTES: Final = 64 * 1024
TIMEOUT: Final = 10.0
"""Seconds without a byte after which the server counts as hung."""


class ServerError(ExpectedError):
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


def fetch(
    server: str, path: str, *, token_file: Path | None = None, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """What the dynsched at ``server`` answers at `/nodes` or `/nodes/NAME` (given unquoted).
    ``token_file`` holds the bearer token that it wants with --web-auth.
    """
    body, shown = _get(server, path, timeout, token_file)
    return _mapping(body, shown)


def fetch_metrics(server: str, *, timeout: float = TIMEOUT) -> str:
    """What the dynsched at ``server`` answers at `/metrics`."""
    body, _ = _get(server, "/metrics", timeout)
    return body.decode(errors="replace")


def _get(
    server: str, path: str, timeout: float, token_file: Path | None = None
) -> tuple[bytes, str]:
    """The body, and the server's URL as it may be shown."""
    base = _split(server)
    url = f"{base.geturl().rstrip('/')}{quote(path, safe='/?=&')}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (http or https: _split)
    if token_file is not None:
        # Not to where a redirect leads: that may be another host.
        request.add_unredirected_header("Authorization", f"Bearer {_token(token_file)}")
    shown = base.geturl()
    try:
        proxy = proxy_for(url)
        with opener().open(request, timeout=timeout) as response:
            return response.read(), shown
    except ProxyError as error:
        raise ServerError(f"cannot ask {shown}: {error}") from None
    except urllib.error.HTTPError as error:
        with error:
            raise ServerError(_refusal(shown, error) + through(proxy)) from None
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(_no_answer(shown, error, timeout) + through(proxy)) from None


def _token(file: Path) -> str:
    try:
        found = read_file(str(file), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except TooLargeError:
        found = ""
    except OSError as error:
        raise ServerError(f"--server-token-file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        found = ""
    if not found or not found.isprintable() or " " in found:
        raise ServerError(f"--server-token-file {file}: it does not hold one token and no more")
    return found


def _split(server: str) -> SplitResult:
    """``:PORT`` is on this machine, as it is for --webaddr."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError(f"--server is not a URL like {DEFAULT_SERVER}")
    page = parts.path.rstrip("/").rpartition("/")[2]
    if page in _PAGES:
        raise ServerError(f"--server names a page; leave /{page} off, as in {DEFAULT_SERVER}")
    return parts


_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.REFUSED: "is dynsched running? use --server URL",
    Cause.BROKEN: "try again",
    Cause.NOT_TLS: "is it http:// instead of https://? use --server URL",
    Cause.UNTRUSTED: "name the CA file that signed it in SSL_CERT_FILE, or use --server URL",
}


def _no_answer(server: str, error: Exception, timeout: float) -> str:
    found = find_failure(error)
    if found is None:
        return f"cannot ask {server}: {str(error) or type(error).__name__}; use --server URL"
    if found.cause is Cause.TIMEOUT:
        return f"cannot ask {server}: {no_answer(timeout)}; look at {server}/status"
    return f"cannot ask {server}: {found}; {_REMEDIES.get(found.cause, 'use --server URL')}"


def _refusal(server: str, error: urllib.error.HTTPError) -> str:
    try:
        message = json.loads(error.read())["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or something else on that port.
        return f"{server} answered {error.code} {error.reason}; is it dynsched? use --server URL"
    return " ".join(str(message).split())


def _mapping(body: bytes, server: str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "taken_at" not in answer:
        raise ServerError(f"{server} does not answer as dynsched does; use --server URL")
    return answer
