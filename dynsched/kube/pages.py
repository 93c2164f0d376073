"""Lists in pages: all objects as of one moment, one page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

import msgspec

from dynsched.kube.failures import Call
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi
from dynsched.util.errors import ClusterError, ConflictError

PAGE: Final = 500
"""Objects a page: of nodes, 4 to 10 MB of JSON at a time, whatever the size of the cluster."""


METADATA_ONLY: Final = {
    # A server that does not know this form (there is none, but for fakes) sends the whole objects.
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json",
}

Item = TypeVar("Item")


class ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    after: str = msgspec.field(name="continue", default="")
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class Page(msgspec.Struct, Generic[Item], gc=False):
    """A page of a list. What a type of its items does not name costs no memory."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[Item] | None = None


class ObjectMeta(msgspec.Struct, gc=False):
    """What identifies an object, and a state of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")


class Named(msgspec.Struct, gc=False):
    """An object, of which no more than this is read."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


async def pages(
    api: KubeApi,
    call: Call,
    item: type[Item],
    *,
    query: Mapping[str, str] | None = None,
    version: str = "",
    headers: Mapping[str, str] | None = None,
    timeout: float = LIST_TIMEOUT,  # noqa: ASYNC109 - of one HTTP exchange
    may_be_unknown: bool = False,
) -> AsyncIterator[Page[Item]]:
    """Each page, its items decoded to the type ``item``. The caller must let go of a page
    (``del``) before it takes the next, or two would be in memory.

    ``version``: the objects as they were at that resourceVersion; without it, as they are now.
    ``may_be_unknown``: a server that does not know the resource has no such objects. Raises
    ConflictError when the list's snapshot expired between two pages (minutes); ClusterError.
    """
    expected = (HTTPStatus.GONE, *([HTTPStatus.NOT_FOUND] if may_be_unknown else ()))
    where = {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version else {}
    while True:
        answer = await api.call(
            call,
            query={**(query or {}), "limit": str(PAGE), **where},
            headers=headers,
            accept=expected,
            shape=Page[item],  # type: ignore[valid-type]
            timeout=timeout,
        )
        if answer.status == HTTPStatus.GONE:
            raise ConflictError(f"cannot {call}: the list's snapshot expired between two pages")
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        page = require_list(call, api.config.server, answer.body)
        where = {"continue": page.metadata.after}
        del answer
        yield page
        del page
        if not where["continue"]:
            return


def require_list(call: Call, server: str, page: Any) -> Any:
    """The page. ClusterError for an answer without a version, such as ``{}``: it is no list."""
    if page is None or not page.metadata.version:
        raise ClusterError(f"cannot {call}: {server} answered no list; is a proxy between?")
    return page
