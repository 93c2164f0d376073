"""The scheduler extender on HTTP: its paths, bodies of any size, and no answer but 200 or 4xx."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from msgspec import Raw

from dynsched.web import wire
from dynsched.web.bodies import BodyError, BodyReader
from dynsched.web.extender import Extender

logger = logging.getLogger(__name__)

_JSON: Final = "application/json"
_CHUNK: Final = 1 << 18
_WRITE_SECONDS: Final = 30.0
"""How long an answer may take to be fetched: a caller that does not read holds its body."""
_EXTENDER: Final = web.AppKey("extender", Extender)
_READER: Final = web.AppKey("extender_bodies", BodyReader)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Answer = Callable[[web.Request, bytearray], Awaitable[web.StreamResponse]]


def add_extender(
    app: web.Application, extender: Extender, reader: BodyReader | None = None
) -> None:
    """Serve the extender's endpoints on ``app``."""
    app[_EXTENDER] = extender
    app[_READER] = reader or BodyReader()
    for path, (handler, _) in EXTENDER_ENDPOINTS.items():
        app.router.add_post(path, handler)


async def _filter(request: web.Request, body: bytearray) -> web.StreamResponse:
    parts = request.app[_EXTENDER].filter(body)
    if len(parts) == 1:
        return _json(bytes(parts[0]))
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: _JSON})
    response.content_length = sum(len(memoryview(part)) for part in parts)
    await response.prepare(request)
    async with asyncio.timeout(_WRITE_SECONDS):
        for chunk in _chunks(parts):
            await response.write(chunk)
        await response.write_eof()
    return response


async def _prioritize(request: web.Request, body: bytearray) -> web.StreamResponse:
    return _json(request.app[_EXTENDER].prioritize(body))


async def _preempt(request: web.Request, body: bytearray) -> web.StreamResponse:
    return _json(request.app[_EXTENDER].preempt(body))


async def _bind(request: web.Request, body: bytearray) -> web.StreamResponse:
    return _json(await request.app[_EXTENDER].bind(body, lambda: request.transport is not None))


def _answering(answer: _Answer) -> _Handler:
    """A handler that reads the body, and tells what is wrong with it."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            with await request.app[_READER].read(request) as body:
                return await answer(request, body)
        except wire.WireError as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        except BodyError as error:
            response = _refusal(HTTPStatus(error.status), str(error))
            response.force_close()  # the rest of the body is not waited for
            return response
        except (ConnectionError, TimeoutError, web.HTTPException):
            raise  # the caller went away; nobody reads what is said
        except Exception:
            logger.exception("%s failed", request.path)
            return _refusal(HTTPStatus.BAD_REQUEST, "this question could not be answered")

    return handle


def _refusal(status: HTTPStatus, message: str) -> web.Response:
    return web.Response(body=wire.refusal(message), status=status, content_type=_JSON)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON)


def _chunks(parts: Sequence[bytes | Raw]) -> Iterator[bytes]:
    """The parts put together, a quarter of a megabyte at a time."""
    gathered = bytearray()
    for part in parts:
        gathered += memoryview(part)
        if len(gathered) >= _CHUNK:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


_VERBS: Final[Mapping[str, tuple[_Answer, str]]] = {
    "filter": (_filter, "scheduler extender: which of the candidates pass"),
    "prioritize": (_prioritize, "scheduler extender: a score, 0 to 10, for each candidate"),
    "preempt": (_preempt, "scheduler extender: which preemptions would help"),
    "bind": (_bind, "scheduler extender: bind a pod (with --bind)"),
}

EXTENDER_ENDPOINTS: Final[Mapping[str, tuple[_Handler, str]]] = {
    f"{prefix}/{verb}": (_answering(answer), text)
    for prefix in ("", "/scheduler")
    for verb, (answer, text) in _VERBS.items()
} | {"/scheduler/preemption": (_answering(_preempt), _VERBS["preempt"][1])}
"""Path -> handler, and one line for a person. All are asked by POST."""
