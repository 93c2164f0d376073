"""The words for what went wrong: one line that says what, why, and what to do.

The lines name no URL and no rule: the caller adds both in front.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import urllib3.exceptions

from dynsched.core import lines

PREPARING: Final = "while reading the token and the certificates"
CONNECTING: Final = "while connecting"
WAITING: Final = "while waiting for the answer"
READING: Final = "while reading the answer"
_UNTRUSTED: Final = {18, 19, 20, 21, 24, 27}  # OpenSSL's verify codes: no chain to a trusted CA
_OTHER_HOST: Final = {62, 64}
_NOT_TLS: Final = {
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
}
_TUNNEL: Final = re.compile(r"^Tunnel connection failed: (.*)")  # http.client's words
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_FLAGS: Final = {
    "bearer token": "--prom-bearer-token-file",
    "password": "--prom-password-file",
    "CA": "--prom-ca-file",
    "client certificate": "--prom-cert-file",
    "client key": "--prom-key-file",
    "client certificate or key": "--prom-cert-file and --prom-key-file",
    "CA (from REQUESTS_CA_BUNDLE)": "REQUESTS_CA_BUNDLE",
    "CA (from CURL_CA_BUNDLE)": "CURL_CA_BUNDLE",
}
_EXCERPT: Final = 200  # characters of foreign text in one of our lines


class QueryFailedError(Exception):
    """A query came to nothing. The message is a line for a person."""


def one_line(text: str, limit: int = _EXCERPT) -> str:
    """Foreign text as one line of printable characters, cut at ``limit``."""
    return lines.one_line(text, limit)


def file_problem(what: str, path: str, error: OSError) -> str:
    """A file that cannot be read. ``what`` is its part, as in "bearer token"."""
    reason = error.strerror or type(error).__name__
    return f"cannot read the {what} file {path}: {reason}; {file_remedy(what, error)}"


def file_remedy(what: str, error: OSError | None = None) -> str:
    """What to do about a file that cannot be used: the flag that names it, and where it is from."""
    flag = _FLAGS.get(what, what)
    if isinstance(error, PermissionError):
        return f"check its permissions ({flag})"
    return f"check {flag}, or the Secret and its mount"


def timed_out(timeout: float, phase: str) -> str:
    """The deadline passed. ``phase`` says how far the request had come."""
    hint = "is the expression too heavy, the server overloaded, or the timeout too short?"
    if phase == CONNECTING:
        hint = "is the address right, and does a firewall or NetworkPolicy drop the packets?"
    if phase == PREPARING:
        hint = "does the file system hang that they are on?"
    return f"no answer within {timeout:g}s ({phase}); {hint}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything it was made from: requests wraps urllib3, which wraps OSError."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        link = pending.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inside = (*link.args, getattr(link, "reason", None), link.__cause__, link.__context__)
        pending.extend(each for each in inside if isinstance(each, BaseException))


def explain_exception(error: Exception, timeout: float, phase: str, *, tls: bool) -> str:
    """The line for an exchange that ended without a whole answer."""
    links = list(_chain(error))
    words = _explain_links(links, timeout, phase)
    if tls and words == _broke(WAITING):
        # A TLS 1.3 server refuses a client after the handshake, and its reset may overtake the
        # alert that says so.
        words += "; does it want a client certificate?"
    if not tls and words == _broke(phase):
        # What a TLS server says to plain HTTP may be overtaken by its reset, too.
        words += ", or wants https://"
    return words


def _explain_links(links: list[BaseException], timeout: float, phase: str) -> str:
    for link in links:
        if words := _explain_link(link, timeout, phase):
            return words
    return _explain_rest(links, phase)


def _broke(phase: str) -> str:
    return f"the connection broke {phase}; the server or a proxy ended it early"


def _explain_link(link: BaseException, timeout: float, phase: str) -> str | None:
    """The words for a cause that is known; None for a wrapper, or for something else."""
    match link:
        case socket.gaierror():
            reason = one_line(link.strerror or "no such name")
            words = f"cannot resolve its host name ({reason}); check the name and the DNS"
        case ssl.SSLCertVerificationError():
            words = _explain_certificate(link)
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | http.client.IncompleteRead():
            words = _broke(phase)
        case ssl.SSLError():
            words = _explain_tls(link)
        case ConnectionRefusedError():
            words = "connection refused; is it running there, and is the port right?"
        case TimeoutError():
            words = timed_out(timeout, phase)
        case ConnectionError():  # reset, aborted, broken pipe, and http.client's disconnected
            words = _broke(phase)
        case http.client.HTTPException():
            words = "what answers there does not speak HTTP; is it https:// instead of http://?"
        case _:
            return None
    return words


def _explain_rest(links: list[BaseException], phase: str) -> str:
    for link in links:
        if isinstance(link, urllib3.exceptions.DecodeError):
            return "the answer's compression is damaged"
        if isinstance(link, OSError) and (refused := _TUNNEL.search(str(link))):
            return f"the proxy refused to connect to it ({one_line(refused[1])})"
        # requests' own errors are OSErrors too, without a strerror
        if isinstance(link, OSError) and link.strerror:
            return f"{one_line(link.strerror)} ({phase})"
    return f"the request failed {phase} ({type(links[-1]).__name__})"


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    reason = one_line(error.verify_message)
    if error.verify_code in _OTHER_HOST:
        return f"TLS: its certificate is for another host ({reason}); use a name that is in it"
    if error.verify_code in _UNTRUSTED:
        remedy = "give the CA file that signed it (--prom-ca-file)"
        return f"TLS: its certificate is not trusted ({reason}); {remedy}"
    return f"TLS: its certificate is not valid ({reason})"


def _explain_tls(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return "what answers there does not speak TLS; is it http:// instead of https://?"
    if "ALERT" in reason:
        alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return (
            f"TLS: the server refused the connection ({alert}); "
            "does it want another client certificate?"
        )
    words = reason.replace("_", " ").lower() or one_line(str(error))
    return f"TLS failed ({words})"


_HINTS: Final[dict[int, str]] = {
    403: "these credentials are not allowed to query; check their permissions",
    404: "nothing answers /api/v1/query there; check the URL's path prefix",
    405: "neither POST nor GET is allowed; is this a Prometheus query API?",
    407: "the proxy of the environment wants credentials",
    413: "the expression is too long for a proxy in between",
    414: "POST is refused and the expression is too long for GET; let the proxy pass POST",
    422: "the expression cannot be evaluated as it is",
    429: "it limits the request rate; use a longer --interval, or raise its limit",
    431: "POST is refused and the expression is too long for GET; let the proxy pass POST",
    502: "a proxy in between cannot reach it",
    503: "it is starting, stopping, overloaded or has no backend; if it stays so, look at its log",
    504: "a proxy in between gave up waiting for it",
}


def explain_status(status: int, detail: str, *, authenticated: bool, proxied: bool) -> str:
    """The line for an HTTP status that is no success. ``detail`` is what the server said of it."""
    try:
        name = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        name = f"HTTP {status}"
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
    if status == HTTPStatus.FORBIDDEN and proxied:
        hint = "either the proxy refuses, and NO_PROXY leads past it, or these credentials may not"
        hint += " query"
    return f"{name}{': ' if detail else ''}{detail}{'; ' if hint else ''}{hint}"


def explain_redirect(status: int, location: str) -> str:
    """A redirect, which is never followed: the credentials are for the configured address only."""
    try:
        parts = urlsplit(location)
        # Neither a user nor a query: a login page's address carries what is meant for one reader.
        target = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
        target = one_line(target + parts.path)
    except ValueError:
        target = ""
    return (
        f"HTTP {status}: it redirects to {target or 'nowhere'}, which is not followed, for the "
        "credentials are not meant for another address; give the final URL, or, when that is a "
        "login page, credentials"
    )


def excerpt(body: bytes | bytearray) -> str:
    """What a body that is not Prometheus's says to a person: an HTML page's title, or its text.

    Empty for binary data, whose letters say nothing.
    """
    if b"\0" in body[:4096]:
        return ""
    text = body[:4096].decode("utf-8", "replace").strip()
    if not text.startswith("<"):
        return one_line(text)
    title = _TITLE.search(text)
    return f"an HTML page titled {one_line(title[1])!r}" if title else "an HTML page"
