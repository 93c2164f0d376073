"""The wire format of `/preempt`: victims by node, decoded and encoded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

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
    metadata: _Metadata | None = None


class _Victims(Struct, gc=False):
    pods: list[_Pod] | None = msgspec.field(name="Pods", default=None)
    pods_lower: list[_Pod] | None = msgspec.field(name="pods", default=None)
    violations: _Count = msgspec.field(name="NumPDBViolations", default=0)
    violations_lower: _Count = msgspec.field(name="numPDBViolations", default=0)


class _MetaPod(Struct, gc=False):
    uid: str = msgspec.field(name="UID", default="")
    uid_lower: str = msgspec.field(name="uid", default="")


class _MetaVictims(Struct, gc=False):
    pods: list[_MetaPod] | None = msgspec.field(name="Pods", default=None)
    pods_lower: list[_MetaPod] | None = msgspec.field(name="pods", default=None)
    violations: _Count = msgspec.field(name="NumPDBViolations", default=0)
    violations_lower: _Count = msgspec.field(name="numPDBViolations", default=0)


class _PreemptArgs(Struct, gc=False):
    victims: Raw | UnsetType = msgspec.field(name="NodeNameToVictims", default=UNSET)
    victims_lower: Raw | UnsetType = msgspec.field(name="nodeNameToVictims", default=UNSET)
    meta: Raw | UnsetType = msgspec.field(name="NodeNameToMetaVictims", default=UNSET)
    meta_lower: Raw | UnsetType = msgspec.field(name="nodeNameToMetaVictims", default=UNSET)


class MetaPod(Struct, gc=False):
    """A victim by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(Struct, gc=False):
    """The victims on one node; the number of PodDisruptionBudgets that they violate is kept."""

    pods: list[MetaPod] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


_args = msgspec.json.Decoder(_PreemptArgs)
_meta_victims = msgspec.json.Decoder(dict[str, _MetaVictims | None])
_whole_victims = msgspec.json.Decoder(dict[str, _Victims | None])
_encode: Final = msgspec.json.Encoder().encode


def read_preemption(body: bytes | bytearray, most: int) -> dict[str, MetaVictims]:
    """The body of `/preempt`: victims by node, in the meta form, whichever was sent. WireError,
    also for more than ``most`` nodes.
    """
    args = decode(_args, body)
    meta = given(args.meta, args.meta_lower)
    whole = given(args.victims, args.victims_lower)
    if meta is None and whole is None:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is there")
    if body.count(b"{") + body.count(b"null") > _FREE + len(body) // _DENSEST:
        raise WireError("more victims than a body of this size can hold")
    if meta is not None:
        by_uid = decode(_meta_victims, meta, "NodeNameToMetaVictims")
        _check(by_uid, most)
        return {node: _meta(victims or _MetaVictims()) for node, victims in by_uid.items()}
    assert whole is not None  # noqa: S101 (one of them is there)
    by_pod = decode(_whole_victims, whole, "NodeNameToVictims")
    _check(by_pod, most)
    return {node: _from_pods(victims or _Victims()) for node, victims in by_pod.items()}


def preempt_answer(victims: Mapping[str, MetaVictims]) -> bytes:
    """ExtenderPreemptionResult."""
    return b'{"NodeNameToMetaVictims":%b}' % _encode(victims)


def _check(victims: Mapping[str, object], most: int) -> None:
    if len(victims) > most:
        raise WireError(f"victims on more than {most} nodes, more than the cluster can have")


def _meta(victims: _MetaVictims) -> MetaVictims:
    pods = victims.pods if victims.pods is not None else victims.pods_lower
    return MetaVictims(
        [MetaPod(pod.uid or pod.uid_lower) for pod in pods or ()],
        victims.violations or victims.violations_lower,
    )


def _from_pods(victims: _Victims) -> MetaVictims:
    pods = victims.pods if victims.pods is not None else victims.pods_lower
    return MetaVictims(
        [MetaPod(pod.metadata.uid if pod.metadata else "") for pod in pods or ()],
        victims.violations or victims.violations_lower,
    )
