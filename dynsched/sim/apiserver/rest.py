"""The verbs over HTTP: from a parsed request to a response."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from aiohttp import web

from dynsched.sim.apiserver import render, status, watch
from dynsched.sim.apiserver.binding import bind
from dynsched.sim.apiserver.objects import Objects, PatchType, Preconditions, Write, Written
from dynsched.sim.apiserver.render import Renderer
from dynsched.sim.apiserver.routes import Target, number
from dynsched.sim.apiserver.selectors import Selector, parse
from dynsched.sim.apiserver.store import Entry, GoneError
from dynsched.sim.apiserver.watch import Watches

_JSON: Final = "application/json"
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can"
    " start a new list without the continue parameter, or use the continue token in this response"
    " to retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


class _Token(msgspec.Struct):
    """What a continue token holds; ``rv`` -1 goes on at whatever version is the present one."""

    v: str
    rv: int
    start: str

    @classmethod
    def parse(cls, text: str) -> _Token:
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.json.decode(raw, type=cls)
        except (binascii.Error, ValueError, msgspec.DecodeError) as error:
            told = f"invalid continue token: continue key is not valid: {error}"
            raise status.bad_request(told) from None

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a resource."""

    request: web.BaseRequest
    target: Target
    verb: str
    query: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """The Content-Type without its parameters."""
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip()

    def renderer(self) -> Renderer:
        """How the answer is to look."""
        form = render.negotiate(self.request.headers.get("Accept", ""))
        include = self.query.get("includeObject", "Metadata")
        return Renderer(self.target.resource, form, include)

    def how(self) -> Write:
        """Who writes, and how."""
        dry_run = self.query.get("dryRun", "")
        if dry_run not in {"", "All"}:
            options = "PatchOptions" if self.verb == "patch" else "UpdateOptions"
            told = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
            raise status.invalid_options(options, "dryRun", "FieldValueNotSupported", told)
        agent = self.request.headers.get("User-Agent", "unknown")
        return Write(
            manager=self.query.get("fieldManager") or agent.partition("/")[0],
            subresource=self.target.subresource,
            dry_run=dry_run == "All",
            strict=self.query.get("fieldValidation") == "Strict",
        )


class Rest:
    """The verbs. One instance a server."""

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
            "deletecollection": self._delete_collection,
        }

    async def answer(self, call: Call) -> web.StreamResponse:
        """Do what was asked; ApiError says why not."""
        renderer = call.renderer()
        if call.verb == "watch":
            selector = parse(call.target.resource, call.query, call.target.namespace)
            asked = watch.options(call.query)
            return await self._watches.serve(call.request, renderer, selector, asked)
        return self._do[call.verb](call, renderer)

    # --- writing ---

    def _create(self, call: Call, renderer: Renderer) -> web.Response:
        body, target = _object(call), call.target
        if target.subresource == "binding":
            bind(self._objects, target.name, target.namespace, body, call.how())
            return respond(render.encode({**_SUCCESS, "code": 201}), 201)
        written = self._objects.create(target.resource, body, target.namespace, call.how())
        return _written(written, renderer, created=True)

    def _replace(self, call: Call, renderer: Renderer) -> web.Response:
        body, target, how = _object(call), call.target, call.how()
        written = self._objects.replace(target.resource, target.name, body, target.namespace, how)
        return _written(written, renderer)

    def _patch(self, call: Call, renderer: Renderer) -> web.Response:
        if call.media_type.startswith("application/apply-patch"):
            raise status.unsupported_media_type(
                "415: server-side apply is not offered by this server; use a merge patch"
            )
        try:
            kind = PatchType(call.media_type)
        except ValueError:
            raise status.unsupported_media_type() from None
        target, how = call.target, call.how()
        patch = _decode(call.body, "error decoding patch")
        written = self._objects.patch(
            target.resource, target.name, patch, target.namespace, how, kind=kind
        )
        return _written(written, renderer)

    def _delete(self, call: Call, renderer: Renderer) -> web.Response:
        options = _decode(call.body, "error decoding options") if call.body else {}
        asked = options.get("preconditions") or {}
        only_if = Preconditions(asked.get("uid") or "", asked.get("resourceVersion") or "")
        target = call.target
        dry_run = call.how().dry_run or bool(options.get("dryRun"))
        uid = self._objects.find(target.resource, target.name, target.namespace).uid
        held = self._objects.delete(
            target.resource, target.name, target.namespace, only_if, dry_run=dry_run
        )
        if held is not None:
            return respond(renderer.one(held, _now()))
        group = {"group": target.resource.group} if target.resource.group else {}
        details = {"name": target.name, **group, "kind": target.resource.plural, "uid": uid}
        return respond(render.encode({**_SUCCESS, "details": details}))

    def _delete_collection(self, call: Call, renderer: Renderer) -> web.Response:
        resource = call.target.resource
        selector = parse(resource, call.query, call.target.namespace)
        selected = [e for e in self._objects.store.entries(resource) if selector(e)]
        for entry in selected:
            dry_run = call.how().dry_run
            self._objects.delete(resource, entry.name, entry.namespace, dry_run=dry_run)
        metadata = {"resourceVersion": str(self._objects.store.version)}
        return respond(renderer.many(selected, metadata, _now()))

    # --- reading ---

    def _get(self, call: Call, renderer: Renderer) -> web.Response:
        target = call.target
        entry = self._objects.find(target.resource, target.name, target.namespace)
        return respond(renderer.one(entry, _now()))

    def _list(self, call: Call, renderer: Renderer) -> web.Response:
        selector = parse(call.target.resource, call.query, call.target.namespace)
        limit = max(number(call.query, "limit"), 0)
        token = call.query.get("continue", "")
        if token:
            if call.query.get("resourceVersion", "") not in {"", "0"}:
                message = "specifying resource version is not allowed when using continue"
                raise status.bad_request(message)
            start = _Token.parse(token)
            version, entries = self._from_token(call, start)
            entries = entries[bisect_left(entries, start.start, key=lambda e: e.key) :]
        else:
            version, entries, limit = self._at_version(call, limit)
        page, metadata = _page(entries, selector, limit, version)
        return respond(renderer.many(page, metadata, _now()))

    def _from_token(self, call: Call, token: _Token) -> tuple[int, Sequence[Entry]]:
        store, resource = self._objects.store, call.target.resource
        if token.rv < 0:
            return store.version, store.entries(resource)
        try:
            return token.rv, store.entries(resource, token.rv)
        except GoneError:
            onward = _Token(token.v, -1, token.start)
            raise status.expired(_TOO_OLD, continuation=str(onward)) from None

    def _at_version(self, call: Call, limit: int) -> tuple[int, Sequence[Entry], int]:
        """The version to list at, what was there, and how much of it to give."""
        store, resource = self._objects.store, call.target.resource
        asked, match = call.query.get("resourceVersion", ""), _match_of(call.query)
        if asked in {"", "0"}:
            # From the cache the real server gives everything, whatever the limit is.
            return store.version, store.entries(resource), 0 if asked else limit
        if not asked.isdecimal():
            raise status.internal(
                f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing'
                f' "{asked}": invalid syntax'
            )
        version = int(asked)
        if version > store.version:
            raise status.version_too_large(version, store.version)
        if match != "Exact" and not (limit and not match):
            return store.version, store.entries(resource), limit
        try:
            return version, store.entries(resource, version), limit
        except GoneError:
            message = "The resourceVersion for the provided list is too old."
            raise status.expired(message) from None


def _match_of(query: Mapping[str, str]) -> str:
    match, field = query.get("resourceVersionMatch", ""), "resourceVersionMatch"
    if match and not query.get("resourceVersion"):
        told = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise status.invalid_options("ListOptions", field, "FieldValueForbidden", told)
    if match not in {"", "Exact", "NotOlderThan"}:
        told = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise status.invalid_options("ListOptions", field, "FieldValueNotSupported", told)
    return match


def _page(
    entries: Sequence[Entry], selector: Selector, limit: int, version: int
) -> tuple[Sequence[Entry], dict[str, Any]]:
    """The first ``limit`` of what is selected, and the list's metadata."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    selected = entries if selector.everything else [e for e in entries if selector(e)]
    if limit and len(selected) > limit:
        page = selected[:limit]
        metadata["continue"] = str(_Token("meta.k8s.io/v1", version, f"{page[-1].key}\0"))
        if not selector.selective:  # the real server does not count through a selector
            metadata["remainingItemCount"] = len(selected) - limit
        return page, metadata
    return selected, metadata


def _object(call: Call) -> dict[str, Any]:
    if call.media_type not in {"", _JSON}:
        raise status.unsupported_media_type()
    body = _decode(
        call.body,
        f"the object provided is unrecognized (must be of type {call.target.resource.kind}):"
        " couldn't get version/kind; json parse error",
    )
    if not isinstance(body, dict):
        raise status.bad_request("the object provided is not a JSON object")
    return body


def _decode(body: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status.bad_request(f"{what}: {error}") from None


def _written(written: Written, renderer: Renderer, *, created: bool = False) -> web.Response:
    response = respond(renderer.one(written.entry, _now()), 201 if created else 200)
    for unknown in written.unknown:
        response.headers.add("Warning", '299 - "' + unknown.replace('"', '\\"') + '"')
    return response


def respond(body: bytes, code: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=body, status=code, content_type=_JSON)


def refuse(error: status.ApiError) -> web.Response:
    """A Status as an answer."""
    return respond(render.encode(error.body), error.code)


def _now() -> datetime:
    return datetime.now(UTC)
