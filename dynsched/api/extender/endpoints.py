"""The scheduler extender on HTTP: its paths, bodies of any size, and no answer but 200 or 4xx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from dynsched.api.metrics import EXTENDER_VERBS
from dynsched.api.transport.answering import JSON, WRITE_SECONDS, refused, respond, send, turn
from dynsched.api.transport.bodies import MEMORY, Body, BodyError, ByteBudget, read_body
from dynsched.util.logs import quiet_logger

if TYPE_CHECKING:  # imported when the rules ask for an extender: `controller.pod_tracking`
    from dynsched.api.extender.answers import Extender

logger = quiet_logger(__name__)

_HEADERS: Final[Mapping[str, str]] = {hdrs.CONTENT_TYPE: JSON}
_AT_ONCE: Final = 512 << 10
"""Bytes of an answer in one piece: in slices, 5,000 scores (330 KiB) take a third longer."""
_OFF: Final = "the scheduler extender is off: rules.yaml has no section `extender`"
_NOT_FOR_PAGES: Final = "this path is for schedulers; a page in a browser may not ask it"
_MAX_BINDING_BYTES: Final = 128 << 10
_PREEMPT_SHARE: Final = 4
"""A body of `/preempt` may take one in so many bytes of the memory for requests: it is parsed
completely, which takes up to about ten times its size."""
_EXTENDER: Final[web.AppKey[Callable[[], Extender | None]]] = web.AppKey("extender")
_ASKED: Final[web.AppKey[Callable[[str], None]]] = web.AppKey("extender_asked")
_BUDGET: Final = web.AppKey("extender_bodies", ByteBudget)

EXTENDER_ENDPOINTS: Final[Mapping[str, str]] = {
    **{f"{prefix}/{verb}": verb for prefix in ("", "/scheduler") for verb in EXTENDER_VERBS},
    "/scheduler/preemption": "preempt",
}
"""Path -> verb. All are asked by POST."""


def add_extender(
    app: web.Application,
    extender: Callable[[], Extender | None],
    memory: int = MEMORY,
    asked: Callable[[str], None] = lambda _: None,
) -> None:
    """They answer 404 while ``extender`` gives None, for the rules do not ask for one; else
    ``asked`` is called with the verb (``filter``) of each request. ``memory``: bytes.
    """
    app[_EXTENDER] = extender
    app[_ASKED] = asked
    app[_BUDGET] = ByteBudget(memory)
    for path in EXTENDER_ENDPOINTS:
        app.router.add_post(path, _handle)


async def _handle(request: web.Request) -> web.StreamResponse:
    if hdrs.ORIGIN in request.headers:
        # Any site's page can send a POST to a port that was forwarded to this machine, and
        # /bind changes something. Browsers add this header to each POST, schedulers never do.
        return _unread(HTTPStatus.FORBIDDEN, _NOT_FOR_PAGES)
    extender = request.app[_EXTENDER]()
    if extender is None:
        return _unread(HTTPStatus.NOT_FOUND, _OFF)
    from dynsched.api.extender.wire import WireError

    verb, budget = EXTENDER_ENDPOINTS[request.path], request.app[_BUDGET]
    request.app[_ASKED](verb)
    parsed = budget.size // _PREEMPT_SHARE
    most = {"preempt": parsed, "bind": _MAX_BINDING_BYTES}.get(verb, budget.size)
    try:
        async with read_body(request, budget, most) as body:
            await turn(request)
            return await _answer(extender, request, verb, body)
    except WireError as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))
    except BodyError as error:
        return _unread(error.status, str(error))
    except TimeoutError:
        raise ConnectionResetError("the answer was not fetched in time") from None
    except (ConnectionError, web.HTTPException):
        raise  # the caller closed the connection, so no answer is sent
    except Exception:
        logger.exception("%s failed", request.path)
        return refused(HTTPStatus.BAD_REQUEST, "this request could not be answered")


async def _answer(extender: Extender, request: web.Request, verb: str, body: Body) -> web.Response:
    if verb == "bind":
        return respond([await extender.bind(body.data)], _HEADERS)
    if verb == "filter":
        parts = extender.filter(body.data)  # of the body, which is kept until they were sent
    else:
        ask = extender.preempt if verb == "preempt" else extender.prioritize
        answer = ask(body.data)
        body.becomes(len(answer) + min(len(answer), _AT_ONCE))
        parts = [answer]
    async with request.app[_BUDGET].waiting_for_caller(WRITE_SECONDS):
        response = respond(parts, _HEADERS, _AT_ONCE)
        await send(request, response, _AT_ONCE)
    return response


def _unread(status: int, message: str) -> web.Response:
    response = refused(status, message)
    response.force_close()  # the rest of the body is not waited for
    return response
