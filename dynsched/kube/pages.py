"""Lists in pages: all objects as of one moment, one page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from dynsched.kube.failures import Call
from dynsched.kube.transport import LIST_TIMEOUT, KubeApi
from dynsched.util.errors import ClusterError, ConflictError

PAGE: Final = 500
"""Objects a page: of nodes, 4 to 10 MB of JSON at a time, whatever the size of the cluster."""


class ListMeta(msgspec.Struct, gc=False):
    """The metadata of a page."""

    version: str = msgspec.field(name="resourceVersion", default="")
    after: str = msgspec.field(name="continue", default="")
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class ObjectName(msgspec.Struct, gc=False):
    """The metadata of an object of which no more than its name is needed."""

    name: str = ""
    namespace: str = ""


async def pages(
    api: KubeApi,
    call: Call,
    shape: Any,
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = LIST_TIMEOUT,  # noqa: ASYNC109 - of one HTTP exchange
    may_be_unknown: bool = False,
) -> AsyncIterator[Any]:
    """Each page, decoded to the msgspec type ``shape``, whose ``metadata`` is a ListMeta. The
    caller must let go of a page (``del``) before it takes the next, or two would be in memory.

    ``may_be_unknown``: a server that does not know the resource has no such objects. Raises
    ConflictError when the list's snapshot expired between two pages (minutes); ClusterError.
    """
    expected = (HTTPStatus.GONE, *([HTTPStatus.NOT_FOUND] if may_be_unknown else ()))
    after = ""
    while True:
        answer = await api.call(
            call,
            query={**(query or {}), "limit": str(PAGE)} | ({"continue": after} if after else {}),
            headers=headers,
            accept=expected,
            shape=shape,
            timeout=timeout,
        )
        if answer.status == HTTPStatus.GONE:
            raise ConflictError(f"cannot {call}: the list's snapshot expired between two pages")
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        page = require_list(call, api.config.server, answer.body)
        after = page.metadata.after
        del answer
        yield page
        del page
        if not after:
            return


def require_list(call: Call, server: str, page: Any) -> Any:
    """The page. ClusterError for an answer without a version, such as ``{}``: it is no list."""
    if page is None or not page.metadata.version:
        raise ClusterError(f"cannot {call}: {server} answered no list; is a proxy between?")
    return page
