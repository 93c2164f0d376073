"""The scheduler extender on HTTP: its paths, bodies of any size, and no answer but 200 or 4xx."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from dynsched.api.transport.answering import (
    FAIR_YIELD,
    JSON,
    WRITE_SECONDS,
    Handler,
    Pieces,
    refused,
    respond,
    send,
)
from dynsched.api.transport.bodies import Body, BodyError, BodyReader
from dynsched.api.transport.quiet import quiet_logger

if TYPE_CHECKING:  # imported when the rules ask for an extender: `controller.pod_tracking`
    from dynsched.api.extender.answers import Extender

logger = quiet_logger(__name__)

_HEADERS: Final[Mapping[str, str]] = {hdrs.CONTENT_TYPE: JSON}
_AT_ONCE: Final = 512 << 10
"""Bytes of an answer that are handed to the connection in one piece: 5,000 scores are 330 KiB, and
in slices they take a third longer.
"""
_OFF: Final = "the scheduler extender is off: rules.yaml has no section `extender`"
_NOT_FOR_PAGES: Final = "this path is for schedulers; a page in a browser may not ask it"
_MAX_BINDING_BYTES: Final = 128 << 10
_PREEMPT_SHARE: Final = 4
"""A body of `/preempt` may take at most this fraction (one in 4) of the memory for requests,
because it is parsed completely, which takes up to about ten times its size.
"""
_EXTENDER: Final[web.AppKey[Callable[[], Extender | None]]] = web.AppKey("extender")
_ASKED: Final[web.AppKey[Callable[[str], None]]] = web.AppKey("extender_asked")
_READER: Final = web.AppKey("extender_bodies", BodyReader)
_Answer = Callable[["Extender", web.Request, Body], Awaitable[web.StreamResponse]]


def add_extender(
    app: web.Application,
    extender: Callable[[], Extender | None],
    reader: BodyReader | None = None,
    asked: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the extender's endpoints on ``app``; they answer 404 while ``extender`` gives None, for
    the rules do not ask for one. ``asked`` is called with the verb (``filter``) of
    each request while they are served.
    """
    app[_EXTENDER] = extender
    app[_ASKED] = asked
    app[_READER] = reader or BodyReader()
    for path, (handler, _) in EXTENDER_ENDPOINTS.items():
        app.router.add_post(path, handler)


async def _filter(extender: Extender, request: web.Request, body: Body) -> web.Response:
    # Its parts are of the body, which is kept until they were sent.
    return await _sent(request, extender.filter(body.data))


async def _prioritize(extender: Extender, request: web.Request, body: Body) -> web.Response:
    return await _instead(request, body, extender.prioritize(body.data))


async def _preempt(extender: Extender, request: web.Request, body: Body) -> web.Response:
    return await _instead(request, body, extender.preempt(body.data))


async def _bind(extender: Extender, request: web.Request, body: Body) -> web.Response:
    wanted = lambda: request.transport is not None  # noqa: E731 - whether the caller still waits
    return respond([await extender.bind(body.data, wanted)], _HEADERS)


async def _instead(request: web.Request, body: Body, answer: bytes) -> web.Response:
    """An answer made of the body, which takes its place until it was fetched."""
    body.becomes(len(answer) + min(len(answer), _AT_ONCE))
    return await _sent(request, [answer])


async def _sent(request: web.Request, parts: Pieces) -> web.Response:
    async with request.app[_READER].budget.waiting_for_caller(WRITE_SECONDS):
        response = respond(parts, _HEADERS, _AT_ONCE)
        await send(request, response, _AT_ONCE)
    return response


def _answering(verb: str, answer: _Answer, most: Callable[[int], int]) -> Handler:
    """A handler that reads the body and reports errors in it. ``most``: from the bytes for all
    requests, the bytes that one request of this kind may have.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if hdrs.ORIGIN in request.headers:
            # Any site's page can send a POST to a port that was forwarded to this machine, and
            # /bind changes something. Browsers add this header to each POST, schedulers never do.
            return _unread(HTTPStatus.FORBIDDEN, _NOT_FOR_PAGES)
        extender = request.app[_EXTENDER]()
        if extender is None:
            return _unread(HTTPStatus.NOT_FOUND, _OFF)
        from dynsched.api.extender.wire import WireError

        request.app[_ASKED](verb)
        reader = request.app[_READER]
        try:
            async with reader.read(request, most(reader.budget.size)) as body:
                await request.app[FAIR_YIELD].turn()
                return await answer(extender, request, body)
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

    return handle


def _unread(status: int, message: str) -> web.Response:
    response = refused(status, message)
    response.force_close()  # the rest of the body is not waited for
    return response


def _any(most: int) -> int:
    return most


_VERBS: Final[Mapping[str, tuple[_Answer, Callable[[int], int], str]]] = {
    "filter": (_filter, _any, "scheduler extender: which of the candidates pass"),
    "prioritize": (_prioritize, _any, "scheduler extender: a score, 0 to 10, for each candidate"),
    "preempt": (
        _preempt,
        lambda most: most // _PREEMPT_SHARE,
        "scheduler extender: which preemptions would help",
    ),
    "bind": (_bind, lambda _: _MAX_BINDING_BYTES, "scheduler extender: bind a pod (with --bind)"),
}
_PATHS: Final = {f"{prefix}/{verb}": verb for prefix in ("", "/scheduler") for verb in _VERBS}

EXTENDER_ENDPOINTS: Final[Mapping[str, tuple[Handler, str]]] = {
    path: (_answering(verb, answer, most), text)
    for path, verb in {**_PATHS, "/scheduler/preemption": "preempt"}.items()
    for answer, most, text in [_VERBS[verb]]
}
"""Path -> handler, and one line for a person. All are asked by POST."""
