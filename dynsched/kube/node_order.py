"""The order in the cluster: the one object `dynsched` of the kind NodeOrder (docs/order.md)."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from dynsched.engine.model import Order
from dynsched.kube.failures import Call, still_leading
from dynsched.kube.transport import Answer, KubeApi
from dynsched.rules import keys

_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
"""Server-side apply: it creates the object where it is missing, by a right that names the object.
JSON is YAML."""
_FORCED: Final = {"fieldManager": "dynsched", "force": "true"}
_VERSION: Final = Call("get", "version", "GET", "/version")


class NodeOrder:
    """Writes and deletes the object, while ``may_write``.

    ``until`` in it is in the API server's time, which its answers carry: the clocks may differ.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        may_write: Callable[[], bool],
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._may_write = may_write
        self._ahead: float | None = None
        """Of the server's time before `time.monotonic`."""

    async def write(self, order: Order, lasts: float) -> float:
        """Put ``order`` in force for ``lasts`` seconds: until when. Raises ClusterError."""
        if self._ahead is None:
            self._ahead = _ahead(await self._api.call(_VERSION))
        until = time.monotonic() + self._ahead + lasts
        body = {
            "apiVersion": keys.ORDER_API,
            "kind": "NodeOrder",
            "metadata": {"name": keys.ORDER_NAME, "namespace": self._namespace},
            "spec": _spec(order, until),
        }
        call = self._call("patch", "PATCH")
        check = still_leading(call, self._may_write)
        self._ahead = _ahead(
            await self._api.call(call, query=_FORCED, body=body, headers=_APPLY, check=check)
        )
        return until

    async def withdraw(self) -> None:
        """Delete it, if it is there: pods are created as always. Raises ClusterError."""
        call = self._call("delete", "DELETE")
        check = still_leading(call, self._may_write)
        await self._api.call(call, accept=(HTTPStatus.NOT_FOUND,), check=check)

    def _call(self, verb: str, method: str) -> Call:
        namespace = quote(self._namespace, safe="")
        path = f"/apis/{keys.ORDER_API}/namespaces/{namespace}/nodeorders/{keys.ORDER_NAME}"
        return Call(verb, "nodeorders", method, path, keys.ORDER_NAME, self._namespace)


def _ahead(answer: Answer) -> float:
    said = answer.headers.get("Date")  # by RFC 9110 a server without a clock sends none
    now = email.utils.parsedate_to_datetime(said).timestamp() if said else time.time()
    return now - time.monotonic()


def _spec(order: Order, until: float) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "until": datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lists": {
            pool: [{"levels": [level._asdict() for level in levels]} for levels in lists]
            for pool, lists in order.lists.items()
        },
    }
    if order.pool_label is not None:
        spec["poolLabel"] = order.pool_label
    return spec
