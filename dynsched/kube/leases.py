"""Reads the Lease `dynsched` for processes outside the election."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from dynsched.kube.election import renewed_at
from dynsched.kube.failures import ApiRequest
from dynsched.kube.leader import API_VERSION, CALL_TIMEOUT, LEASE_NAME, Leases
from dynsched.kube.transport import KubeApi
from dynsched.util.durations import format_duration
from dynsched.util.errors import ForbiddenError

RECENT: Final = 60.0
"""Seconds after the last renewal in which a holder counts as running. It renews every two seconds,
and its clock may be wrong.
"""


class Holder(NamedTuple):
    """``age``: seconds since the renewal; the holder's clock set its time."""

    identity: str
    namespace: str
    age: float

    def __str__(self) -> str:
        lease = f"{self.namespace}/{LEASE_NAME}"
        return f"{self.identity} holds the Lease {lease}, renewed {_ago(self.age)}"


async def find_holders(api: KubeApi, namespace: str | None, own: str) -> list[Holder]:
    """The running holders of Leases `dynsched`; normally one. ``namespace`` None: look in all
    namespaces, or only in ``own`` if that is forbidden. Raises ClusterError.
    """
    found = []
    for lease in await _leases(api, namespace, own):
        identity, age = (lease.get("spec") or {}).get("holderIdentity"), _age(lease)
        if identity and age is not None and age < RECENT:
            found.append(Holder(str(identity), str(lease["metadata"].get("namespace", "")), age))
    return found


async def why_at_work(api: KubeApi, namespace: str, older_than: float) -> str | None:
    """Evidence that dynsched is running, or None if the Lease was not renewed or released within
    ``older_than`` seconds, or does not exist. Raises ClusterError.
    """
    body = await Leases(api, namespace).read()
    age = None if body is None else _age(body)
    return None if age is None or age >= older_than else f"the Lease was renewed {_ago(age)}"


async def _leases(api: KubeApi, namespace: str | None, own: str) -> list[Mapping[str, Any]]:
    found: Collection[Mapping[str, Any] | None]
    try:
        found = [await Leases(api, namespace).read()] if namespace else await _everywhere(api)
    except ForbiddenError:
        if namespace:
            raise
        found = [await Leases(api, own).read()]
    return [lease for lease in found if lease]


async def _everywhere(api: KubeApi) -> Collection[Mapping[str, Any]]:
    call = ApiRequest("list", "leases", f"/apis/{API_VERSION}/leases")
    query = {"fieldSelector": f"metadata.name={LEASE_NAME}"}
    answer = await api.call(call, query=query, timeout=CALL_TIMEOUT)
    return answer.body.get("items") or ()


def _age(lease: Mapping[str, Any]) -> float | None:
    renewed = renewed_at(lease)
    return None if renewed is None else time.time() - renewed


def _ago(age: float) -> str:
    return f"{format_duration(max(0, round(age)))} ago"
