"""What processes outside of the election read from the Lease `dynsched`. The time in it is by its
holder's clock, which may be wrong. So one that looks old is read again LOOK_AGAIN seconds later: a
running holder has renewed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from dynsched.kube.election import LeaseTimes, is_released, renewed_at
from dynsched.kube.failures import ApiRequest
from dynsched.kube.leader import API_VERSION, CALL_TIMEOUT, LEASE_NAME, Leases
from dynsched.kube.transport import KubeApi
from dynsched.util.durations import format_duration
from dynsched.util.errors import ForbiddenError

LOOK_AGAIN: Final = 2 * LeaseTimes().renew_every
"""Seconds within which a running holder renews its Lease."""


class Holder(NamedTuple):
    """``age``: seconds since it was renewed; None where that is no time of the last seconds."""

    identity: str
    namespace: str
    age: float | None

    def __str__(self) -> str:
        when = "just now" if self.age is None else f"{format_duration(round(self.age))} ago"
        return f"{self.identity} holds the Lease {self.namespace}/{LEASE_NAME}, renewed {when}"


async def find_holders(api: KubeApi, namespace: str | None, own: str) -> list[Holder]:
    """Who holds a Lease `dynsched` and is running: one where all is well. A Lease that looks old is
    read again only where there is no other. ``namespace`` None: all of them, or, where that is
    forbidden, ``own``. Raises ClusterError.
    """
    seen = await _held(api, namespace, own)
    found = [_holder(each) for each in seen.values()]
    if recent := [each for each in found if each.age is not None]:
        return recent
    if not seen:
        return []
    await asyncio.sleep(LOOK_AGAIN)
    return [
        _holder(lease)
        for uid, lease in (await _held(api, namespace, own)).items()
        if uid in seen and renewed_at(lease) != renewed_at(seen[uid])
    ]


async def why_at_work(api: KubeApi, namespace: str, older_than: float) -> str | None:
    """What shows that dynsched is running; None when the Lease was not renewed for ``older_than``
    seconds, was released that long ago, or does not exist. Raises ClusterError.
    """
    body = await Leases(api, namespace).read()
    age = None if body is None else _age(body)
    if age is not None and age < older_than:
        return f"the Lease was renewed {format_duration(max(0, round(age)))} ago"
    if await find_holders(api, namespace, namespace):
        return "the Lease is being renewed, although its renewTime looks old; check the clocks"
    return None


async def _held(api: KubeApi, namespace: str | None, own: str) -> dict[str, Mapping[str, Any]]:
    found: Collection[Mapping[str, Any] | None]
    try:
        found = [await Leases(api, namespace).read()] if namespace else await _everywhere(api)
    except ForbiddenError:
        if namespace:
            raise
        found = [await Leases(api, own).read()]
    return {
        str(lease["metadata"].get("uid", "")): lease
        for lease in found
        if lease and not is_released(lease) and (lease.get("spec") or {}).get("holderIdentity")
    }


async def _everywhere(api: KubeApi) -> Collection[Mapping[str, Any]]:
    call = ApiRequest("list", "leases", f"/apis/{API_VERSION}/leases")
    query = {"fieldSelector": f"metadata.name={LEASE_NAME}"}
    answer = await api.call(call, query=query, timeout=CALL_TIMEOUT)
    return answer.body.get("items") or ()


def _age(lease: Mapping[str, Any]) -> float | None:
    renewed = renewed_at(lease)
    return None if renewed is None else time.time() - renewed


def _holder(lease: Mapping[str, Any]) -> Holder:
    age = _age(lease)
    is_recent = age is not None and 0 <= age < LeaseTimes().duration
    identity, namespace = lease["spec"]["holderIdentity"], lease["metadata"].get("namespace", "")
    return Holder(str(identity), str(namespace), age if is_recent else None)
