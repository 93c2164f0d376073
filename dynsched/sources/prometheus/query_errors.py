"""What went wrong, why, and what to do, in one line. The caller adds URL and rule in front."""

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
    """The message is a line for a person. ``refused``: the query itself is wrong, as the
    server says, or as the type of its result shows.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


def timed_out(timeout: float, phase: str) -> str:
    """The error after ``timeout`` seconds, and what to look at by the phase that it hung in."""
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
    """One line for a query that got no whole answer; ``tls``: whether it was asked by https."""
    found = find_failure(error)
    if found is None and isinstance(error, urllib3.exceptions.ProtocolError):  # within chunks
        found = ConnectionFailure(Cause.BROKEN)
    if found is None:
        return f"the request failed {phase} ({type(error).__name__})"
    if found.cause is Cause.TIMEOUT:
        return timed_out(timeout, phase)
    if found.cause is Cause.BROKEN:
        # A TLS server's refusal of a client, or of plain HTTP, may be overtaken by its reset.
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
    """One line for an answer that is no 2xx; ``detail``: what the server says of it."""
    name = f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()
    hint = _HINTS.get(status, "")
    if "HTTP request to an HTTPS server" in detail:  # Go's words
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
    """One line for a 3xx, without what may be secret in its ``location``."""
    # Neither a user nor a query: a login page's address carries what is meant for one reader.
    target = one_line(re.split("[?#]", location)[0].rpartition("@")[2])
    return (
        f"HTTP {status}: it redirects to {target or 'nowhere'}, which is not followed, for the "
        "credentials are not meant for another address; give the final URL, or, when that is a "
        "login page, credentials"
    )


def excerpt(body: bytes | bytearray) -> str:
    """Of a body that is not Prometheus's: an HTML page's title, or text; empty for binary data."""
    if b"\0" in body[:4096]:
        return ""
    text = body[:4096].decode("utf-8", "replace").strip()
    if not text.startswith("<"):
        return one_line(text)
    title = _TITLE.search(text)
    return f"an HTML page titled {one_line(title[1])!r}" if title else "an HTML page"
