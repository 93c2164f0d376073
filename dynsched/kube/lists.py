"""What the API server sends of many objects: lists in pages, all as of one moment and one page in
memory at a time; and the lines of a watch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar, Unpack

import msgspec

from dynsched.kube.failures import Call
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi, Request
from dynsched.util.errors import ClusterError, ConflictError

PAGE: Final = 500
"""Objects a page: of nodes, 4 to 10 MB of JSON at a time, whatever the size of the cluster."""

METADATA_ONLY: Final = {
    # A server that does not know this form (there is none, but for fakes) sends the whole objects.
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
}

Item = TypeVar("Item")


class _ListMeta(msgspec.Struct, gc=False):
    """Where in the list a page ends; ``remaining``: how many come after it, where the server says
    so.
    """

    version: str = msgspec.field(name="resourceVersion", default="")
    after: str = msgspec.field(name="continue", default="")
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class ListPage(msgspec.Struct, Generic[Item], gc=False):
    """A page of a list. What a type of its items does not name costs no memory."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[Item] | None = None


class ObjectMeta(msgspec.Struct, gc=False):
    """The part of metadata that every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class Named(msgspec.Struct, gc=False):
    """Any object, of which nothing but its identity matters."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Event(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


async def read_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """The lines of a watch."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def pages(
    api: KubeApi,
    call: Call,
    item: type[Item],
    *,
    may_be_unknown: bool = False,
    **request: Unpack[Request],
) -> AsyncIterator[ListPage[Item]]:
    """The caller must let go of a page (``del``) before it takes the next, or two would be in
    memory. ``may_be_unknown``: a server that does not know the resource has no such objects.
    ConflictError when the list's snapshot expired between two pages.
    """
    expected = (HTTPStatus.GONE, *([HTTPStatus.NOT_FOUND] if may_be_unknown else ()))
    query = {**(request.get("query") or {}), "limit": str(PAGE)}
    request.setdefault("timeout", LIST_TIMEOUT)
    while True:
        request["query"] = query
        answer = await api.call(
            call,
            accept=expected,
            shape=ListPage[item],  # type: ignore[valid-type]
            **request,
        )
        if answer.status == HTTPStatus.GONE:
            raise ConflictError(f"cannot {call}: the list's snapshot expired between two pages")
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        page = _required(call, api, answer.body)
        query = {**query, "continue": page.metadata.after}
        del answer
        yield page
        del page
        if not query["continue"]:
            return


async def first_item(api: KubeApi, call: Call) -> ListPage[Named]:
    """A list's first page, of one object without its content. Raises ClusterError."""
    query = {"limit": "1"}
    answer = await api.call(call, query=query, headers=METADATA_ONLY, shape=ListPage[Named])
    page: ListPage[Named] = _required(call, api, answer.body)
    return page


def _required(call: Call, api: KubeApi, page: Any) -> Any:
    """The page. ClusterError for an answer without a version, such as ``{}``: it is no list."""
    if page is None or not page.metadata.version:
        server = api.config.server
        raise ClusterError(f"cannot {call}: {server} answered no list; is a proxy between?")
    return page
