"""A watch that is begun again whenever it ends, as often as the API server can bear it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from dynsched.util.backoff import Backoff, jittered
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.stopping import unless_stopped

_FIRST_WAIT: Final = 1.0
_MAX_BACKOFF: Final = 30.0
_FORBIDDEN_WAIT: Final = 60.0


async def keep_following(
    stop: asyncio.Event,
    follow: Callable[[], Awaitable[None]],
    trouble: Callable[[ClusterError], None],
    *,
    clock: Callable[[], float],
) -> None:
    """Call ``follow``, which follows one watch to its end, again and again until ``stop`` is set.

    ``trouble`` is told each ClusterError that it raised; any other exception is passed on.
    """
    await unless_stopped(stop, _follow_on(follow, trouble, clock))


async def _follow_on(
    follow: Callable[[], Awaitable[None]],
    trouble: Callable[[ClusterError], None],
    clock: Callable[[], float],
) -> NoReturn:
    backoff = Backoff(_FIRST_WAIT, _MAX_BACKOFF)
    while True:
        began = clock()
        try:
            await follow()
        except ForbiddenError as error:
            trouble(error)
            wait = jittered(_FORBIDDEN_WAIT)
        except ClusterError as error:
            trouble(error)
            if clock() - began > _MAX_BACKOFF:
                backoff.reset()
            wait = backoff.next()
        else:
            backoff.reset()
            # A server may end each watch at once.
            wait = 0.0 if clock() - began > _FIRST_WAIT else jittered(_FIRST_WAIT)
        await asyncio.sleep(wait)
