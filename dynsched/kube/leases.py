"""The calls on the Lease `dynsched`, and what processes outside of the election read from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from dynsched.engine.lease import Lease, LeaseTimes, is_released, renewed_at
from dynsched.kube.failures import Call
from dynsched.kube.transport import Answer, KubeApi
from dynsched.util.durations import format_duration
from dynsched.util.errors import ClusterError, ForbiddenError

API_VERSION: Final = "coordination.k8s.io/v1"
LEASE_NAME: Final = "dynsched"
CALL_TIMEOUT: Final = 3.0

LOOK_AGAIN: Final = 2 * LeaseTimes().renew_every
"""Seconds within which a running holder renews its Lease."""


class Leases:
    """Read the Lease of one namespace, create it, or replace the state of it that was seen."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self) -> Mapping[str, Any] | None:
        """The Lease as it is now; None when there is none. Raises ClusterError."""
        call = self._call("get", "GET")
        answer = await self._asked(call, accept=[HTTPStatus.NOT_FOUND])
        return None if answer.status == HTTPStatus.NOT_FOUND else self._lease(call, answer)

    async def write(self, seen: Lease | None, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the Lease, or replace ``seen``; the Lease as stored.

        Raises ConflictError or NotFoundError when it is not as it was seen, else ClusterError.
        """
        body: dict[str, Any] = {"kind": "Lease", "apiVersion": API_VERSION, "spec": spec}
        if seen is not None and seen.resource_version:
            call = self._call("update", "PUT")
            # With its uid and version: the API server refuses it if either is not the same.
            body["metadata"] = seen.body["metadata"]
            return self._lease(call, await self._asked(call, body))
        call = self._call("create", "POST")
        body["metadata"] = {"name": LEASE_NAME, "namespace": self._namespace}
        answer = await self._asked(call, body, accept=[HTTPStatus.NOT_FOUND])
        if answer.status == HTTPStatus.NOT_FOUND:
            raise ClusterError(
                f"cannot {call}: {self._api.config.server} has no namespace {self._namespace}; "
                "name one that exists with --lease-namespace"
            )
        return self._lease(call, answer)

    async def _asked(
        self, call: Call, body: Mapping[str, Any] | None = None, accept: Collection[int] = ()
    ) -> Answer:
        # A lost write is not sent again: it may have arrived, and the next look shows it.
        resend = body is None
        try:
            return await self._api.call(
                call, body=body, accept=accept, resend=resend, timeout=CALL_TIMEOUT
            )
        except ForbiddenError as error:
            raise ForbiddenError(f"{error}; a single replica may run --no-leader-elect") from error

    def _lease(self, call: Call, answer: Answer) -> Mapping[str, Any]:
        body = answer.body
        metadata = body.get("metadata") if isinstance(body, Mapping) else None
        if not isinstance(metadata, Mapping) or not metadata.get("resourceVersion"):
            server = self._api.config.server
            raise ClusterError(f"cannot {call}: {server} answered with no valid Lease")
        found: Mapping[str, Any] = body
        return found

    def _call(self, verb: str, method: str) -> Call:
        path = f"/apis/{API_VERSION}/namespaces/{quote(self._namespace, safe='')}/leases"
        if verb == "create":
            return Call(verb, "leases", method, path, namespace=self._namespace)
        return Call(verb, "leases", method, f"{path}/{LEASE_NAME}", LEASE_NAME, self._namespace)


async def why_at_work(api: KubeApi, namespace: str, older_than: float) -> str | None:
    """What in the Lease shows that dynsched is running, in one line; None when nothing does:
    the Lease was not renewed for ``older_than`` seconds, was released that long ago, or does not
    exist.

    renewTime is by the holder's clock, which may be wrong. So a Lease that looks old but has a
    holder is read again LOOK_AGAIN seconds later. Raises ClusterError.
    """
    leases = Leases(api, namespace)
    body = await leases.read()
    if body is None:
        return None
    renewed = renewed_at(body)
    age = None if renewed is None else time.time() - renewed
    if age is not None and age < older_than:
        return f"the Lease was renewed {format_duration(max(0, round(age)))} ago"
    if is_released(body):
        return None
    await asyncio.sleep(LOOK_AGAIN)
    body = await leases.read()
    if body is not None and renewed_at(body) != renewed:
        return "the Lease is being renewed, although its renewTime looks old; check the clocks"
    return None
