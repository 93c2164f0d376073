"""Leader election: the holder of the Lease writes. The `kubernetes` package's async elector is not
used, because it fails on create and continues to lead after it was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from dynsched.kube.client import LeaderWriter
from dynsched.kube.election import (
    Lease,
    LeaseTimes,
    deleted,
    held_by,
    read_lease,
    released_spec,
)
from dynsched.kube.events import Subject
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.transport import ApiResponse, KubeApi
from dynsched.util.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched.util.formatting import as_mapping
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import jittered, pause

logger = logging.getLogger(__name__)

API_VERSION: Final = "coordination.k8s.io/v1"
LEASE_NAME: Final = "dynsched"
CALL_TIMEOUT: Final = 3.0

# A machine must not wake from sleep as a leader whose Lease has expired. Linux's monotonic clock
# stops during sleep, so CLOCK_BOOTTIME is used; that of macOS continues. Windows has neither name,
# and its monotonic clock continues too.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def boot_time() -> float:
    """Seconds since boot, including the time in which the machine was suspended."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Leases:
    """The Lease `dynsched` of one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self) -> Mapping[str, Any] | None:
        """The Lease; None if it does not exist. ClusterError."""
        call = self._call("get")
        answer = await self._api.call(call, accept=[HTTPStatus.NOT_FOUND], timeout=CALL_TIMEOUT)
        return None if answer.status == HTTPStatus.NOT_FOUND else self._lease(call, answer)

    async def write(self, seen: Lease | None, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the Lease, or replace ``seen``; returns the Lease as stored. ConflictError or
        NotFoundError if it has changed since it was ``seen``, else ClusterError.
        """
        accept: Collection[int] = ()
        if seen is not None and seen.resource_version:
            call = self._call("update")
            # Includes uid and version: the API server refuses the update if either differs.
            metadata = seen.body["metadata"]
        else:
            call, accept = self._call("create", ""), [HTTPStatus.NOT_FOUND]
            metadata = {"name": LEASE_NAME, "namespace": self._namespace}
        body = {"kind": "Lease", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec}
        # A lost write is not sent again: it may have arrived, and the next read shows it.
        answer = await self._api.call(
            call, body=body, accept=accept, resend=False, timeout=CALL_TIMEOUT
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            raise ClusterError(
                f"cannot {call}: {self._api.config.server} has no namespace {self._namespace}; "
                "name one that exists with --lease-namespace"
            )
        return self._lease(call, answer)

    def _lease(self, call: ApiRequest, answer: ApiResponse) -> Mapping[str, Any]:
        lease = as_mapping(answer.body)
        if not as_mapping(lease.get("metadata")).get("resourceVersion"):
            server = self._api.config.server
            raise ClusterError(f"cannot {call}: {server} answered with no valid Lease")
        return lease

    def _call(self, verb: str, name: str = LEASE_NAME) -> ApiRequest:
        path = f"/apis/{API_VERSION}{in_namespace(self._namespace)}/leases"
        return ApiRequest(verb, "leases", f"{path}/{name}" if name else path, name, self._namespace)


@dataclass(eq=False)
class NoElection:
    """For a process without election: the user says it is the only one, or it writes nothing."""

    may_write: bool = True
    leader: str | None = None
    error: str | None = None
    lease: Subject | None = None

    def __post_init__(self) -> None:
        self.writer = LeaderWriter(lambda: self.may_write)

    def step_down(self) -> None:
        """Does nothing: there is no other replica."""

    async def run(self, stop: asyncio.Event) -> None:
        """Does nothing until ``stop`` is set."""
        await stop.wait()


@dataclass(eq=False)
class Elector:
    """Takes part in the election while `run` runs.

    ``identity`` is unique to this process or to its pod. The previous process in a pod has ended,
    so its Lease is taken over without a wait. ``clock`` returns seconds, and never stops or steps.
    ``wall`` returns Unix seconds, for people who read the Lease.
    """

    api: KubeApi
    namespace: str
    identity: str
    times: LeaseTimes = field(default_factory=LeaseTimes)
    clock: Callable[[], float] = boot_time
    wall: Callable[[], float] = time.time
    error: str | None = field(default=None, init=False)
    """Why the last attempt failed, in one line; None if it succeeded."""
    _lease: Lease | None = field(default=None, init=False)
    _renewed_at: float | None = field(default=None, init=False)
    _stepped_down_until: float = field(default=-math.inf, init=False)
    _logged_as_leader: bool = field(default=False, init=False)
    _logged_leader: str | None = field(default=None, init=False)
    _troubles: LoggedKinds = field(default_factory=LoggedKinds, init=False)

    def __post_init__(self) -> None:
        self._leases = Leases(self.api, self.namespace)
        self._named = f"{self.namespace}/{LEASE_NAME}"
        self.writer = LeaderWriter(lambda: self.may_write, self.times.write_timeout)

    @property
    def may_write(self) -> bool:
        """Whether a write that begins now ends before another replica can hold the Lease."""
        return (
            self._renewed_at is not None
            and self.clock() - self._renewed_at < self.times.write_for
            and self.clock() >= self._stepped_down_until
        )

    def step_down(self) -> None:
        """Begin no more writes, release the Lease when those in progress have ended, and do not
        take it again for its duration, so that another replica can.
        """
        logger.warning("no rule can be evaluated: giving up the Lease to another replica")
        self._stepped_down_until = self.clock() + self.times.duration

    @property
    def leader(self) -> str | None:
        """The holder's identity as last seen; None if the Lease is free."""
        if self._lease is None or self._lease.is_free(self.clock()):
            return None
        return self._lease.holder or None

    @property
    def lease(self) -> Subject | None:
        """The Lease as the object of Events on dynsched itself; None if it does not exist."""
        if self._lease is None or not self._lease.resource_version:
            return None
        uid = str(self._lease.body["metadata"].get("uid", ""))
        return Subject("Lease", LEASE_NAME, uid, API_VERSION, self.namespace)

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until ``stop`` is set, then release the Lease after the writes in progress have
        ended. If this is cancelled instead, the Lease is left to expire.
        """
        try:
            while not stop.is_set():
                await self.attempt()
                due = jittered(self.times.renew_every)
                if self._lease is not None and not self._is_ours:
                    left = self._lease.free_in(self.clock())  # another's: until it expires
                    due = min(due, left + 0.01) if left >= 0 else due
                await pause(stop, due)
            await self._release_at_end()
        finally:
            self._renewed_at = None

    async def attempt(self) -> None:
        """Take or renew the Lease once. Errors of the API server are logged, not raised."""
        try:
            try:
                await self._take_or_renew()
            except (ConflictError, NotFoundError):
                # Someone else took, deleted or edited the Lease, or the response to our own write
                # was lost. Another replica may hold it from now on, so it counts as held.
                self._lease = read_lease({}, None, self.clock(), least=self.times.duration)
                self._renewed_at = None
                await self._take_or_renew()
        except ClusterError as error:
            why = str(error)
            if isinstance(error, ForbiddenError):
                why += "; a single replica can run with --no-leader-elect"
            if self._troubles.is_new("election", why):
                logger.warning("leader election: %s", why)
            self.error = why
        else:
            self.error = None
            self._troubles.forget("election")
        if self.may_write is not self._logged_as_leader:
            self._logged_as_leader = self.may_write
            what = "hold" if self.may_write else "no longer hold"
            logger.info("%s the Lease %s as %s", what, self._named, self.identity)
        if self.leader is not None and self.leader != self._logged_leader:
            self._logged_leader = self.leader
            if self.leader != self.identity:  # waiting should not look like hanging
                logger.info(
                    "%s holds the Lease %s: nothing is written until it is free (we are %s)",
                    self.leader,
                    self._named,
                    self.identity,
                )

    async def _take_or_renew(self) -> None:
        if self.clock() < self._stepped_down_until:
            if self._is_ours:
                await self._release()
            self._lease = await self._look()
            return
        if not self._is_ours:
            self._renewed_at = None
            self._lease = await self._look()
            is_free = self._lease is None or self._lease.is_free(self.clock())
            if not (is_free or self._is_ours):
                return
        # Taken before sending, because others may see this renewal at any time from now on.
        sent_at = self.clock()
        spec = held_by(self.identity, self._lease, self.times, self.wall())
        self._lease = await self._write(self._lease, spec)
        self._renewed_at = sent_at

    @property
    def _is_ours(self) -> bool:
        return self._lease is not None and self._lease.holder == self.identity

    async def _release_at_end(self) -> None:
        try:
            try:
                await self._release()
            except (ConflictError, NotFoundError):  # the response to our last renewal was lost
                self._lease = await self._look()
                await self._release()
        except ClusterError as error:
            logger.info("the Lease is left to expire: %s", error)

    async def _release(self) -> None:
        self._renewed_at = None  # no write begins any more
        await self.writer.wait_for_writes()
        if self._lease is not None and self._is_ours:
            await self._write(self._lease, released_spec(self._lease, self.wall()))
            logger.info("released the Lease %s", self._named)
        self._lease = None

    async def _look(self) -> Lease | None:
        body = await self._leases.read()
        now = self.clock()
        if body is None:
            return deleted(self._lease, now, least=self.times.duration)
        return read_lease(body, self._lease, now, least=self.times.duration)

    async def _write(self, seen: Lease | None, spec: Mapping[str, Any]) -> Lease:
        body = await self._leases.write(seen, spec)
        return read_lease(body, None, self.clock(), least=self.times.duration)
