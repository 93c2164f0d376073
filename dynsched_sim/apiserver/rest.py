"""Turns a parsed request into a call of `Objects` and its result into an HTTP response."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from dynsched_sim.apiserver import api_errors, render
from dynsched_sim.apiserver.objects import Objects, Write
from dynsched_sim.apiserver.render import Renderer
from dynsched_sim.apiserver.requested import (
    ListSelector,
    Target,
    number,
    selector_of,
)
from dynsched_sim.apiserver.store import Entry, GoneError
from dynsched_sim.apiserver.watch import Watches

_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
"""Server-side apply. Every patch is treated as a JSON merge patch; this one also creates the object
if it does not exist. The patches of `kubectl cordon` and `kubectl taint` mean the same either way.
"""
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Call(NamedTuple):
    request: web.BaseRequest
    target: Target
    verb: str
    query: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip()

    def renderer(self) -> Renderer:
        form = render.negotiate(self.request.headers.get("Accept", ""))
        return Renderer(self.target.resource, form)

    def how(self) -> Write:
        agent = self.request.headers.get("User-Agent", "unknown")
        manager = self.query.get("fieldManager") or agent.partition("/")[0]
        return Write(manager, self.target.subresource)


class Rest:
    def __init__(self, objects: Objects, watches: Watches) -> None:
        self._objects = objects
        self._watches = watches
        self._do: dict[str, Callable[[Call, Renderer], web.Response]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
        }

    async def answer(self, call: Call) -> web.StreamResponse:
        renderer = call.renderer()
        if call.verb == "watch":
            selector = selector_of(call.target, call.query)
            return await self._watches.serve(call.request, renderer, selector)
        return self._do[call.verb](call, renderer)

    # --- writing ---

    def _create(self, call: Call, renderer: Renderer) -> web.Response:
        body, target = _object(call), call.target
        if target.subresource == "binding":
            self._objects.bind(target.name, target.namespace, body, call.how())
            return respond(render.encode({**_SUCCESS, "code": 201}), 201)
        created = self._objects.create(target.resource, body, target.namespace, call.how())
        return respond(renderer.one(created), 201)

    def _replace(self, call: Call, renderer: Renderer) -> web.Response:
        where = call.target.resource, call.target.name
        written = self._objects.replace(*where, _object(call), call.target.namespace, call.how())
        return respond(renderer.one(written))

    def _patch(self, call: Call, renderer: Renderer) -> web.Response:
        resource, namespace, name, _ = call.target
        patch, is_there = _object(call), self._objects.store.get(resource, namespace, name)
        if call.media_type == _APPLY and not is_there:
            created = self._objects.create(resource, patch, namespace, call.how())
            return respond(renderer.one(created), 201)
        written = self._objects.patch(resource, name, patch, namespace, call.how())
        return respond(renderer.one(written))

    def _delete(self, call: Call, renderer: Renderer) -> web.Response:
        where = call.target.resource, call.target.name, call.target.namespace
        uid = self._objects.find(*where).uid
        remaining = self._objects.delete(*where)
        if remaining is not None:
            return respond(renderer.one(remaining))
        details = {"name": call.target.name, "kind": call.target.resource.plural, "uid": uid}
        return respond(render.encode({**_SUCCESS, "details": details}))

    # --- reading ---

    def _get(self, call: Call, renderer: Renderer) -> web.Response:
        where = call.target.resource, call.target.name, call.target.namespace
        return respond(renderer.one(self._objects.find(*where)))

    def _list(self, call: Call, renderer: Renderer) -> web.Response:
        selector = selector_of(call.target, call.query)
        version, last, limit = self._position(call)
        try:
            entries = self._objects.store.entries(call.target.resource, version)
        except GoneError:
            raise api_errors.expired("The provided continue parameter is too old.") from None
        entries = entries[bisect_right(entries, last, key=lambda entry: entry.key) :]
        page, metadata = _page(entries, selector, limit, version)
        return respond(renderer.many(page, metadata))

    def _position(self, call: Call) -> tuple[int, str, int]:
        """The version to list at, the last key of the previous page, and the page's limit."""
        limit, current = max(number(call.query, "limit"), 0), self._objects.store.version
        # A continue token has the form VERSION:KEY.
        begun, _, last = call.query.get("continue", "").partition(":")
        if begun or last:
            return int(begun), last, limit
        # The real server ignores the limit if it answers from its watch cache.
        return current, "", 0 if call.query.get("resourceVersion") else limit


def _page(
    entries: Sequence[Entry], selector: ListSelector, limit: int, version: int
) -> tuple[Sequence[Entry], dict[str, Any]]:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    selected = entries if selector.everything else [e for e in entries if selector(e)]
    if limit and len(selected) > limit:
        selected = selected[:limit]
        metadata["continue"] = f"{version}:{selected[-1].key}"
    return selected, metadata


def _object(call: Call) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(call.body)
    return body


def respond(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type=_JSON)
