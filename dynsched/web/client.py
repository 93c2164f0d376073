"""Asks a running dynsched: for the commands ``nodes`` and ``why``. Synchronous, standard library.

Every failure is a ServerError, one line with the cause and what to do.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import SplitResult, quote

from dynsched.core.defaults import DEFAULT_SERVER
from dynsched.core.errors import ExpectedError
from dynsched.plumbing.proxies import ProxyError, opener, proxy_for, through
from dynsched.plumbing.urls import parse_http_url

_PAGES: Final = frozenset({"nodes", "status", "rules", "metrics", "healthz", "readyz"})
TIMEOUT: Final = 10.0
"""Seconds without a byte after which the server counts as hung."""


class ServerError(ExpectedError):
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


def fetch(server: str, path: str, *, timeout: float = TIMEOUT) -> dict[str, Any]:
    """What the dynsched at ``server`` answers at `/nodes` or `/nodes/NAME` (given unquoted)."""
    base = _split(server)
    url = f"{base.geturl().rstrip('/')}{quote(path, safe='/?=&')}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (http or https: _split)
    shown = base.geturl()
    try:
        proxy = proxy_for(url)
        with opener().open(request, timeout=timeout) as response:
            body = response.read()
    except ProxyError as error:
        raise ServerError(f"cannot ask {shown}: {error}") from None
    except urllib.error.HTTPError as error:
        with error:
            raise ServerError(_refusal(shown, error) + through(proxy)) from None
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(_no_answer(shown, error) + through(proxy)) from None
    return _mapping(body, shown)


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


def _no_answer(server: str, error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ConnectionRefusedError):
        return f"nothing listens at {server}: is dynsched running? use --server URL"
    if isinstance(reason, TimeoutError):
        return f"no answer from {server} in time; look at {server}/status"
    if isinstance(reason, http.client.IncompleteRead):
        return f"the answer of {server} broke off; try again"
    if isinstance(reason, http.client.HTTPException) and not isinstance(reason, OSError):
        return f"what listens at {server} does not speak HTTP; use --server URL"
    if isinstance(reason, ssl.SSLError):
        return _no_tls(server, reason)
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return f"cannot ask {server}: {text}; use --server URL"


def _no_tls(server: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {server} is not trusted ({error.verify_message}); "
            "name the CA file that signed it in SSL_CERT_FILE, or use --server URL"
        )
    why = (error.reason or "no TLS").replace("_", " ").lower()
    return f"TLS with {server} failed ({why}); is it http:// instead of https://?"


def _refusal(server: str, error: urllib.error.HTTPError) -> str:
    try:
        message = json.loads(error.read())["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or something else on that port.
        return f"{server} answered {error.code} {error.reason}; is it dynsched? use --server URL"
    return " ".join(str(message).split()).replace("; see /nodes", "; see dynsched nodes")


def _mapping(body: bytes, server: str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "taken_at" not in answer:
        raise ServerError(f"{server} does not answer as dynsched does; use --server URL")
    return answer
