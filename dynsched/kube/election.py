"""Leader election with a Lease, as pure functions, by the rules of client-go's ``leaderelection``.

A candidate may take the Lease if it has observed no renewal for the Lease's duration, measured *by
its own clock since it observed the last one*. One rule is stricter: only a Lease that its holder
released is free at once. If a person clears, shortens or deletes a held Lease, candidates wait for
the full duration, because the holder may still be writing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dynsched.util.formatting import as_mapping, format_micro_time, parse_time

CLOCK_ERROR: Final = 0.1
"""The largest relative error of a clock's rate with which two replicas never write at the same
time."""
_RELEASED: Final = 1
"""``leaseDurationSeconds`` of a Lease that its holder released, as in client-go; the API server
requires a value above 0."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds. ValueError unless ``(write_for + write_timeout) / 0.9 <= duration / 1.1``,
    which ensures that a holder whose clock is 10 % slow and one whose clock is 10 % fast never
    write at the same time.
    """

    duration: float = 15.0
    """How long candidates wait after the last renewal that they observed."""
    renew_every: float = 2.0
    """How often the holder renews the Lease and candidates read it."""
    write_for: float = 7.0
    """How long after *sending* its last successful renewal the holder may begin a write."""
    write_timeout: float = 5.0
    """Maximum duration of a write."""

    def __post_init__(self) -> None:
        last_write = (self.write_for + self.write_timeout) / (1 - CLOCK_ERROR)
        first_of_another = self.duration / (1 + CLOCK_ERROR)
        if last_write > first_of_another:
            raise ValueError(
                f"a holder may write for {last_write:g} s after its last renewal, "
                f"but another one may begin after {first_of_another:g} s"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as it was last read, or as it is to be created."""

    holder: str
    released: bool
    duration: float
    """``leaseDurationSeconds``, or more."""
    transitions: int
    resource_version: str
    """Empty while it is unknown whether the Lease exists, or after it was deleted while held."""
    body: Mapping[str, Any]
    seen_at: float
    """When this state was first observed, on our monotonic clock."""

    def free_in(self, now: float) -> float:
        """Seconds until any candidate may take it."""
        return -math.inf if self.released else self.seen_at + self.duration - now

    def is_free(self, now: float) -> bool:
        return self.free_in(now) < 0


def read_lease(
    body: Mapping[str, Any], previous: Lease | None, now: float, *, least: float
) -> Lease:
    """A Lease from its JSON. ``now`` is from a clock that never stops or steps. The duration is at
    least ``least`` seconds, whatever the object states.

    A Lease that a person cleared counts as held, never as free.
    """
    spec = _spec(body)
    version = as_mapping(body.get("metadata")).get("resourceVersion") or ""
    is_same = previous is not None and previous.resource_version == version
    return Lease(
        holder=spec.get("holderIdentity") or "",
        released=_is_released(body),
        duration=max(float(spec.get("leaseDurationSeconds") or 0), least),
        transitions=spec.get("leaseTransitions") or 0,
        resource_version=version,
        body=body,
        seen_at=previous.seen_at if previous and is_same else now,
    )


def deleted(previous: Lease | None, now: float, *, least: float) -> Lease | None:
    """The state of a Lease that does not exist. If it was held when last observed, it counts as
    held for ``least`` seconds since then. None if it may be created at once.
    """
    if previous is None or previous.is_free(now):
        return None
    waits = replace(previous, duration=least, resource_version="", body={})
    return None if waits.is_free(now) else waits


def held_by(
    identity: str, previous: Lease | None, times: LeaseTimes, wall: float
) -> dict[str, Any]:
    """The ``spec`` with which ``identity`` takes or renews the Lease. ``wall`` in Unix seconds."""
    spec = dict(_spec(previous.body)) if previous else {}
    time = format_micro_time(round(wall * 1_000_000))
    if previous is None or previous.holder != identity:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = previous.transitions + 1 if previous else 0
    spec["holderIdentity"] = identity
    spec["leaseDurationSeconds"] = math.ceil(times.duration)
    spec["renewTime"] = time
    return spec


def released_spec(previous: Lease, wall: float) -> dict[str, Any]:
    """The ``spec`` with which the holder releases the Lease."""
    released = {"holderIdentity": "", "leaseDurationSeconds": _RELEASED}
    time = format_micro_time(round(wall * 1_000_000))
    return {**_spec(previous.body), **released, "renewTime": time}


def _is_released(body: Mapping[str, Any]) -> bool:
    """Whether the holder released the Lease, and no other candidate has taken it since."""
    spec = _spec(body)
    return not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == _RELEASED


def renewed_at(body: Mapping[str, Any]) -> float | None:
    """The Lease's ``renewTime`` in Unix seconds; None if it is missing or invalid."""
    return parse_time(_spec(body).get("renewTime"))


def _spec(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return body.get("spec") or {}
