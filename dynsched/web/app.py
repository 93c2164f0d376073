"""The HTTP API, answered from the last tick: docs/http.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from dynsched.core.tick import Tick
from dynsched.core.wording import coded
from dynsched.features.order.status import order_answer
from dynsched.util.logs import quiet_logger
from dynsched.web.extender import EXTENDER_ENDPOINTS, MAX_BODY, add_extender
from dynsched.web.metrics import CONTENT_TYPE
from dynsched.web.nodes import node_detail
from dynsched.web.page import File, read_files
from dynsched.web.responses import JSON, Handler, add_headers, as_json, refused
from dynsched.web.status import rules_answer, status_answer
from dynsched.web.ticks import TickStore

if TYPE_CHECKING:
    from dynsched.features.extender.answers import Extender

_logger = quiet_logger(__name__)
_TICKS: Final = web.AppKey("ticks", TickStore)
_PATHS: Final[web.AppKey[Collection[str]]] = web.AppKey("paths")
_FILES: Final[web.AppKey[Mapping[str, File]]] = web.AppKey("files")
MAX_NODES: Final = 60
"""Nodes in one request for the last hour."""
MAX_CHANGES: Final = 200


def make_app(
    ticks: TickStore,
    extender: Callable[[], Extender | None] | None = None,
    *,
    guards: Sequence[Middleware] = (),
) -> web.Application:
    """All endpoints, the extender's only with ``extender``. ``guards`` may refuse a request."""
    app = application(ENDPOINTS, guards)
    app[_TICKS] = ticks
    app[_FILES] = read_files()
    for path, handler in ENDPOINTS.items():
        app.router.add_get(path, handler)
    app.router.add_get("/page/{file}", _page_file)
    if extender is not None:
        add_extender(app, extender, ticks.metrics.extender_asked)
    return app


def make_extender_app(
    ticks: TickStore,
    extender: Callable[[], Extender | None],
    *,
    guards: Sequence[Middleware] = (),
) -> web.Application:
    """The extender's endpoints alone."""
    app = application(EXTENDER_ENDPOINTS, guards)
    add_extender(app, extender, ticks.metrics.extender_asked)
    return app


def application(
    paths: Collection[str], guards: Sequence[Middleware], max_body: int = MAX_BODY
) -> web.Application:
    """One without endpoints. It names ``paths`` where another is asked for."""
    app = web.Application(middlewares=[_errors_as_json, *guards], client_max_size=max_body)
    app[_PATHS] = paths
    app.on_response_prepare.append(add_headers)
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
    detail = node_detail(_tick(request), name)
    if detail is None:
        where = "/nodes and `dynsched nodes` list them"
        return refused(HTTPStatus.NOT_FOUND, f"no node {name!r} in the cluster; {where}")
    return as_json(detail)


async def _rules(request: web.Request) -> web.Response:
    return as_json(rules_answer(_tick(request)))


async def _order(request: web.Request) -> web.StreamResponse:
    tick = _tick(request)
    if tick.rule_set.order is None:
        error = tick.rules_status.error
        why = error and f"the rules file is refused: {error}"
        return refused(
            HTTPStatus.NOT_FOUND, f"the rules have no `order`; {why or 'docs/order.md has it'}"
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
    """The page itself, or what it loads."""
    found = request.app[_FILES].get(request.match_info.get("file", "index.html"))
    if found is None:
        raise web.HTTPNotFound
    return _unless_known(request, *found)


def _unless_known(request: web.Request, headers: Mapping[str, str], body: bytes) -> web.Response:
    """304 where the caller has what the ETag in ``headers`` names."""
    if headers[hdrs.ETAG] in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    response = web.Response(body=body, headers=headers)
    response.enable_compression()  # as the caller accepts it
    return response


async def _page_data(request: web.Request) -> web.Response:
    ticks = request.app[_TICKS]
    ticks.facts.look()
    etag = ticks.etag  # before any wait: of this very tick
    body = await ticks.encoded_page(_tick(request))
    headers: dict[str, str] = {
        hdrs.ETAG: etag,
        # The bytes stay as they are while they get older.
        hdrs.AGE: str(round(ticks.age())),
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
        hdrs.CONTENT_TYPE: JSON,
    }
    return _unless_known(request, headers, body)


async def _page_history(request: web.Request) -> web.Response:
    nodes = request.query.getall("node", [])
    if not 0 < len(nodes) <= MAX_NODES:
        raise web.HTTPBadRequest(text=f"name 1 to {MAX_NODES} nodes, as ?node=a&node=b")
    return as_json(request.app[_TICKS].history.past(nodes))


async def _page_node(request: web.Request) -> web.Response:
    ticks, node = request.app[_TICKS], request.query.get("node")
    if node is None:
        raise web.HTTPBadRequest(text="name the node, as ?node=a")
    ticks.facts.look()
    found = ticks.facts.of_node(node, ticks.order.order)
    changes = ticks.changes.of_node(node, MAX_CHANGES)
    return as_json({"changes": changes, **found}, hook=coded)


ENDPOINTS: Final[Mapping[str, Handler]] = {
    "/": _page_file,
    "/status": _status,
    "/nodes": _nodes,
    "/nodes/{name}": _node,
    "/rules": _rules,
    "/order": _order,
    "/metrics": _metrics,
    "/page/data": _page_data,
    "/page/history": _page_history,
    "/page/node": _page_node,
    "/healthz": _healthz,
    "/readyz": _readyz,
}


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A bug is logged, and the server continues."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        return _refused(request, refusal)
    except ConnectionError:
        raise  # the caller went away
    except Exception:
        _logger.exception("%s %s failed", request.method, request.path)
        return refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log has the details")


def _refused(request: web.Request, refusal: web.HTTPException) -> web.Response:
    if isinstance(refusal, web.HTTPNotFound):
        body = {"error": f"there is no {request.path}", "endpoints": [*request.app[_PATHS]]}
        return as_json(body, refusal.status)
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        response = refused(
            refusal.status, f"{request.method} is not for {request.path}; use {allowed}"
        )
        response.headers[hdrs.ALLOW] = allowed
        return response
    return refused(refusal.status, refusal.text or refusal.reason)


def _tick(request: web.Request) -> Tick:
    ticks = request.app[_TICKS]
    if ticks.tick is None:  # not an empty list, which a caller would take for "none is hot"
        raise web.HTTPServiceUnavailable(text=f"{ticks.why_unhealthy()}; try again soon")
    return ticks.tick


def _ok_or(error: str | None) -> web.Response:
    return web.Response(text="ok") if error is None else web.Response(text=error, status=503)
