"""Asks a running dynsched by its URL. Synchronous, standard library.

Every failure is a ServerError, one line with the cause and what to do.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.defaults import DEFAULT_SERVER
from dynsched.util.errors import ExpectedError
from dynsched.util.files import TooLargeError, read_file
from dynsched.util.proxies import ProxyError, opener, parse_http_url, proxy_for, through

_MAX_TOKEN_BYTES: Final = 64 * 1024
TIMEOUT: Final = 10.0
"""Seconds without a byte after which the server counts as hung."""


class ServerError(ExpectedError):
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


class Answer(NamedTuple):
    """An answer; with status 304, it has no body. ``etag`` is its name."""

    status: int
    body: bytes
    etag: str | None

    @property
    def is_news(self) -> bool:
        """Whether it is not what the ETag that was sent names."""
        return self.status != HTTPStatus.NOT_MODIFIED


def ask(
    server: str, path: str, *, etag: str | None, token_file: Path | None, timeout: float
) -> Answer:
    """What the server with this URL answers at ``path`` (quoted, from ``/`` on), whatever the
    status. ``token_file`` holds the bearer token that it wants with --web-auth.
    """
    headers = {"Accept": "application/json"} | ({"If-None-Match": etag} if etag else {})
    request = urllib.request.Request(f"{server}{path}", headers=headers)  # noqa: S310 (http or https: url_of)
    if token_file is not None:
        # Not to where a redirect leads: that may be another host.
        request.add_unredirected_header("Authorization", f"Bearer {_token(token_file)}")
    by = ""
    try:
        by = through(proxy_for(server))
        with opener().open(request, timeout=timeout) as response:
            return Answer(response.status, response.read(), response.headers.get("ETag"))
    except ProxyError as error:
        raise ServerError(f"cannot ask {server}: {error}") from None
    except urllib.error.HTTPError as error:
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            return Answer(error.code, error.read(), error.headers.get("ETag"))
        return Answer(error.code, b"", None)
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(_no_answer(server, error, timeout) + by) from None


def _token(file: Path) -> str:
    try:
        found = read_file(str(file), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except (TooLargeError, UnicodeDecodeError):
        found = ""
    except OSError as error:
        raise ServerError(f"--server-token-file {file}: {error.strerror or error}") from None
    if not found or not found.isprintable() or " " in found:
        raise ServerError(f"--server-token-file {file}: it does not hold one token and no more")
    return found


def url_of(server: str) -> str:
    """The URL that ``--server`` names. ``:PORT`` is on this machine, as it is for --webaddr."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError(f"--server is not a URL like {DEFAULT_SERVER}")
    return parts.geturl().rstrip("/")


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


def refusal(shown: str, answer: Answer) -> str:
    """An answer with an error status as one line: dynsched's own words where they are."""
    try:
        message = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or something else on that port.
        told = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        return f"{shown} answered {told}; is it dynsched? use --server URL"
    return " ".join(str(message).split())
