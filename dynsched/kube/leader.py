"""Who writes: the holder of the Lease. An elector of our own; the `kubernetes` package's async
one fails on create and goes on leading after it was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from dynsched.core.errors import ClusterError, ConflictError, NodeGoneError
from dynsched.core.lease import Lease, LeaseTimes, given_up, held_by, read_lease, renewed_at
from dynsched.kube.events import Subject
from dynsched.kube.failures import Call
from dynsched.kube.transport import KubeApi, jittered

logger = logging.getLogger(__name__)

LEASE_NAME: Final = "dynsched"
CALL_TIMEOUT: Final = 3.0


def boot_time() -> float:
    """Seconds since boot, those of a suspended machine included: a monotonic clock that stops
    while the machine sleeps would wake up as a leader that it no longer is.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SoleWriter:
    """For a process that is the only one by the user's word. Satisfies ``loop.Leadership``."""

    may_write = True
    leader: str | None = None
    error: str | None = None


class Elector:
    """Takes part in the election while `run` runs. Satisfies ``loop.Leadership``.

    ``api`` is an instance of its own, so that a renewal never waits behind patches. ``identity``
    is unique to this process. ``clock`` gives seconds and never stops or steps; ``wall`` Unix
    seconds, for people who read the Lease.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        identity: str,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._times = times or LeaseTimes()
        self._clock = clock
        self._wall = wall
        self._lease: Lease | None = None
        self._renewed_at: float | None = None
        self._error: str | None = None

    @property
    def may_write(self) -> bool:
        """Whether a write begun now ends before anybody else can hold the Lease."""
        return (
            self._renewed_at is not None
            and self._clock() - self._renewed_at < self._times.write_for
        )

    @property
    def leader(self) -> str | None:
        """The holder's identity as last seen; None when nobody holds it or nothing is known."""
        if self._lease is None or self._lease.is_free(self._clock()):
            return None
        return self._lease.holder

    @property
    def lease(self) -> Subject | None:
        """The Lease, as the subject of Events about dynsched itself; None before it was seen."""
        if self._lease is None:
            return None
        uid = str(self._lease.body["metadata"].get("uid", ""))
        return Subject("Lease", LEASE_NAME, uid, "coordination.k8s.io/v1", self._namespace)

    @property
    def error(self) -> str | None:
        """Why the last attempt failed, in one line; None when it did not."""
        return self._error

    @property
    def identity(self) -> str:
        """Who we are in the Lease."""
        return self._identity

    async def run(self, stop: asyncio.Event) -> None:
        """Take or renew the Lease, again and again; let go of it at the end.

        The caller sees to it that no write is under way any more when it sets ``stop``.
        """
        try:
            while not stop.is_set():
                await self._attempt()
                try:
                    async with asyncio.timeout(jittered(self._times.renew_every)):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            await self._let_go()

    async def _attempt(self) -> None:
        led = self.may_write
        try:
            await self._take_or_renew()
        except (ConflictError, NodeGoneError):
            # Somebody was faster, or deleted it; the next look shows.
            self._lease, self._renewed_at = None, None
        except ClusterError as error:
            if str(error) != self._error:
                logger.warning("leader election: %s", error)
            self._error = str(error)
        else:
            self._error = None
        if led is not self.may_write:
            logger.info(
                "%s the Lease %s/%s as %s",
                "hold" if self.may_write else "lost",
                self._namespace,
                LEASE_NAME,
                self._identity,
            )

    async def _take_or_renew(self) -> None:
        if not self._is_ours(self._lease):
            self._renewed_at = None
            self._lease = await self._read()
            if self._lease is not None and not (
                self._is_ours(self._lease) or self._lease.is_free(self._clock())
            ):
                return
        sent_at = self._clock()
        spec = held_by(self._identity, self._lease, self._times, self._wall())
        self._lease = await self._write(spec)
        self._renewed_at = sent_at

    def _is_ours(self, lease: Lease | None) -> bool:
        return lease is not None and lease.holder == self._identity

    async def _let_go(self) -> None:
        self._renewed_at = None
        if not self._is_ours(self._lease) or self._lease is None:
            return
        try:
            await self._write(given_up(self._lease, self._wall()))
        except ClusterError as error:
            logger.info("the Lease is left to run out: %s", error)

    async def _read(self) -> Lease | None:
        call = self._call("get", "GET")
        answer = await self._api.call(call, accept=[HTTPStatus.NOT_FOUND], timeout=CALL_TIMEOUT)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return read_lease(answer.body, self._lease, self._clock())

    async def _write(self, spec: Mapping[str, Any]) -> Lease:
        """Create the Lease, or replace the state of it that was seen. ConflictError otherwise."""
        if self._lease is None:
            call = self._call("create", "POST")
            metadata: Mapping[str, Any] = {"name": LEASE_NAME, "namespace": self._namespace}
        else:
            call = self._call("update", "PUT")
            metadata = self._lease.body["metadata"]
        answer = await self._api.call(
            call,
            body={
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            },
            resend=False,  # whether the first one arrived is not known; the next look shows it
            timeout=CALL_TIMEOUT,
        )
        return read_lease(answer.body, None, self._clock())

    def _call(self, verb: str, method: str) -> Call:
        return _call(self._namespace, verb, method)


async def lease_age(api: KubeApi, namespace: str, wall: float) -> float | None:
    """Seconds since the Lease was last renewed, by the holder's clock against ours; None when
    there is no Lease. One that was let go of counts from then; one without a time is infinitely
    old.
    """
    answer = await api.call(
        _call(namespace, "get", "GET"), accept=[HTTPStatus.NOT_FOUND], timeout=CALL_TIMEOUT
    )
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    renewed = renewed_at(answer.body)
    return math.inf if renewed is None else wall - renewed


def _call(namespace: str, verb: str, method: str) -> Call:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
    if verb == "create":
        return Call(verb, "leases", method, path)
    return Call(verb, "leases", method, f"{path}/{LEASE_NAME}", LEASE_NAME)
