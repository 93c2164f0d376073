"""The HTTP endpoints for readers (docs/http.md), answered from the last tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from dynsched.core.tick import Tick
from dynsched.core.wording import coded
from dynsched.features.order.status import order_answer
from dynsched.web.extender import MAX_BODY, add_extender
from dynsched.web.metrics import CONTENT_TYPE
from dynsched.web.nodes import node_detail
from dynsched.web.page import File, read_files
from dynsched.web.page.data import node_on_page
from dynsched.web.responses import JSON, Handler, as_json, new_application, refused
from dynsched.web.status import rules_answer, status_answer
from dynsched.web.ticks import TickStore

if TYPE_CHECKING:
    from dynsched.features.extender.answers import Extender

_TICKS: Final = web.AppKey("ticks", TickStore)
_FILES: Final[web.AppKey[Mapping[str, File]]] = web.AppKey("files")
MAX_CHANGES: Final = 200


def make_app(
    ticks: TickStore,
    extender: Callable[[], Extender | None] | None = None,
    *,
    guards: Sequence[Middleware] = (),
) -> web.Application:
    """All endpoints, the extender's only with ``extender``. ``guards`` can refuse requests."""
    app = new_application(ENDPOINTS, MAX_BODY, guards)
    app[_TICKS] = ticks
    app[_FILES] = read_files()
    for path, handler in ENDPOINTS.items():
        app.router.add_get(path, handler)
    app.router.add_get("/page/{file}", _page_file)
    if extender is not None:
        add_extender(app, extender, ticks.metrics.extender_asked)
    return app


async def _status(request: web.Request) -> web.Response:
    ticks = request.app[_TICKS]
    error = ticks.why_unhealthy()
    accepted = request.headers.get(hdrs.ACCEPT, "")
    # The page links here: a person should see more than "ok".
    if JSON not in accepted and "text/html" not in accepted:
        return _ok_or(error)
    body = status_answer(
        ticks.tick,
        error=error,
        source=ticks.source,
        leader=ticks.leader(),
        rules_error=ticks.rules_error(),
    )
    return as_json(body, HTTPStatus.OK if error is None else HTTPStatus.SERVICE_UNAVAILABLE)


async def _nodes(request: web.Request) -> web.StreamResponse:
    body = await request.app[_TICKS].encoded_nodes(_tick(request))
    return web.Response(body=body, content_type=JSON)


async def _node(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    found = node_detail(_tick(request), name)
    return _no_node(name) if found is None else as_json(found)


def _no_node(name: str) -> web.Response:
    hint = "/nodes and `dynsched nodes` list all nodes"
    return refused(HTTPStatus.NOT_FOUND, f"no node {name!r} in the cluster; {hint}")


async def _rules(request: web.Request) -> web.Response:
    return as_json(rules_answer(_tick(request)))


async def _order(request: web.Request) -> web.StreamResponse:
    tick = _tick(request)
    if tick.rule_set.order is None:
        error = tick.rules_status.error
        why = error and f"the rules file is refused: {error}"
        return refused(
            HTTPStatus.NOT_FOUND, f"the rules have no `order`; {why or 'see docs/order.md'}"
        )
    ticks = request.app[_TICKS]
    return as_json(order_answer(tick, ticks.order, ticks.leader()))


async def _metrics(request: web.Request) -> web.StreamResponse:
    body = await request.app[_TICKS].exposition()
    return web.Response(body=body, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})


async def _healthz(_request: web.Request) -> web.Response:
    return _ok_or(None)


async def _readyz(request: web.Request) -> web.Response:
    return _ok_or(request.app[_TICKS].why_not_ready())


async def _page_file(request: web.Request) -> web.Response:
    """The page itself, or a file that it loads."""
    found = request.app[_FILES].get(request.match_info.get("file", "index.html"))
    if found is None:
        raise web.HTTPNotFound
    return _unless_known(request, *found)


def _unless_known(request: web.Request, headers: Mapping[str, str], body: bytes) -> web.Response:
    """304 if the client has the version that the ETag in ``headers`` names."""
    if headers[hdrs.ETAG] in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    response = web.Response(body=body, headers=headers)
    response.enable_compression()  # if the client accepts it
    return response


async def _page_data(request: web.Request) -> web.Response:
    ticks, tick = request.app[_TICKS], _tick(request)
    body = await ticks.encoded_page(tick)
    headers: dict[str, str] = {
        hdrs.ETAG: f'"{tick.taken_at}"',  # two replicas finish no tick in the same microsecond
        # The body is cached, so it cannot contain its age.
        hdrs.AGE: str(round(ticks.age())),
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
        hdrs.CONTENT_TYPE: JSON,
    }
    return _unless_known(request, headers, body)


async def _page_node(request: web.Request) -> web.Response:
    ticks, name = request.app[_TICKS], request.match_info["name"]
    found = node_on_page(_tick(request), name, ticks.order.order)
    if found is None:
        return _no_node(name)
    changes = ticks.changes.of_node(name, MAX_CHANGES)
    return as_json({**found, "changes": changes}, hook=coded)


ENDPOINTS: Final[Mapping[str, Handler]] = {
    "/": _page_file,
    "/status": _status,
    "/nodes": _nodes,
    "/nodes/{name}": _node,
    "/rules": _rules,
    "/order": _order,
    "/metrics": _metrics,
    "/page/data": _page_data,
    "/page/nodes/{name}": _page_node,
    "/healthz": _healthz,
    "/readyz": _readyz,
}


def _tick(request: web.Request) -> Tick:
    ticks = request.app[_TICKS]
    if ticks.tick is None:  # an empty list would mean "none is hot"
        raise web.HTTPServiceUnavailable(text=f"{ticks.why_unhealthy()}; try again soon")
    return ticks.tick


def _ok_or(error: str | None) -> web.Response:
    return web.Response(text="ok") if error is None else web.Response(text=error, status=503)
