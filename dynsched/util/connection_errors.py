"""Explains why an HTTP exchange failed. Each client adds its own remedy to the text.

aiohttp and requests (through urllib3) wrap errors of the standard library, so the cause is looked
up inside the wrapped errors.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dynsched.util.formatting import one_line

_NOT_TLS: Final = frozenset(
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
)
_TUNNEL: Final = re.compile(r"^Tunnel connection failed: (.*)")  # http.client's message


class Cause(Enum):
    """What went wrong. The value is the text for people; its subject is the queried server."""

    HOST = "cannot resolve its host name"
    REFUSED = "connection refused"
    TIMEOUT = "no answer in time"
    BROKEN = "the connection broke"
    NOT_HTTP = "what answers there does not speak HTTP"
    NOT_TLS = "what answers there does not speak TLS"
    UNTRUSTED = "TLS: its certificate is not trusted"
    OTHER_HOST = "TLS: its certificate is for another host"
    INVALID = "TLS: its certificate is not valid"
    ALERT = "TLS: the server refused the connection"
    TLS = "TLS failed"
    PROXY = "the proxy refused to connect to it"
    SYSTEM = "the connection failed"


_CERTIFICATES: Final = {  # OpenSSL's verify codes
    **dict.fromkeys((18, 19, 20, 21, 24, 27), Cause.UNTRUSTED),  # no chain to a trusted CA
    **dict.fromkeys((62, 64), Cause.OTHER_HOST),
}
TLS_CAUSES: Final = frozenset(
    {Cause.NOT_TLS, Cause.UNTRUSTED, Cause.OTHER_HOST, Cause.INVALID, Cause.ALERT, Cause.TLS}
)
"""Causes in TLS: retrying does not help."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause.value} ({self.detail})" if self.detail else self.cause.value


def no_answer(seconds: float) -> str:
    """``no answer within 10 s``: the text for a timeout of known length."""
    return f"no answer within {seconds:g} s"


def find_failure(error: BaseException) -> ConnectionFailure | None:
    links = list(_chain(error))
    found = (explain(link) for explain in (_known_failure, _system_failure) for link in links)
    return next(filter(None, found), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and all that it wraps: requests wraps urllib3, which wraps OSError."""
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


_BY_TYPE: Final[tuple[tuple[type[BaseException], Cause], ...]] = (
    (ssl.SSLEOFError, Cause.BROKEN),
    (ssl.SSLZeroReturnError, Cause.BROKEN),
    (http.client.IncompleteRead, Cause.BROKEN),
    (ConnectionRefusedError, Cause.REFUSED),
    (TimeoutError, Cause.TIMEOUT),
    (ConnectionError, Cause.BROKEN),  # reset, aborted, broken pipe, http.client's disconnected
    (http.client.HTTPException, Cause.NOT_HTTP),
)
"""The first match counts."""


def _known_failure(link: BaseException) -> ConnectionFailure | None:
    if isinstance(link, socket.gaierror):
        return ConnectionFailure(Cause.HOST, one_line(link.strerror or "no such name"))
    if isinstance(link, ssl.SSLCertVerificationError):
        # aiohttp's wrapper has this type but no verify_code; the error inside it has one.
        if not hasattr(link, "verify_code"):
            return None
        cause = _CERTIFICATES.get(link.verify_code, Cause.INVALID)
        return ConnectionFailure(cause, one_line(link.verify_message))
    for kind, cause in _BY_TYPE:
        if isinstance(link, kind):
            return ConnectionFailure(cause)
    return _tls_failure(link) if isinstance(link, ssl.SSLError) else None


def _system_failure(link: BaseException) -> ConnectionFailure | None:
    if not isinstance(link, OSError):
        return None
    if refused := _TUNNEL.search(str(link)):
        return ConnectionFailure(Cause.PROXY, one_line(refused[1]))
    # requests' errors are OSErrors too, but have no strerror
    return ConnectionFailure(Cause.SYSTEM, one_line(link.strerror)) if link.strerror else None


def _tls_failure(error: ssl.SSLError) -> ConnectionFailure:
    reason = error.reason or ""
    words = reason.replace("_", " ").lower()
    if reason in _NOT_TLS:
        return ConnectionFailure(Cause.NOT_TLS)
    if "ALERT" in reason:
        return ConnectionFailure(Cause.ALERT, words.partition("alert ")[2])
    return ConnectionFailure(Cause.TLS, words or one_line(str(error)))
