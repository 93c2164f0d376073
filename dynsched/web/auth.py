"""Checks who may read (`--web-auth`, docs/operate.md). The API server authenticates the bearer
token and authorizes its user. What it grants is cached for a short time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Hashable
from functools import partial
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from dynsched.kube.reviews import User
from dynsched.util.errors import ClusterError
from dynsched.util.logs import quiet_logger
from dynsched.web.responses import Handler, refused

logger = quiet_logger(__name__)

GRANTED_SECONDS: Final = 60.0
"""Time for which a grant is cached: a revoked right works for at most this long."""
ANSWER_SECONDS: Final = 5.0
"""Maximum wait for the API server, including the wait for other reviews."""

_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750. Other values are not sent to the API server."""
_PAGE: Final = "docs/operate.md#who-may-read"

V = TypeVar("V")


class _Granted(Generic[V]):
    """Caches what the API server granted. Refusals (false values) and errors are not cached."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cached: dict[Hashable, tuple[V, float]] = {}

    async def answer(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """The cached answer, else that of ``ask``. Raises its errors, and TimeoutError."""
        now = self._clock()
        self._cached = {each: entry for each, entry in self._cached.items() if now < entry[1]}
        if key in self._cached:
            return self._cached[key][0]
        async with asyncio.timeout(ANSWER_SECONDS):
            value = await ask()
        if value:
            self._cached[key] = value, self._clock() + GRANTED_SECONDS
        return value


def require_token(
    user_of: Callable[[str], Awaitable[User | None]],
    may_get: Callable[[User, str], Awaitable[bool]],
    open_paths: Collection[str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Middleware:
    """Answers 401, 403, or 503 if the API server cannot be queried.

    ``open_paths`` and paths that do not exist need no token. ``user_of`` returns the user of a
    token, or None if the token is not accepted. ``may_get`` returns whether a user may get a
    non-resource URL. Both may raise ClusterError.
    """
    users: _Granted[User | None] = _Granted(clock)
    rights: _Granted[bool] = _Granted(clock)
    key = secrets.token_bytes(32)

    async def refusal(token: str | None, path: str) -> web.Response | None:
        if token is None:
            return _unauthorized(
                f'{path} needs a bearer token: send "Authorization: Bearer TOKEN" ({_PAGE})'
            )
        digest = hashlib.blake2b(token.encode(), key=key).digest()  # tokens are not stored
        try:
            user = await users.answer(digest, partial(user_of, token))
            if user is None:
                return _unauthorized(
                    "the API server does not accept the token: it is unknown, has expired, or is "
                    f"for another audience ({_PAGE})",
                    invalid=True,
                )
            if await rights.answer((digest, path), partial(may_get, user, path)):
                return None
        except (ClusterError, TimeoutError) as error:
            return _unknown(error, token)
        return refused(
            HTTPStatus.FORBIDDEN,
            f"user {user.name} may not get {path}: bind a ClusterRole with nonResourceURLs: "
            f'["{path}"] and verbs: [get] to this user or one of their groups ({_PAGE})',
        )

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = _path(request)
        if path is None or path in open_paths:
            return await handler(request)
        response = await refusal(_token(request), path)
        return await handler(request) if response is None else response

    return authorize


def _path(request: web.Request) -> str | None:
    """The path as in the matched route, so that no other spelling bypasses its RBAC rule, and
    decoded, as in RBAC. None if no route matches.
    """
    resource = request.match_info.route.resource
    if request.match_info.http_exception is not None or resource is None:
        return None
    return resource.canonical.format_map(request.match_info)


def _token(request: web.Request) -> str | None:
    given = request.headers.getall(hdrs.AUTHORIZATION, [])
    match = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    return match[1] if match else None


def _unauthorized(message: str, *, invalid: bool = False) -> web.Response:
    response = refused(HTTPStatus.UNAUTHORIZED, message)
    error = ', error="invalid_token"' if invalid else ""
    response.headers[hdrs.WWW_AUTHENTICATE] = f'Bearer realm="dynsched"{error}'
    return response


def _unknown(error: ClusterError | TimeoutError, token: str) -> web.Response:
    """Only the log has the reason: an unknown client must not learn about the cluster."""
    reason = str(error) or f"no answer within {ANSWER_SECONDS:g} s"
    logger.warning("--web-auth: a request is refused: %s", reason.replace(token, "***"))
    response = refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "cannot check your permissions: the API server is unreachable; the log of dynsched has "
        "the reason; try again soon",
    )
    response.headers[hdrs.RETRY_AFTER] = "5"
    return response
