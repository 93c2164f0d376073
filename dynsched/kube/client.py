"""Reads and writes nodes, their metrics, Events and Bindings at the API server. Other objects have
their own modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, Unpack
from urllib.parse import quote

import msgspec

from dynsched.core.marks import NodePatch
from dynsched.core.nodes import Node
from dynsched.core.samples import NodeUsage
from dynsched.kube.credentials import CredentialProvider
from dynsched.kube.decode_node import decode_node, quantity
from dynsched.kube.election import LeaseTimes
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import ListPage, Named, pages
from dynsched.kube.transport import ApiResponse, KubeApi, RequestOptions
from dynsched.rules.keys import FIELD_MANAGER
from dynsched.util.errors import ClusterError
from dynsched.util.formatting import as_mapping, parse_time

EVENT_NAMESPACE: Final = "default"
"""Events on cluster-scoped objects must be here; `kubectl describe node` finds them."""

_NODES: Final = "/api/v1/nodes"
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_FORCED: Final = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Ignore"}
"""JSON is parsed as YAML, which is slow. Without Ignore it is parsed twice, for warnings."""
_WRITE: Final = {"fieldManager": FIELD_MANAGER}
_LIST_NODES: Final = ApiRequest("list", "nodes", _NODES)
_METRICS: Final = "metrics.k8s.io"
_LIST_METRICS: Final = [
    ApiRequest("list", f"nodes.{_METRICS}", f"/apis/{_METRICS}/{version}/nodes")
    for version in ("v1", "v1beta1")  # v1 from Kubernetes 1.37 on
]
_BIND_TIMEOUT: Final = 5.0
"""Seconds. The scheduler retries a pod that waits longer than its ``httpTimeout``."""
_AWAY: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class LeaderWriter:
    """Sends the writes that only the leader may make: nodes and the order. Each write is sent only
    if ``may_write()``, and takes at most ``limit`` seconds, as the election assumes.
    """

    def __init__(
        self,
        may_write: Callable[[], bool] = lambda: True,
        limit: float = LeaseTimes().write_timeout,
    ) -> None:
        self.may_write = may_write
        self._limit = limit
        self._under_way: set[asyncio.Task[ApiResponse]] = set()

    async def write(
        self,
        api: KubeApi,
        call: ApiRequest,
        *,
        accept: Collection[int] = (),
        shape: Any = Any,
        **request: Unpack[RequestOptions],
    ) -> ApiResponse:
        """Like `KubeApi.call`. If the caller is cancelled, the write continues: it may have been
        sent already, so the Lease must not be released before it ends.
        """
        request["may_write"] = self.may_write

        async def limited() -> ApiResponse:
            try:
                async with asyncio.timeout(self._limit):
                    return await api.call(call, accept=accept, shape=shape, **request)
            except TimeoutError:
                raise ClusterError(f"cannot {call}: no answer within {self._limit:g} s") from None

        task = asyncio.create_task(limited())
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait([task])
        return task.result()

    async def wait_for_writes(self) -> None:
        """Wait until no write is in progress: at most ``limit`` seconds, if no new one begins."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _ended(self, task: asyncio.Task[ApiResponse]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # else asyncio logs it as never retrieved


class KubeClient(KubeApi):
    """Every method raises ClusterError (or ForbiddenError, SetupError, ...), after bounded retries.

    Nodes are patched through ``writer``. Events are not: a late Event reports what happened while
    we were the leader.
    """

    def __init__(self, credentials: CredentialProvider, writer: LeaderWriter | None = None) -> None:
        super().__init__(credentials)
        self._writer = writer or LeaderWriter()

    async def read(self, name: str) -> Node | None:
        """The node as it is now; None if it does not exist."""
        call = ApiRequest("get", "nodes", _object(_NODES, name), name)
        answer = await self.call(call, accept=(HTTPStatus.NOT_FOUND,), shape=msgspec.Raw)
        return None if answer.status == HTTPStatus.NOT_FOUND else _node(call, answer)

    async def patch(self, patch: NodePatch) -> Node:
        """Send the JSON merge patch; returns the node as stored. With the observed resourceVersion
        in the body it is safe to resend: if it had arrived, the second one is a conflict.
        NotPermittedError if it was not sent.
        """
        call = ApiRequest("patch", "nodes", _object(_NODES, patch.node), patch.node)
        request = merge(patch.body)
        request["resend"] = bool(patch.version)
        return _node(call, await self._writer.write(self, call, **request, shape=msgspec.Raw))

    async def list_nodes(self) -> dict[str, Node]:
        """All nodes by name. ConflictError if the list's snapshot expired between two pages."""
        nodes: dict[str, Node] = {}
        async for page in pages(self, _LIST_NODES, msgspec.Raw):
            found = map(decode_node, page.items or ())
            nodes.update((node.name, node) for node in found if node is not None)
            del page  # else two pages would be in memory while the next one arrives
        return nodes

    async def create_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Create an Event. It is sent only once, so that there is no duplicate."""
        call = ApiRequest("create", "events", _events(namespace))
        await self.call(call, query=_WRITE, body=body, resend=False)

    async def patch_event(self, namespace: str, name: str, body: Mapping[str, Any]) -> bool:
        """Merge ``body`` into the Event; False if it is gone (it is kept for an hour)."""
        call = ApiRequest("patch", "events", _object(_events(namespace), name), name)
        answer = await self.call(call, **merge(body), accept=(HTTPStatus.NOT_FOUND,))
        return answer.status != HTTPStatus.NOT_FOUND


class _NodeMetrics(Named, gc=False):
    timestamp: Any = None
    usage: Any = None


async def list_node_metrics(api: KubeApi) -> list[NodeUsage]:
    """The usage of every node, as last measured by metrics-server. ``api`` is a separate instance,
    because a hanging metrics-server must not delay other calls. Raises ClusterError
    (ForbiddenError, ...).
    """
    for request in _LIST_METRICS:
        answer = await api.call(
            request,
            accept=(HTTPStatus.NOT_FOUND, *_AWAY),
            resend=False,  # the next tick lists again
            shape=ListPage[_NodeMetrics],
        )
        if answer.status != HTTPStatus.NOT_FOUND:
            break
    where = f"cannot {request}: {api.config.server} answered {answer.status}"
    if answer.status == HTTPStatus.NOT_FOUND:
        raise ClusterError(
            f"{where}: the API {_METRICS} is not there; install metrics-server, or use a rule of "
            "source prometheus"
        )
    if answer.status in _AWAY:
        raise ClusterError(
            f"{where}: metrics-server does not answer; is it running? look for {_METRICS} in "
            "`kubectl get apiservices`"
        )
    named = (item for item in answer.body.items or () if item.metadata.name)
    # In a thread: for 5,000 nodes this takes 40 ms, which would delay HTTP responses.
    return await asyncio.to_thread(lambda: list(map(_usage, named)))


def _usage(item: _NodeMetrics) -> NodeUsage:
    given = as_mapping(item.usage)
    numbers = ((name, quantity(given.get(name))) for name in ("cpu", "memory"))
    amounts = {name: number for name, number in numbers if number is not None}
    return NodeUsage(item.metadata.name, amounts, parse_time(item.timestamp))


async def bind_pod(api: KubeApi, *, namespace: str, pod: str, uid: str, node: str) -> None:
    """Create the Binding; needs ``create`` on ``pods/binding``. It is sent only once: if it arrived
    and the response was lost, the scheduler sees the pod on its node.

    ConflictError if the pod already has a node or another uid; NotFoundError.
    """
    path = _object(f"/api/v1{in_namespace(namespace)}/pods", pod)
    call = ApiRequest("create", "pods/binding", f"{path}/binding", f"{namespace}/{pod}")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {}),
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.call(call, body=body, resend=False, timeout=_BIND_TIMEOUT)


def merge(body: Mapping[str, Any]) -> RequestOptions:
    """Options of a `KubeApi.call` that sends a JSON merge patch."""
    return {"query": _WRITE, "body": body, "headers": _MERGE_PATCH}


def apply(body: Mapping[str, Any]) -> RequestOptions:
    """Options of a `KubeApi.call` for server-side apply. It creates the object if it is missing,
    with a permission that can be limited to the object's name.
    """
    return {"query": _FORCED, "body": body, "headers": _APPLY}


def _events(namespace: str) -> str:
    return f"/api/v1{in_namespace(namespace)}/events"


def _object(collection: str, name: str) -> str:
    return f"{collection}/{quote(name, safe='')}"


def _node(call: ApiRequest, answer: ApiResponse) -> Node:
    node = decode_node(answer.body)
    if node is None:
        raise ClusterError(f"cannot {call}: the answer is not a Node")
    return node
