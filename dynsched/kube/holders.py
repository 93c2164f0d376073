"""Whether an instance is running, for commands that write and take no part in the election."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from dynsched.engine.lease import LeaseTimes, is_released, renewed_at
from dynsched.kube.failures import Call
from dynsched.kube.leases import API_VERSION, CALL_TIMEOUT, LEASE_NAME, LOOK_AGAIN
from dynsched.kube.transport import KubeApi
from dynsched.util.durations import format_duration
from dynsched.util.errors import ForbiddenError


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a Lease and renews it. ``age``: seconds since it was renewed, by the time in it;
    None where that is no time of the last seconds.
    """

    identity: str
    namespace: str
    age: float | None

    def __str__(self) -> str:
        when = "just now" if self.age is None else f"{format_duration(round(self.age))} ago"
        return f"{self.identity} holds the Lease {self.namespace}/{LEASE_NAME}, renewed {when}"


async def find_holder(api: KubeApi, namespace: str | None, own: str) -> Holder | None:
    """Who holds a Lease `dynsched` and is running; None when there is no holder.

    It is looked for in ``namespace``; where that is None in all of them, or, where that is
    forbidden, in ``own``: who calls this from outside of the cluster seldom names the namespace.

    The time in a Lease is by its holder's clock. One that looks older than a Lease lasts is looked
    at again, LOOK_AGAIN later: a running holder has renewed it. Raises ClusterError.
    """
    return next(iter(await find_holders(api, namespace, own)), None)


async def find_holders(api: KubeApi, namespace: str | None, own: str) -> list[Holder]:
    """As ``find_holder``, for all of them: there is one where all is well. Those whose Lease looks
    old are looked for only where there is no other.
    """
    seen = await _held(api, namespace, own)
    found = [_holder(lease, age) for lease in seen.values() if (age := _age(lease)) is not None]
    if found or not seen:
        return found
    await asyncio.sleep(LOOK_AGAIN)
    return [
        _holder(lease, _age(lease))
        for uid, lease in (await _held(api, namespace, own)).items()
        if uid in seen and renewed_at(lease) != renewed_at(seen[uid])
    ]


async def _held(api: KubeApi, namespace: str | None, own: str) -> dict[str, Mapping[str, Any]]:
    """The Leases that have a holder, by uid."""
    if namespace is not None:
        found = await _one(api, namespace)
    else:
        try:
            found = await _everywhere(api)
        except ForbiddenError:
            found = await _one(api, own)
    return {
        str(lease["metadata"].get("uid", "")): lease
        for lease in found
        if not is_released(lease) and (lease.get("spec") or {}).get("holderIdentity")
    }


async def _everywhere(api: KubeApi) -> Iterable[Mapping[str, Any]]:
    call = Call("list", "leases", "GET", f"/apis/{API_VERSION}/leases")
    query = {"fieldSelector": f"metadata.name={LEASE_NAME}"}
    answer = await api.call(call, query=query, timeout=CALL_TIMEOUT)
    return answer.body.get("items") or ()


async def _one(api: KubeApi, namespace: str) -> Iterable[Mapping[str, Any]]:
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/leases/{LEASE_NAME}"
    call = Call("get", "leases", "GET", path, LEASE_NAME, namespace)
    answer = await api.call(call, accept=[HTTPStatus.NOT_FOUND], timeout=CALL_TIMEOUT)
    return () if answer.status == HTTPStatus.NOT_FOUND else (answer.body,)


def _age(lease: Mapping[str, Any]) -> float | None:
    """Seconds since it was renewed, by the time in it; None where it would have run out by now."""
    renewed = renewed_at(lease)
    age = None if renewed is None else time.time() - renewed
    return age if age is not None and 0 <= age < LeaseTimes().duration else None


def _holder(lease: Mapping[str, Any], age: float | None) -> Holder:
    identity = str(lease["spec"]["holderIdentity"])
    return Holder(identity, str(lease["metadata"].get("namespace", "")), age)
