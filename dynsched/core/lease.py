"""Leader election by a Lease, decided on values: who may take it, and for how long it holds.

The rules are those of client-go's ``leaderelection``: a holder renews; whoever sees no renewal
for the lease's duration *by its own clock, since it saw the last one* may take it. Clocks of two
machines are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dynsched.core.evidence import format_time


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """All in seconds.

    ``duration``: how long others wait after the last renewal that they saw. ``renew_every``: how
    often the holder renews and others look. ``write_for``: for how long after *sending* its last
    successful renewal the holder may begin a write. ``write_timeout``: the longest that a write
    takes.

    A holder whose clock is 10 % slow against one whose clock is 10 % fast never writes together
    with it while ``(write_for + write_timeout) / 0.9 <= duration / 1.1``.
    """

    duration: float = 15.0
    renew_every: float = 2.0
    write_for: float = 7.0
    write_timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API server has it, and when (own clock) this state of it was first seen."""

    holder: str
    duration: float
    transitions: int
    resource_version: str
    body: Mapping[str, Any]
    seen_at: float

    def is_free(self, now: float) -> bool:
        """Whether anybody may take it."""
        return not self.holder or now - self.seen_at > self.duration


def read_lease(body: Mapping[str, Any], previous: Lease | None, now: float) -> Lease:
    """A Lease from its JSON. ``now`` is on a clock that never stops or steps.

    Odd content (written by hand) is taken as held for the default duration: never as free.
    """
    spec = body.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    version = str(body.get("metadata", {}).get("resourceVersion", ""))
    duration = spec.get("leaseDurationSeconds")
    transitions = spec.get("leaseTransitions")
    seen = Lease(
        holder=str(spec.get("holderIdentity") or ""),
        duration=float(duration) if isinstance(duration, int) else LeaseTimes().duration,
        transitions=transitions if isinstance(transitions, int) else 0,
        resource_version=version,
        body=body,
        seen_at=now,
    )
    if previous is not None and previous.resource_version == version:
        return replace(seen, seen_at=previous.seen_at)
    return seen


def held_by(
    identity: str, previous: Lease | None, times: LeaseTimes, wall: float
) -> dict[str, Any]:
    """The ``spec`` with which ``identity`` takes or renews the Lease. ``wall`` in Unix seconds."""
    spec = dict(previous.body.get("spec") or {}) if previous else {}
    if previous is None or previous.holder != identity:
        spec["acquireTime"] = _micro_time(wall)
        spec["leaseTransitions"] = previous.transitions + 1 if previous else 0
    spec["holderIdentity"] = identity
    spec["leaseDurationSeconds"] = round(times.duration)
    spec["renewTime"] = _micro_time(wall)
    return spec


def given_up(previous: Lease, wall: float) -> dict[str, Any]:
    """The ``spec`` with which the holder lets go, so that another need not wait."""
    spec = dict(previous.body.get("spec") or {})
    spec["holderIdentity"] = ""
    spec["leaseDurationSeconds"] = 1
    spec["renewTime"] = _micro_time(wall)
    return spec


def renewed_at(body: Mapping[str, Any]) -> float | None:
    """When the Lease says that it was last renewed (Unix seconds); None when it does not."""
    spec = body.get("spec")
    text = spec.get("renewTime") if isinstance(spec, Mapping) else None
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _micro_time(wall: float) -> str:
    """Kubernetes's MicroTime: exactly six digits after the seconds."""
    seconds, micros = divmod(round(wall * 1_000_000), 1_000_000)
    return format_time(seconds).replace("Z", f".{micros:06d}Z")
