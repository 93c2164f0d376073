"""The wire format of `/preempt`: victims by node, decoded and encoded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from dynsched.api.extender.wire import WireError, decode, given

_FREE: Final = 20_000
_DENSEST: Final = 24
"""A body may have _FREE objects, and one more for every _DENSEST bytes: a whole Pod has one
for each 40, a victim by its uid one for each 47. Each is built, and takes some 50 to 200 bytes.
"""

_Count = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Metadata(Struct, gc=False):
    uid: str = ""


class _Pod(Struct, gc=False):
    """A victim: in the meta form its uid, in the other one the whole Pod."""

    uid: str = field(name="UID", default="")
    uid_lower: str = field(name="uid", default="")
    metadata: _Metadata | None = None


class _Victims(Struct, gc=False):
    pods: list[_Pod] | None = field(name="Pods", default=None)
    pods_lower: list[_Pod] | None = field(name="pods", default=None)
    violations: _Count = field(name="NumPDBViolations", default=0)
    violations_lower: _Count = field(name="numPDBViolations", default=0)


class _PreemptArgs(Struct, gc=False):
    victims: Raw | UnsetType = field(name="NodeNameToVictims", default=UNSET)
    victims_lower: Raw | UnsetType = field(name="nodeNameToVictims", default=UNSET)
    meta: Raw | UnsetType = field(name="NodeNameToMetaVictims", default=UNSET)
    meta_lower: Raw | UnsetType = field(name="nodeNameToMetaVictims", default=UNSET)


class MetaPod(Struct, gc=False):
    """A victim by its uid."""

    uid: str = field(name="UID")


class MetaVictims(Struct, gc=False):
    """The victims on one node; the number of PodDisruptionBudgets that they violate is kept."""

    pods: list[MetaPod] = field(name="Pods")
    violations: int = field(name="NumPDBViolations")


_args = msgspec.json.Decoder(_PreemptArgs)
_victims = msgspec.json.Decoder(dict[str, _Victims | None])


def read_preemption(body: bytes | bytearray, most: int) -> dict[str, MetaVictims]:
    """The body of `/preempt`: victims by node, in the meta form, whichever was sent. WireError,
    also for more than ``most`` nodes.
    """
    args = decode(_args, body)
    meta = given(args.meta, args.meta_lower)
    raw = given(args.victims, args.victims_lower) if meta is None else meta
    if raw is None:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is there")
    if body.count(b"{") + body.count(b"null") > _FREE + len(body) // _DENSEST:
        raise WireError("more victims than a body of this size can hold")
    found = decode(_victims, raw, "NodeNameToVictims" if meta is None else "NodeNameToMetaVictims")
    if len(found) > most:
        raise WireError(f"victims on more than {most} nodes, more than the cluster can have")
    return {node: _as_meta(victims or _Victims()) for node, victims in found.items()}


def preempt_answer(victims: Mapping[str, MetaVictims]) -> bytes:
    """ExtenderPreemptionResult."""
    return b'{"NodeNameToMetaVictims":%b}' % msgspec.json.encode(victims)


def _as_meta(victims: _Victims) -> MetaVictims:
    pods = victims.pods if victims.pods is not None else victims.pods_lower
    return MetaVictims(
        [MetaPod(_uid(pod)) for pod in pods or ()], victims.violations or victims.violations_lower
    )


def _uid(pod: _Pod) -> str:
    return pod.uid or pod.uid_lower or (pod.metadata.uid if pod.metadata else "")
