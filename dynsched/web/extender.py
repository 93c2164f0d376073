"""The HTTP endpoints of the scheduler extender."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from dynsched.web.metrics import EXTENDER_VERBS
from dynsched.web.responses import JSON, new_application, refused

if TYPE_CHECKING:  # imported once the rules have an extender: `controller.features`
    from dynsched.features.extender.answers import Extender

_OFF: Final = "the scheduler extender is off: rules.yaml has no section `extender`"
_NOT_FOR_PAGES: Final = "this path is for schedulers; a page in a browser must not request it"
MAX_BODY: Final = 64 << 20
"""Bytes: room for 5,000 whole Nodes of 10 KB. Their names alone are 0.3 MB."""
_EXTENDER: Final[web.AppKey[Callable[[], Extender | None]]] = web.AppKey("extender")
_COUNT: Final[web.AppKey[Callable[[str], None]]] = web.AppKey("extender_count")

EXTENDER_ENDPOINTS: Final[Mapping[str, str]] = {
    **{f"{prefix}/{verb}": verb for prefix in ("", "/scheduler") for verb in EXTENDER_VERBS},
    "/scheduler/preemption": "preempt",
}
"""Path -> verb. The method is always POST."""


def make_extender_app(
    extender: Callable[[], Extender | None],
    count: Callable[[str], None],
    *,
    guards: Sequence[Middleware] = (),
) -> web.Application:
    """Only the extender's endpoints; see `add_extender`."""
    app = new_application(EXTENDER_ENDPOINTS, MAX_BODY, guards)
    add_extender(app, extender, count)
    return app


def add_extender(
    app: web.Application,
    extender: Callable[[], Extender | None],
    count: Callable[[str], None],
) -> None:
    """Add the extender's endpoints. They return 404 while ``extender()`` is None, because the rules
    have no extender. ``count`` is called with the verb (``filter``) of each other request.
    """
    app[_EXTENDER] = extender
    app[_COUNT] = count
    for path in EXTENDER_ENDPOINTS:
        app.router.add_post(path, _handle)


async def _handle(request: web.Request) -> web.Response:
    if hdrs.ORIGIN in request.headers:
        # The page of any website can send a POST to a port that is forwarded to this machine, and
        # /bind changes the cluster. Browsers add this header to each POST, schedulers never do.
        return refused(HTTPStatus.FORBIDDEN, _NOT_FOR_PAGES)
    extender = request.app[_EXTENDER]()
    if extender is None:
        return refused(HTTPStatus.NOT_FOUND, _OFF)
    from dynsched.features.extender.wire import WireError

    verb = EXTENDER_ENDPOINTS[request.path]
    request.app[_COUNT](verb)
    try:
        answer = await _answer(extender, verb, await request.read())
    except (WireError, web.RequestPayloadError) as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))
    return web.Response(body=answer, content_type=JSON)


async def _answer(extender: Extender, verb: str, body: bytes) -> bytes:
    match verb:
        case "filter":
            return extender.filter(body)
        case "prioritize":
            return extender.prioritize(body)
        case "preempt":
            return extender.preempt(body)
    return await extender.bind(body)
