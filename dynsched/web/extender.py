"""The HTTP endpoints of the scheduler extender: paths, large bodies, only answers 200 or 4xx."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from dynsched.util.logs import quiet_logger
from dynsched.web.metrics import EXTENDER_VERBS
from dynsched.web.responses import JSON, refused

if TYPE_CHECKING:  # imported when the rules want an extender: `controller.features`
    from dynsched.features.extender.answers import Extender

logger = quiet_logger(__name__)

_OFF: Final = "the scheduler extender is off: rules.yaml has no section `extender`"
_NOT_FOR_PAGES: Final = "this path is for schedulers; a page in a browser may not ask it"
MAX_BODY: Final = 64 << 20
"""Bytes: 5,000 whole Nodes of 10 KB, with room. As names they are 0.3 MB."""
_LARGE: Final = 1 << 20
"""Bytes of a body from which on requests are processed one at a time."""
_READ_SECONDS: Final = 10.0
"""For a body to arrive; a scheduler gives up after 2 to 5 s itself."""
_EXTENDER: Final[web.AppKey[Callable[[], Extender | None]]] = web.AppKey("extender")
_COUNT: Final[web.AppKey[Callable[[str], None]]] = web.AppKey("extender_count")
_LARGE_ONES: Final = web.AppKey("large_bodies", asyncio.Semaphore)

EXTENDER_ENDPOINTS: Final[Mapping[str, str]] = {
    **{f"{prefix}/{verb}": verb for prefix in ("", "/scheduler") for verb in EXTENDER_VERBS},
    "/scheduler/preemption": "preempt",
}
"""Path -> verb. The method is always POST."""


def add_extender(
    app: web.Application,
    extender: Callable[[], Extender | None],
    count: Callable[[str], None] = lambda _: None,
) -> None:
    """The endpoints answer 404 while ``extender()`` is None, because the rules have none; else
    ``count`` is called with the verb (``filter``) of each request.
    """
    app[_EXTENDER] = extender
    app[_COUNT] = count
    app[_LARGE_ONES] = asyncio.Semaphore(1)
    for path in EXTENDER_ENDPOINTS:
        app.router.add_post(path, _handle)


async def _handle(request: web.Request) -> web.Response:
    if hdrs.ORIGIN in request.headers:
        # Any site's page can send a POST to a port that was forwarded to this machine, and
        # /bind changes something. Browsers add this header to each POST, schedulers never do.
        return refused(HTTPStatus.FORBIDDEN, _NOT_FOR_PAGES)
    extender = request.app[_EXTENDER]()
    if extender is None:
        return refused(HTTPStatus.NOT_FOUND, _OFF)
    from dynsched.features.extender.wire import WireError

    verb, size = EXTENDER_ENDPOINTS[request.path], request.content_length
    request.app[_COUNT](verb)
    is_large = size is None or size > _LARGE
    try:
        async with request.app[_LARGE_ONES] if is_large else contextlib.nullcontext():
            body = await _read(request)
            if verb == "bind":
                answer: bytes = await extender.bind(body)
            elif verb == "filter":
                answer = extender.filter(body)
            else:
                ask = extender.preempt if verb == "preempt" else extender.prioritize
                answer = ask(body)
    except (WireError, web.RequestPayloadError) as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))
    except TimeoutError:
        message = f"the body did not arrive within {_READ_SECONDS:g} s"
        return refused(HTTPStatus.REQUEST_TIMEOUT, message)
    except (ConnectionError, web.HTTPException):
        raise
    except Exception:
        logger.exception("%s failed", request.path)
        return refused(HTTPStatus.BAD_REQUEST, "this request could not be answered")
    return web.Response(body=answer, content_type=JSON)


async def _read(request: web.Request) -> bytearray:
    """The body. `request.read` would hold a large one up to three times."""
    body = bytearray()
    async with asyncio.timeout(_READ_SECONDS):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY:
                raise web.HTTPRequestEntityTooLarge(MAX_BODY, len(body))
    return body
