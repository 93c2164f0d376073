"""One-line errors: what failed, why, and what to do. The caller prefixes URL and rule."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import urllib3.exceptions

from dynsched.util.connection_errors import Cause, ConnectionFailure, find_failure, no_answer
from dynsched.util.formatting import one_line

CONNECTING: Final = "while connecting"
WAITING: Final = "while waiting for the answer"
READING: Final = "while reading the answer"
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


class QueryFailedError(Exception):
    """The message is one line for people. ``refused``: the query itself is wrong, according to
    the server or to the type of the result.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


def timed_out(timeout: float, phase: str) -> str:
    """The error after ``timeout`` seconds, with a hint that depends on the phase."""
    hint = "is the expression too heavy, the server overloaded, or the timeout too short?"
    if phase == CONNECTING:
        hint = "is the address right, and does a firewall or NetworkPolicy drop the packets?"
    return f"{no_answer(timeout)} ({phase}); {hint}"


_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.REFUSED: "is it running there, and is the port right?",
    Cause.NOT_HTTP: "is it https:// instead of http://?",
    Cause.NOT_TLS: "is it http:// instead of https://?",
    Cause.UNTRUSTED: "give the CA file that signed it (--prom-ca-file)",
    Cause.ALERT: "does it want another client certificate?",
}


def explain_exception(error: Exception, timeout: float, phase: str, *, tls: bool) -> str:
    """One line for a query without a complete response. ``tls``: whether it was sent by https."""
    found = find_failure(error)
    if found is None and isinstance(error, urllib3.exceptions.ProtocolError):  # in a chunk
        found = ConnectionFailure(Cause.BROKEN)
    if found is None:
        return f"the request failed {phase} ({type(error).__name__})"
    if found.cause is Cause.TIMEOUT:
        return timed_out(timeout, phase)
    if found.cause is Cause.BROKEN:
        # A TLS server that refuses the client, or plain HTTP, may reset before we read why.
        wants = "a client certificate" if tls else "https://"
        return f"{found} {phase}; the server or a proxy ended it early, or does it want {wants}?"
    remedy = _REMEDIES.get(found.cause)
    return f"{found}; {remedy}" if remedy else str(found)


_HINTS: Final[Mapping[int, str]] = {
    403: "these credentials are not allowed to query, or a proxy refuses: see NO_PROXY",
    404: "nothing answers /api/v1/query there; check the URL's path prefix",
    407: "the proxy of the environment wants credentials",
    429: "it limits the request rate; use a longer --interval, or raise its limit",
    502: "a proxy in between cannot reach it",
    503: "it is starting, stopping, overloaded or has no backend; if it stays so, look at its log",
    504: "a proxy in between gave up waiting for it",
}


def explain_status(status: int, detail: str, *, authenticated: bool) -> str:
    """One line for an unsuccessful response. ``detail``: the server's explanation."""
    name = f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()
    hint = _HINTS.get(status, "")
    if "HTTP request to an HTTPS server" in detail:  # Go's message
        hint = "write https:// in its URL"
    if status == HTTPStatus.UNAUTHORIZED:
        hint = (
            "set a bearer token (--prom-bearer-token-file), basic authentication "
            "(--prom-username) or a client certificate (--prom-cert-file)"
        )
        if authenticated:
            hint = "it refuses the configured credentials; are they current, and meant for it?"
    return f"{name}{': ' if detail else ''}{detail}{'; ' if hint else ''}{hint}"


def explain_redirect(status: int, location: str) -> str:
    """One line for a 3xx, without the parts of ``location`` that may be secret."""
    # No user and no query: the URL of a login page may contain one user's secrets.
    target = one_line(re.split("[?#]", location)[0].rpartition("@")[2])
    return (
        f"HTTP {status}: it redirects to {target or 'nowhere'}, which is not followed, because "
        "credentials must not go to another address; give the final URL, or credentials if that is "
        "a login page"
    )


def excerpt(body: bytes | bytearray) -> str:
    """A foreign body in short: the title of an HTML page, or its text; empty for binary data."""
    if b"\0" in body[:4096]:
        return ""
    text = body[:4096].decode("utf-8", "replace").strip()
    if not text.startswith("<"):
        return one_line(text)
    title = _TITLE.search(text)
    return f"an HTML page titled {one_line(title[1])!r}" if title else "an HTML page"
