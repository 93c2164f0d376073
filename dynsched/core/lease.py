"""Leader election by a Lease, decided on values: who may take it, and for how long it holds.

The rules are those of client-go's ``leaderelection``: a holder renews; whoever sees no renewal
for the lease's duration *by its own clock, since it saw the last one* may take it. Clocks of two
machines are never compared.

Stricter than there: only what a holder itself leaves behind on its way out is free at once. A
Lease that a person has emptied, shortened or deleted under its holder is waited for in full, since
that holder may still be writing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dynsched.core.times import format_micro_time, parse_time

CLOCK_ERROR: Final = 0.1
"""By how much a clock may run fast or slow, as a share, before two could write at a time."""

MAX_DURATION: Final = 300.0
"""Seconds: what is believed of another's duration at the most. Longer than electors in the field
have it (15 to 137 s); one of years, by a typing error say, must not keep everybody from writing."""

_GIVEN_UP: Final = 1
"""Seconds that a Lease without a holder is for when its holder let go of it, as client-go has it;
the API server wants more than 0."""

_MAX_TRANSITIONS: Final = 2**31 - 1
"""What the API server takes; beyond it, it would refuse every holder."""

_SET_BACK: Final = 1.0
"""Seconds: by how much a clock is corrected in passing. If it was set back by more when its owner
lets go of the Lease, another waits for the duration, as after a crash."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """All in seconds.

    ``duration``: how long others wait after the last renewal that they saw. ``renew_every``: how
    often the holder renews and others look. ``write_for``: for how long after *sending* its last
    successful renewal the holder may begin a write. ``write_timeout``: the longest that a write
    takes.

    A holder whose clock is 10 % slow against one whose clock is 10 % fast never writes together
    with it while ``(write_for + write_timeout) / 0.9 <= duration / 1.1``; other times are a
    ValueError.
    """

    duration: float = 15.0
    renew_every: float = 2.0
    write_for: float = 7.0
    write_timeout: float = 5.0

    def __post_init__(self) -> None:
        last_write = (self.write_for + self.write_timeout) / (1 - CLOCK_ERROR)
        first_of_another = self.duration / (1 + CLOCK_ERROR)
        if last_write > first_of_another:
            raise ValueError(
                f"a holder may write for {last_write:g} s after its last renewal, "
                f"another for the first time after {first_of_another:g} s"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API server has it, and when (own clock) this state of it was first seen.

    ``resource_version`` is empty while it is not known whether it is there, or after it was deleted
    under its holder. ``released``: the holder let go of it.
    """

    holder: str
    released: bool
    duration: float
    transitions: int
    resource_version: str
    body: Mapping[str, Any]
    seen_at: float

    def free_in(self, now: float) -> float:
        """Seconds until anybody may take it; below 0 when that is so already."""
        return -math.inf if self.released else self.seen_at + self.duration - now

    def is_free(self, now: float) -> bool:
        """Whether anybody may take it."""
        return self.free_in(now) < 0


def read_lease(
    body: Mapping[str, Any], previous: Lease | None, now: float, *, least: float
) -> Lease:
    """A Lease from its JSON. ``now`` is on a clock that never stops or steps. It is taken to hold
    for ``least`` seconds at least, and for MAX_DURATION at most, whatever it says.

    Odd content (written by hand) is taken as held: never as free. So is one that somebody else
    let go of than the holder of ``previous``, or he himself earlier: a restore of etcd may have
    brought that back, and he does not know it yet.
    """
    spec = _spec(body)
    metadata = body.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    is_his = previous is None or _is_later(body, previous)
    duration = min(float(_whole(spec.get("leaseDurationSeconds"))), MAX_DURATION)
    seen = Lease(
        holder=str(spec.get("holderIdentity") or ""),
        released=is_released(body) and is_his,
        duration=max(duration, least),
        transitions=_whole(spec.get("leaseTransitions")),
        resource_version=str(version or ""),
        body=body,
        seen_at=now,
    )
    if previous is not None and _is_same(seen, previous):
        return replace(seen, seen_at=previous.seen_at, released=previous.released)
    return seen


def deleted(previous: Lease | None, now: float, *, least: float) -> Lease | None:
    """What is known of a Lease that is not there. One that was seen to be held counts as held for
    ``least`` seconds since then; None when it may be created at once.
    """
    if previous is None or previous.is_free(now):
        return None
    waits = replace(previous, duration=least, resource_version="", body={})
    return None if waits.is_free(now) else waits


def contested(now: float, *, least: float) -> Lease:
    """What is known of a Lease that changed under our hands: somebody may hold it from now on."""
    return Lease(
        holder="",
        released=False,
        duration=least,
        transitions=0,
        resource_version="",
        body={},
        seen_at=now,
    )


def held_by(
    identity: str, previous: Lease | None, times: LeaseTimes, wall: float
) -> dict[str, Any]:
    """The ``spec`` with which ``identity`` takes or renews the Lease. ``wall`` in Unix seconds."""
    spec = dict(_spec(previous.body)) if previous else {}
    time = format_micro_time(_micros(wall))
    if time == spec.get("renewTime"):
        # The API server stores nothing where nothing differs: others would see no renewal.
        time = format_micro_time(_micros(wall) + 1)
    if previous is None or previous.holder != identity:
        spec["acquireTime"] = time
        taken = previous.transitions + 1 if previous else 0
        spec["leaseTransitions"] = min(taken, _MAX_TRANSITIONS)
    spec["holderIdentity"] = identity
    spec["leaseDurationSeconds"] = math.ceil(times.duration)
    spec["renewTime"] = time
    return spec


def given_up(previous: Lease, wall: float) -> dict[str, Any]:
    """The ``spec`` with which the holder lets go, so that another need not wait."""
    spec = dict(_spec(previous.body))
    spec["holderIdentity"] = ""
    spec["leaseDurationSeconds"] = _GIVEN_UP
    spec["renewTime"] = format_micro_time(_micros(wall))
    return spec


def is_released(body: Mapping[str, Any]) -> bool:
    """Whether its holder let go of it, and nobody took it since."""
    spec = _spec(body)
    return not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == _GIVEN_UP


def renewed_at(body: Mapping[str, Any]) -> float | None:
    """When the Lease says that it was last renewed (Unix seconds); None when it does not."""
    return parse_time(_spec(body).get("renewTime"))


def _is_later(body: Mapping[str, Any], previous: Lease) -> bool:
    """Whether this was written by the holder of ``previous``, since then, by his own clock."""
    spec, known = _spec(body), _spec(previous.body)
    if any(spec.get(key) != known.get(key) for key in ("acquireTime", "leaseTransitions")):
        return False
    written, before = renewed_at(body), renewed_at(previous.body)
    return written is None or before is None or written > before - _SET_BACK


def _is_same(seen: Lease, previous: Lease) -> bool:
    """Whether nothing was written since. The version alone does not tell: after a restore of etcd
    versions are given a second time.
    """
    same_version = seen.resource_version == previous.resource_version
    return same_version and _spec(seen.body) == _spec(previous.body)


def _spec(body: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = body.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _whole(value: object) -> int:
    """A number as Kubernetes writes one; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _micros(wall: float) -> int:
    return round(wall * 1_000_000)
