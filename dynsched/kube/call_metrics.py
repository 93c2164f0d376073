"""The list of NodeMetrics (metrics.k8s.io), as metrics-server answers it through the API server.

Give it a KubeApi of its own: a metrics-server that hangs must not hold up other calls, as the
gate of a shared one would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from dynsched.engine.usage import NodeUsage
from dynsched.kube.failures import Call
from dynsched.kube.pages import PAGE, Named, Page
from dynsched.kube.projection import quantity
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError, ConflictError
from dynsched.util.formatting import parse_time

_API: Final = "metrics.k8s.io/v1beta1"
_LIST: Final = Call("list", "nodes.metrics.k8s.io", "GET", f"/apis/{_API}/nodes")
_RESOURCES: Final = ("cpu", "memory")
_LOOK: Final = "look at `kubectl get apiservice v1beta1.metrics.k8s.io`"
_AWAY: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class _NodeMetrics(Named, gc=False):
    timestamp: Any = None
    usage: Any = None


async def list_node_metrics(api: KubeApi) -> list[NodeUsage]:
    """What every node uses, as metrics-server last measured it.

    Raises ClusterError (ForbiddenError, SetupError, ...) with one line for a person.
    """
    found: list[NodeUsage] = []
    after = ""
    while True:
        page = await _page(api, after)
        # In a thread: at 5,000 nodes this is 40 ms, for which HTTP should not wait.
        found += await asyncio.to_thread(_usages, page)
        after = page.metadata.after
        if not after:
            return found


async def _page(api: KubeApi, after: str) -> Page[_NodeMetrics]:
    answer = await api.call(
        _LIST,
        query={"limit": str(PAGE)} | ({"continue": after} if after else {}),
        accept=(HTTPStatus.NOT_FOUND, HTTPStatus.GONE, *_AWAY),
        resend=False,  # the next tick asks again
        shape=Page[_NodeMetrics],
    )
    where = f"cannot {_LIST}: {api.config.server} answered {answer.status}"
    if answer.status == HTTPStatus.NOT_FOUND:
        raise ClusterError(
            f"{where}: the API {_API} is not there; install metrics-server, or use a rule of "
            "source prometheus"
        )
    if answer.status in _AWAY:
        raise ClusterError(f"{where}: metrics-server does not answer; is it running? {_LOOK}")
    if answer.status == HTTPStatus.GONE:
        raise ConflictError(f"{where}: the list's snapshot expired between two pages")
    page: Page[_NodeMetrics] = answer.body
    return page


def _usages(page: Page[_NodeMetrics]) -> list[NodeUsage]:
    return [_usage(item) for item in page.items or () if item.metadata.name]


def _usage(item: _NodeMetrics) -> NodeUsage:
    given = item.usage if isinstance(item.usage, Mapping) else {}
    numbers = ((name, quantity(given.get(name))) for name in _RESOURCES)
    amounts = {name: number for name, number in numbers if number is not None}
    return NodeUsage(item.metadata.name, amounts, parse_time(item.timestamp))
