"""The scheduler extender's wire format, v1: requests decoded, answers encoded. Pure.

Go's structs carry no JSON tags, so keys are capitalised; lower-case ones are read as well, as Go's
decoder would. What is only passed on is never decoded: it goes back byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Buffer = bytes | bytearray | Raw
T = TypeVar("T")
S = TypeVar("S", bound=Struct)


class WireError(ValueError):
    """The body is not what a scheduler sends. One line: where, and what is wrong."""


class _Metadata(Struct, gc=False):
    uid: str = ""


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


_NULL: Final = Raw(b"null")


class _Args(Struct, gc=False):
    """ExtenderArgs; each part is decoded on its own."""

    pod: Raw = field(name="Pod", default=_NULL)
    names: Raw = field(name="NodeNames", default=_NULL)
    nodes: Raw = field(name="Nodes", default=_NULL)


class _NodeList(Struct, gc=False, omit_defaults=True):
    kind: Raw | UnsetType = UNSET
    apiVersion: Raw | UnsetType = UNSET  # noqa: N815 (Kubernetes's own spelling)
    metadata: Raw | UnsetType = UNSET
    items: list[Raw] | None = None


class Asked(Struct, gc=False):
    """What `/filter` and `/prioritize` are asked: ``names``, ``nodes``, or both, raw."""

    scheduler: str
    uid: str
    names: Raw | None
    nodes: Raw | None


class HostPriority(Struct, gc=False):
    host: str = field(name="Host")
    score: int = field(name="Score")


class Binding(Struct, frozen=True, gc=False):
    """ExtenderBindingArgs."""

    pod: str = field(name="PodName", default="")
    namespace: str = field(name="PodNamespace", default="")
    uid: str = field(name="PodUID", default="")
    node: str = field(name="Node", default="")


_Count = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Victim(Struct, gc=False):
    """A victim: in the meta form its uid, in the other one the whole Pod."""

    uid: str = field(name="UID", default="")
    uid_lower: str = field(name="uid", default="")
    metadata: _Metadata | None = None


class _Victims(Struct, gc=False):
    pods: list[_Victim] | None = field(name="Pods", default=None)
    pods_lower: list[_Victim] | None = field(name="pods", default=None)
    violations: _Count = field(name="NumPDBViolations", default=0)
    violations_lower: _Count = field(name="numPDBViolations", default=0)


class _PreemptArgs(Struct, gc=False):
    victims: Raw = field(name="NodeNameToVictims", default=_NULL)
    meta: Raw = field(name="NodeNameToMetaVictims", default=_NULL)


_args = msgspec.json.Decoder(_Args)
_strings = msgspec.json.Decoder(list[str])
_node_list = msgspec.json.Decoder(_NodeList)
_pod = msgspec.json.Decoder(_Pod | None)
_binding = msgspec.json.Decoder(Binding)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_victims = msgspec.json.Decoder(dict[str, _Victims | None])
_parts = msgspec.json.Decoder(dict[str, Raw])
_encode: Final = msgspec.json.Encoder().encode


def read_args(body: Buffer) -> Asked:
    """The body of `/filter` and `/prioritize`. WireError when there are no candidates in it."""
    args = _read(_args, body)
    names, nodes, raw = map(_given, (args.names, args.nodes, args.pod))
    if names is None and nodes is None:
        raise WireError(
            "neither Nodes nor NodeNames is there: one of them must name the candidates"
        )
    pod = (decode(_pod, raw, "Pod") if raw is not None else None) or _Pod()
    scheduler = pod.spec.schedulerName if pod.spec else None
    return Asked(scheduler or "", pod.metadata.uid if pod.metadata else "", names, nodes)


def read_names(raw: bytes) -> list[str]:
    return decode(_strings, raw, "NodeNames")


def read_nodes(raw: Raw | None) -> tuple[bytes, list[Raw]]:
    """Once `read_heads` has found it good: what is written before the items, and the items."""
    found = decode(_node_list, raw or b"", "Nodes")
    kept = {"kind": found.kind, "apiVersion": found.apiVersion, "metadata": found.metadata}
    head = _encode({key: value for key, value in kept.items() if isinstance(value, Raw)})[:-1]
    return head + (b"," if len(head) > 1 else b"") + b'"items":', found.items or []


def read_heads(raw: Raw | None, key: str | None) -> list[tuple[str, bool]]:
    """Each Node's name, and whether it carries the label ``key``. WireError where one is no
    Node.
    """
    items = decode(_heads_decoder(key), raw or b"", "Nodes").items or ()
    found = [item.metadata for item in items]
    if key is None:
        return [(each.name, True) for each in found]
    return [
        (each.name, each.labels is not None and each.labels.wanted is not UNSET) for each in found
    ]


@lru_cache(maxsize=4)
def _heads_decoder(key: str | None) -> msgspec.json.Decoder[Any]:
    """For a NodeList with names, and of their labels the one that is wanted, if there is one."""
    fields: list[Any] = [("name", str)]
    if key is not None:
        wanted = ("wanted", Raw | UnsetType, field(name=key, default=UNSET))
        labels: Any = msgspec.defstruct("Labels", [wanted], gc=False)
        fields.append(("labels", labels | None, None))
    metadata: Any = msgspec.defstruct("Metadata", fields, gc=False)
    item: Any = msgspec.defstruct("Item", [("metadata", metadata)], gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Heads", [("items", list[item] | None, None)]))


def read_binding(body: Buffer) -> Binding:
    """WireError when pod, namespace or node is missing."""
    binding = _read(_binding, body)
    said = {"PodName": binding.pod, "PodNamespace": binding.namespace, "Node": binding.node}
    if missing := [name for name, value in said.items() if not value]:
        raise WireError(f"{', '.join(missing)} missing")
    return binding


def read_preemption(body: Buffer) -> dict[str, Any]:
    """By node MetaVictims, whichever form was sent."""
    args = _read(_preempt_args, body)
    meta = _given(args.meta)
    raw = _given(args.victims) if meta is None else meta
    if raw is None:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is there")
    found = decode(_victims, raw, "NodeNameToVictims" if meta is None else "NodeNameToMetaVictims")
    return {node: _as_meta(victims or _Victims()) for node, victims in found.items()}


def preempt_answer(victims: Mapping[str, Any]) -> bytes:
    return _encode({"NodeNameToMetaVictims": victims})


def _as_meta(victims: _Victims) -> dict[str, Any]:
    return {
        "Pods": [
            {"UID": pod.uid or pod.uid_lower or (pod.metadata.uid if pod.metadata else "")}
            for pod in victims.pods or victims.pods_lower or ()
        ],
        "NumPDBViolations": victims.violations or victims.violations_lower,
    }


def filter_tail(
    failed: Mapping[str, str] = {}, unresolvable: Mapping[str, str] = {}, error: str = ""
) -> bytes:
    """ExtenderFilterResult after the values of Nodes and NodeNames."""
    last = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable, "Error": error}
    return b"," + _encode(last)[1:]


def filter_error(error: str) -> bytes:
    """The scheduler goes on without us where we are ignorable, else tries the pod again later."""
    return b'{"Nodes":null,"NodeNames":null' + filter_tail(error=error)


def error_answer(error: str) -> bytes:
    return _encode({"Error": error})


def _read(decoder: msgspec.json.Decoder[S], body: Buffer) -> S:
    """An argument of ours; where none of its keys is there, by keys in any case."""
    found = decode(decoder, body)
    if found == decoder.type():
        known = [each.encode_name for each in msgspec.structs.fields(decoder.type)]
        spelled = {key.lower(): key for key in known}
        parts = decode(_parts, body)
        found = decode(decoder, _encode({spelled.get(k.lower(), k): v for k, v in parts.items()}))
    return found


def decode(decoder: msgspec.json.Decoder[T], body: Buffer, where: str = "") -> T:
    """What the body says. WireError with what is wrong in it, and in which part."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise WireError(f"{where}: {error}" if where else str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None
    except RecursionError:
        raise WireError("not JSON that can be read: it is nested too deeply") from None


def _given(value: Raw) -> Raw | None:
    return None if bytes(memoryview(value)[:4]) == b"null" else value
