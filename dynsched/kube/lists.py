"""Lists objects in pages of one snapshot, with one page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, Generic, TypeVar, Unpack

import msgspec

from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi, RequestOptions
from dynsched.util.errors import ClusterError, ConflictError

PAGE: Final = 500
"""Objects per page: for nodes, 4 to 10 MB of JSON at a time, whatever the cluster's size."""

Item = TypeVar("Item")


class _ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[Item], gc=False):
    """A page of a list. Fields that the item type does not declare take no memory."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[Item] | None = None


class ObjectMeta(msgspec.Struct, gc=False):
    """The part of metadata that every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")


class Named(msgspec.Struct, gc=False):
    """Any object, of which only the metadata is needed."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


async def pages(
    api: KubeApi,
    call: ApiRequest,
    item: type[Item],
    *,
    may_be_unknown: bool = False,
    **request: Unpack[RequestOptions],
) -> AsyncIterator[ListPage[Item]]:
    """Yields the pages of a list. The caller must release a page (``del``) before it takes the
    next one, else two would be in memory. ``may_be_unknown``: a resource that the server does not
    know has no objects. ConflictError if the list's snapshot expired between two pages.
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
        if page is None or not page.metadata.version:  # as in ``{}``
            server = api.config.server
            raise ClusterError(f"cannot {call}: {server} answered no list; is there a proxy?")
        query = {**query, "continue": page.metadata.next_page}
        del answer
        yield page
        del page
        if not query["continue"]:
            return
