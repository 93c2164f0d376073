"""Reads and writes the order in the cluster: one NodeOrder named `dynsched` (docs/order.md)."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from dynsched.features.order.ranks import Order
from dynsched.features.order.tiers import PreferenceTier
from dynsched.kube.client import LeaderWriter, apply
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import Named, pages
from dynsched.kube.transport import ApiResponse, KubeApi
from dynsched.rules import keys
from dynsched.util.errors import ClusterError, NotFoundError
from dynsched.util.formatting import format_time, parse_time

NODE_ORDERS: Final = "nodeorders"
_UNKNOWN_KIND: Final = (
    "the definition of NodeOrder is missing (404); install it with "
    "`kubectl apply -f manifests/base/order/crd.yaml`"
)
_VERSION: Final = ApiRequest("get", "version", "/version")


async def order_left(api: KubeApi, namespace: str) -> float | None:
    """Seconds until the NodeOrder expires, by the API server's clock; None if there is none, or if
    its CRD is missing. Raises ClusterError.
    """
    answer = await api.call(_call("get", namespace), accept=(HTTPStatus.NOT_FOUND,))
    if answer.body is None:
        return None
    until = parse_time(answer.body.get("spec", {}).get("until")) or 0.0
    return until - _ahead(answer) - time.monotonic()


async def homes_of_orders(api: KubeApi, namespace: str | None) -> list[str]:
    """The namespaces with a NodeOrder: ``namespace``, or with None any. Raises ClusterError."""
    path = f"/apis/{keys.ORDER_API}{in_namespace(namespace)}/{NODE_ORDERS}"
    call = ApiRequest("list", NODE_ORDERS, path)
    found = pages(api, call, Named, may_be_unknown=True)
    return [
        item.metadata.namespace
        async for page in found
        for item in page.items or ()
        if item.metadata.name == keys.ORDER_NAME
    ]


class NodeOrder:
    """Writes and deletes the NodeOrder.

    Its ``until`` is in the API server's time, because the clocks may differ. The server's responses
    contain its time.
    """

    def __init__(self, api: KubeApi, namespace: str, writer: LeaderWriter) -> None:
        self._api = api
        self._namespace = namespace
        self._writer = writer
        self._ahead: float | None = None
        """The API server's time minus `time.monotonic`; None before its first response."""

    async def write(self, order: Order, lasts: float) -> float:
        """Put ``order`` in force for ``lasts`` seconds. Returns when it expires, in Unix seconds by
        the API server's clock. Raises ClusterError.
        """
        if self._ahead is None:
            self._ahead = _ahead(await self._api.call(_VERSION))
        until = time.monotonic() + self._ahead + lasts
        body = {
            "apiVersion": keys.ORDER_API,
            "kind": "NodeOrder",
            "metadata": {"name": keys.ORDER_NAME, "namespace": self._namespace},
            "spec": spec_of(order, until),
        }
        call = _call("patch", self._namespace)
        try:
            answer = await self._writer.write(self._api, call, **apply(body))
        except NotFoundError as error:
            raise ClusterError(_UNKNOWN_KIND) from error
        self._ahead = _ahead(answer)
        return until

    async def withdraw(self) -> None:
        """Delete the NodeOrder if it exists, so that new pods get no order. Raises ClusterError."""
        call = _call("delete", self._namespace)
        await self._writer.write(self._api, call, accept=(HTTPStatus.NOT_FOUND,))


def _call(verb: str, namespace: str) -> ApiRequest:
    path = f"/apis/{keys.ORDER_API}{in_namespace(namespace)}/{NODE_ORDERS}/{keys.ORDER_NAME}"
    return ApiRequest(verb, NODE_ORDERS, path, keys.ORDER_NAME, namespace)


def _ahead(answer: ApiResponse) -> float:
    date = answer.headers.get("Date")  # RFC 9110: a server without a clock sends none
    now = time.time()
    if date:
        with suppress(ValueError):  # a proxy may write anything
            now = email.utils.parsedate_to_datetime(date).timestamp()
    return now - time.monotonic()


def spec_of(order: Order, until: float) -> Mapping[str, Any]:
    """The ``spec`` of a NodeOrder; ``until`` in Unix seconds by the API server's clock."""
    spec: dict[str, Any] = {
        "until": format_time(until),
        **{
            name: {
                pool: [{"levels": list(map(_level, tiers))} for tiers in lists]
                for pool, lists in pools.items()
            }
            for name, pools in (("lists", order.lists), ("further", order.overflow_lists))
        },
    }
    if order.pool_label is not None:
        spec["poolLabel"] = order.pool_label
    return spec


def _level(tier: PreferenceTier) -> Mapping[str, Any]:
    """``allBut`` is a separate field, so that an older CRD, which does not know it, refuses the
    object. If the CRD only dropped an operator, pods would prefer the hot nodes.
    """
    return {"weight": tier.weight, "allBut" if tier.all_but else "nodes": tier.nodes}
