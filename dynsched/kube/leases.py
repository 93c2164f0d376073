"""The calls on the Lease `dynsched`, and what processes outside of the election read from it. The
time in a Lease is by its holder's clock, which may be wrong. So one that looks old is read
again LOOK_AGAIN seconds later: a running holder has renewed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from dynsched.kube.election import Lease, LeaseTimes, is_released, renewed_at
from dynsched.kube.failures import Call, in_namespace
from dynsched.kube.transport import Answer, KubeApi
from dynsched.util.durations import format_duration
from dynsched.util.errors import ClusterError, ForbiddenError

API_VERSION: Final = "coordination.k8s.io/v1"
LEASE_NAME: Final = "dynsched"
CALL_TIMEOUT: Final = 3.0
LOOK_AGAIN: Final = 2 * LeaseTimes().renew_every
"""Seconds within which a running holder renews its Lease."""


class Leases:
    """The Lease `dynsched` of one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self) -> Mapping[str, Any] | None:
        """None when there is none. Raises ClusterError."""
        call = self._call("get")
        answer = await self._api.call(call, accept=[HTTPStatus.NOT_FOUND], timeout=CALL_TIMEOUT)
        return None if answer.status == HTTPStatus.NOT_FOUND else self._lease(call, answer)

    async def write(self, seen: Lease | None, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the Lease, or replace ``seen``; the Lease as stored. ConflictError or
        NotFoundError when it is not as it was seen, else ClusterError.
        """
        accept: Collection[int] = ()
        if seen is not None and seen.resource_version:
            call = self._call("update")
            # With its uid and version: the API server refuses it if either is not the same.
            metadata = seen.body["metadata"]
        else:
            call, accept = self._call("create", ""), [HTTPStatus.NOT_FOUND]
            metadata = {"name": LEASE_NAME, "namespace": self._namespace}
        body = {"kind": "Lease", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec}
        # A lost write is not sent again: it may have arrived, and the next look shows it.
        answer = await self._api.call(
            call, body=body, accept=accept, resend=False, timeout=CALL_TIMEOUT
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            raise ClusterError(
                f"cannot {call}: {self._api.config.server} has no namespace {self._namespace}; "
                "name one that exists with --lease-namespace"
            )
        return self._lease(call, answer)

    def _lease(self, call: Call, answer: Answer) -> Mapping[str, Any]:
        body = answer.body
        metadata = body.get("metadata") if isinstance(body, Mapping) else None
        if not isinstance(metadata, Mapping) or not metadata.get("resourceVersion"):
            server = self._api.config.server
            raise ClusterError(f"cannot {call}: {server} answered with no valid Lease")
        found: Mapping[str, Any] = body
        return found

    def _call(self, verb: str, name: str = LEASE_NAME) -> Call:
        path = f"/apis/{API_VERSION}{in_namespace(self._namespace)}/leases"
        return Call(verb, "leases", f"{path}/{name}" if name else path, name, self._namespace)


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
    leases = Leases(api, namespace)
    body = await leases.read()
    if body is None:
        return None
    renewed, age = renewed_at(body), _age(body)
    if age is not None and age < older_than:
        return f"the Lease was renewed {format_duration(max(0, round(age)))} ago"
    if is_released(body):
        return None
    await asyncio.sleep(LOOK_AGAIN)
    body = await leases.read()
    if body is not None and renewed_at(body) != renewed:
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
    call = Call("list", "leases", f"/apis/{API_VERSION}/leases")
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
