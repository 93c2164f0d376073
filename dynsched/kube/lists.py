"""Lists in pages, all as of one moment, and one page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, Generic, TypeVar, Unpack

import msgspec

from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi, RequestOptions
from dynsched.util.errors import ClusterError, ConflictError

PAGE: Final = 500
"""Objects a page: of nodes, 4 to 10 MB of JSON at a time, whatever the size of the cluster."""

Item = TypeVar("Item")


class _ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


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


class Named(msgspec.Struct, gc=False):
    """Any object, of which nothing but its identity matters."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


async def pages(
    api: KubeApi,
    call: ApiRequest,
    item: type[Item],
    *,
    may_be_unknown: bool = False,
    **request: Unpack[RequestOptions],
) -> AsyncIterator[ListPage[Item]]:
    """The caller must release a page (``del``) before it takes the next, or two would be in
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
        page: ListPage[Item] | None = answer.body
        if page is None or not page.metadata.version:  # as of ``{}``
            server = api.config.server
            raise ClusterError(f"cannot {call}: {server} answered no list; is a proxy between?")
        query = {**query, "continue": page.metadata.next_page}
        del answer
        yield page
        del page
        if not query["continue"]:
            return
