"""Who may read (`--web-auth`, docs/web-auth.md): Kubernetes says whose a bearer token is, and what
they may read. Each answer is kept for a short time.
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
"""So this is how long a right that was taken away still opens a path."""
REFUSED_SECONDS: Final = 10.0
"""A person who was just given the right tries again soon."""
MAX_KEPT: Final = 4096
"""Answers of each kind that are kept; the oldest go first."""
MAX_ASKED: Final = 128
"""Reviews of each kind that are under way, or wait for their turn."""
ANSWER_SECONDS: Final = 5.0
"""How long a caller waits for the API server, the wait for other reviews included."""

_CHALLENGE: Final = 'Bearer realm="dynsched"'
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""As RFC 6750 has it. Nothing else can be a token, and the API server is not asked about it."""
_RETRY_AFTER: Final = "5"
_PAGE: Final = "docs/web-auth.md"

V = TypeVar("V")


class KeptAnswers(Generic[V]):
    """Answers of slow questions, each asked once at a time; errors are not kept. A false value is a
    refusal; these are kept apart, so that made-up tokens push out none of the grants. ``clock``
    gives seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._granted: dict[Hashable, tuple[V, float]] = {}
        self._refused: dict[Hashable, tuple[V, float]] = {}
        self._asked: dict[Hashable, asyncio.Task[V]] = {}

    async def answer(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """The kept answer, else that of ``ask``. Raises what ``ask`` does, ClusterError where too
        many others are under way, and TimeoutError after ANSWER_SECONDS.
        """
        kept = self._granted.get(key) or self._refused.get(key)
        if kept is not None and self._clock() < kept[1]:
            return kept[0]
        task = self._asked.get(key)
        if task is None:
            # Who was let in a moment ago is asked about again, however many made-up tokens come.
            if len(self._asked) >= MAX_ASKED and key not in self._granted:
                raise ClusterError(f"{MAX_ASKED} other reviews are under way")
            task = asyncio.create_task(self._ask(key, ask))
            self._asked[key] = task
            task.add_done_callback(partial(self._done, key))
        async with asyncio.timeout(ANSWER_SECONDS):
            # Shielded: one caller that hangs up must not take the answer from the others.
            return await asyncio.shield(task)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        value = await ask()
        for former in (self._granted, self._refused):
            former.pop(key, None)
        kept, seconds = self._granted, GRANTED_SECONDS
        if not value:
            kept, seconds = self._refused, REFUSED_SECONDS
        if len(kept) >= MAX_KEPT:
            del kept[next(iter(kept))]  # the oldest
        kept[key] = value, self._clock() + seconds
        return value

    def _done(self, key: Hashable, task: asyncio.Task[V]) -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # where nobody waits any more, nobody else would fetch it


def require_token(
    user_of: Callable[[str], Awaitable[User | None]],
    may_get: Callable[[User, str], Awaitable[bool]],
    open_paths: Collection[str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Middleware:
    """Answers 401, 403 or, where the API server cannot be asked, 503. It is not asked about
    ``open_paths`` and paths that do not exist, or somebody could cause a call with each new one.
    ``user_of`` asks it whose a token is, None for one that is not accepted, and ``may_get`` about a
    non-resource URL; ClusterError.
    """
    users: KeptAnswers[User | None] = KeptAnswers(clock)
    rights: KeptAnswers[bool] = KeptAnswers(clock)
    key = secrets.token_bytes(32)

    async def refusal(token: str | None, path: str) -> web.Response | None:
        if token is None:
            return _unauthorized(
                f'{path} needs a bearer token: send "Authorization: Bearer TOKEN" ({_PAGE})'
            )
        digest = hashlib.blake2b(token.encode(), key=key).digest()  # tokens are not kept
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
    async def judge(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = _path(request)
        if path is None or path in open_paths:
            return await handler(request)
        response = await refusal(_token(request), path)
        return await handler(request) if response is None else response

    return judge


def _path(request: web.Request) -> str | None:
    """As the matched route has it, so that no other spelling leads past its rule; decoded, for
    RBAC. None where no route matches.
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
    response.headers[hdrs.WWW_AUTHENTICATE] = f"{_CHALLENGE}{error}"
    return response


def _unknown(error: ClusterError | TimeoutError, token: str) -> web.Response:
    """The reason is for the log: a caller whom nobody knows need not learn of the cluster."""
    said = str(error) or f"no answer within {ANSWER_SECONDS:g} s"
    logger.warning("--web-auth: a request is refused: %s", said.replace(token, "***"))
    response = refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the API server cannot be asked now whether you may look; the log of dynsched has the "
        "reason; try again soon",
    )
    response.headers[hdrs.RETRY_AFTER] = _RETRY_AFTER
    return response
