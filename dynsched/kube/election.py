"""Leader election by a Lease, decided on values, by the rules of client-go's ``leaderelection``: a
candidate may take the Lease when it has observed no renewal for its duration, measured *by its own
clock since it observed the last one*. One rule is stricter: only a Lease that its holder itself
released is free at once. When a person clears, shortens or deletes the Lease of a holder,
candidates wait for the full duration, because that holder may still be writing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dynsched.util.formatting import as_mapping, format_micro_time, parse_time

CLOCK_ERROR: Final = 0.1
"""The largest error of a clock's rate, as a share, with which two replicas never write at the same
time."""
MAX_DURATION: Final = 300.0
"""Seconds: the upper bound for the duration that the Lease of another holder states. One of years,
say a typing error, must not stop all replicas from writing."""
_RELEASED: Final = 1
"""``leaseDurationSeconds`` of a Lease that its holder released, as in client-go; the API server
requires a value above 0."""
_MAX_TRANSITIONS: Final = 2**31 - 1
"""The largest ``leaseTransitions`` that the API server accepts."""
_SET_BACK: Final = 1.0
"""Seconds by which the holder's clock may have been set back between its last renewal and the
release of the Lease. After a larger step the release is not trusted, and other replicas wait for
the full duration, as after a crash."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """In seconds. A holder whose clock is 10 % slow and one whose clock is 10 % fast never write at
    the same time while ``(write_for + write_timeout) / 0.9 <= duration / 1.1``; else ValueError.
    """

    duration: float = 15.0
    """How long candidates wait after the last renewal that they observed."""
    renew_every: float = 2.0
    """How often the holder renews the Lease and candidates read it."""
    write_for: float = 7.0
    """How long after *sending* its last successful renewal the holder may begin a write."""
    write_timeout: float = 5.0
    """The longest time that a write may take."""

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
    """A Lease as it was last read, or as it is to be created."""

    holder: str
    released: bool
    duration: float
    """``leaseDurationSeconds``, limited to a plausible range."""
    transitions: int
    resource_version: str
    """Empty while it is unknown whether the Lease exists, or after it was deleted while held."""
    body: Mapping[str, Any]
    seen_at: float
    """When this state was first observed, by the own monotonic clock."""

    def free_in(self, now: float) -> float:
        """Seconds until any candidate may take it."""
        return -math.inf if self.released else self.seen_at + self.duration - now

    def is_free(self, now: float) -> bool:
        """Whether any candidate may take it."""
        return self.free_in(now) < 0


def read_lease(
    body: Mapping[str, Any], previous: Lease | None, now: float, *, least: float
) -> Lease:
    """A Lease from its JSON. ``now`` is read from a clock that never stops or steps. The duration
    is limited to the range from ``least`` to MAX_DURATION seconds, whatever the object states.

    A Lease with unexpected content (edited by hand) counts as held, never as free. The same is true
    of a release that was not written by the holder of ``previous``, or was written before
    ``previous``: a restore of etcd may have brought an old release back while the present holder
    has not noticed yet.
    """
    spec = _spec(body)
    version = as_mapping(body.get("metadata")).get("resourceVersion")
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
    """The state of a Lease that does not exist (any more). If it was held when last observed, it
    counts as held for ``least`` seconds since then. None when it may be created at once.
    """
    if previous is None or previous.is_free(now):
        return None
    waits = replace(previous, duration=least, resource_version="", body={})
    return None if waits.is_free(now) else waits


def contested(now: float, *, least: float) -> Lease:
    """The state of a Lease that changed between our read and our write: another replica may hold it
    from now on, so it counts as held for ``least`` seconds.
    """
    return read_lease({}, None, now, least=least)


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


def released_spec(previous: Lease, wall: float) -> dict[str, Any]:
    """The ``spec`` with which the holder releases the Lease."""
    released = {"holderIdentity": "", "leaseDurationSeconds": _RELEASED}
    return {**_spec(previous.body), **released, "renewTime": format_micro_time(_micros(wall))}


def is_released(body: Mapping[str, Any]) -> bool:
    """Whether the holder released the Lease, and no other candidate has taken it since."""
    spec = _spec(body)
    return not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == _RELEASED


def renewed_at(body: Mapping[str, Any]) -> float | None:
    """When the Lease says that it was last renewed (Unix seconds); None when it does not."""
    return parse_time(_spec(body).get("renewTime"))


def _is_later(body: Mapping[str, Any], previous: Lease) -> bool:
    """Whether this was written after ``previous`` and by its holder, by the holder's own clock."""
    spec, known = _spec(body), _spec(previous.body)
    if any(spec.get(key) != known.get(key) for key in ("acquireTime", "leaseTransitions")):
        return False
    written, before = renewed_at(body), renewed_at(previous.body)
    return written is None or before is None or written > before - _SET_BACK


def _is_same(seen: Lease, previous: Lease) -> bool:
    """Whether it was not written since. The resourceVersion alone does not prove it: after a
    restore of etcd the same versions are assigned again.
    """
    same_version = seen.resource_version == previous.resource_version
    return same_version and _spec(seen.body) == _spec(previous.body)


def _spec(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_mapping(body.get("spec"))


def _whole(value: object) -> int:
    """A positive integer; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _micros(wall: float) -> int:
    return round(wall * 1_000_000)
