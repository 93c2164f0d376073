"""The page's paths: its files, its data, the last hour. Everything is answered from memory."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final

from aiohttp import hdrs, web

from dynsched.api.page.data import Encoded
from dynsched.api.page.facts import PageFacts
from dynsched.api.page.history import Changes, History
from dynsched.api.transport.answering import JSON, as_json, unchanged

MAX_NODES: Final = 60
"""Nodes whose past one request may ask for."""
MAX_CHANGES: Final = 200

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_File = tuple[dict[str, str], bytes, bytes]
"""Its header fields, its bytes, and the same as gzip."""


@cache
def _read_files() -> dict[str, _File]:
    """By name. Once, at the start: a request must not touch the disk."""
    found = {}
    for file in (resources.files("dynsched.api.page") / "static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            headers: dict[str, str] = {
                "Content-Security-Policy": _POLICY,
                hdrs.CONTENT_TYPE: f"{kind}; charset=utf-8",
                hdrs.ETAG: f'"{hashlib.sha256(body).hexdigest()[:16]}"',
                # After an update no half of the page may be of the version before.
                hdrs.CACHE_CONTROL: "no-cache",
                hdrs.VARY: hdrs.ACCEPT_ENCODING,
            }
            found[file.name] = headers, body, gzip.compress(body, mtime=0)
    return found


@dataclass(frozen=True, slots=True)
class PageSources:
    """What the handlers answer from. ``age``: seconds since the last Snapshot."""

    history: History
    changes: Changes
    facts: PageFacts
    encoded: Callable[[], Awaitable[Encoded | None]]
    age: Callable[[], float]
    files: Mapping[str, _File] = field(default_factory=_read_files)


PAGE: Final = web.AppKey("page", PageSources)


async def page_file(request: web.Request) -> web.Response:
    """The page itself, or what it loads."""
    found = request.app[PAGE].files.get(request.match_info.get("file", "index.html"))
    if found is None:
        raise web.HTTPNotFound
    return _sent(request, *found)


def _sent(
    request: web.Request, headers: dict[str, str], body: bytes, gzipped: bytes
) -> web.Response:
    known = unchanged(request, headers)
    if known is not None:
        return known
    if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower():
        body, headers = gzipped, {**headers, hdrs.CONTENT_ENCODING: "gzip"}
    return web.Response(body=body, headers=headers)


async def page_data(request: web.Request) -> web.Response:
    page = request.app[PAGE]
    page.facts.look()
    encoded = await page.encoded()
    if encoded is None:
        raise web.HTTPServiceUnavailable(text="no tick has finished yet; try again soon")
    headers: dict[str, str] = {
        hdrs.ETAG: encoded[0],
        # The bytes stay as they are while they get older.
        hdrs.AGE: str(round(page.age())),
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
        hdrs.CONTENT_TYPE: JSON,
    }
    return _sent(request, headers, *encoded[1:])


async def page_history(request: web.Request) -> web.Response:
    nodes = request.query.getall("node", [])
    if not 0 < len(nodes) <= MAX_NODES:
        raise web.HTTPBadRequest(text=f"name 1 to {MAX_NODES} nodes, as ?node=a&node=b")
    return as_json(request.app[PAGE].history.past(nodes))


async def page_node(request: web.Request) -> web.Response:
    page, node, hours = request.app[PAGE], request.query.get("node"), request.query.get("hours")
    if node is None or hours not in (None, "6", "24"):
        raise web.HTTPBadRequest(text="name the node, as ?node=a; more than the last hour: hours=6")
    page.facts.look()
    found = page.facts.of_node(node, int(hours or 0))
    return as_json({"changes": page.changes.latest(MAX_CHANGES, node), **found})
