"""The scheduler extender's wire format, v1: requests decoded, answers encoded. Pure.

Go's structs carry no JSON tags, so keys are capitalised; lower-case keys are read as well, as by
Go's decoder. Whole nodes are only passed on: they are not decoded, and go back byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Buffer = bytes | bytearray | Raw
T = TypeVar("T")
S = TypeVar("S", bound=Struct)


class WireError(ValueError):
    """The body is not a scheduler's request. One line: where, and what is wrong."""


class _Metadata(Struct, gc=False):
    uid: str = ""


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


_NULL: Final = Raw(b"null")


class _Args(Struct, gc=False):
    """ExtenderArgs."""

    pod: _Pod | None = field(name="Pod", default=None)
    names: list[str] | None = field(name="NodeNames", default=None)
    nodes: Raw = field(name="Nodes", default=_NULL)


class NodeList(Struct, gc=False, omit_defaults=True):
    """Whole nodes, undecoded."""

    kind: Raw | UnsetType = UNSET
    apiVersion: Raw | UnsetType = UNSET  # noqa: N815 (Kubernetes's own spelling)
    metadata: Raw | UnsetType = UNSET
    items: list[Raw] | None = None


class Candidates(Struct, gc=False):
    """The request of `/filter` and `/prioritize`: a pod's ``scheduler`` and ``uid``, and the nodes
    by ``names``, as whole ``nodes``, or both.
    """

    scheduler: str
    uid: str
    names: list[str] | None
    nodes: Raw | None


class _HostPriority(Struct, gc=False):
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
_node_list = msgspec.json.Decoder(NodeList)
_binding = msgspec.json.Decoder(Binding)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_victims = msgspec.json.Decoder(dict[str, _Victims | None])
_parts = msgspec.json.Decoder(dict[str, Raw])
_encode: Final = msgspec.json.Encoder().encode


def read_args(body: Buffer) -> Candidates:
    """The body of `/filter` and `/prioritize`. WireError when there are no candidates in it."""
    args = _read(_args, body)
    nodes, pod = _given(args.nodes), args.pod or _Pod()
    if args.names is None and nodes is None:
        raise WireError(
            "neither Nodes nor NodeNames is there: one of them must name the candidates"
        )
    scheduler = pod.spec.schedulerName if pod.spec else None
    uid = pod.metadata.uid if pod.metadata else ""
    return Candidates(scheduler or "", uid, args.names, nodes)


def read_nodes(raw: Raw | None) -> NodeList:
    """Whole nodes, once `read_heads` has checked them."""
    return decode(_node_list, raw or b"", "Nodes")


def read_heads(raw: Raw | None, key: str | None) -> list[tuple[str, bool]]:
    """Each Node's name, and whether it has the label ``key``. WireError where one is no Node."""
    items = decode(_heads_decoder(key), raw or b"", "Nodes").items or ()
    found = [item.metadata for item in items]
    if key is None:
        return [(each.name, True) for each in found]
    return [
        (each.name, each.labels is not None and each.labels.wanted is not UNSET) for each in found
    ]


@lru_cache(maxsize=4)
def _heads_decoder(key: str | None) -> msgspec.json.Decoder[Any]:
    """Decodes the names of a NodeList, and the label ``key`` where it is not None."""
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
    given = {"PodName": binding.pod, "PodNamespace": binding.namespace, "Node": binding.node}
    if missing := [name for name, value in given.items() if not value]:
        raise WireError(f"{', '.join(missing)} missing")
    return binding


def read_preemption(body: Buffer) -> dict[str, Any]:
    """MetaVictims by node, from either form of the request."""
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


def filter_answer(
    *,
    names: Sequence[str] | None = None,
    nodes: NodeList | Raw | None = None,
    failed: Mapping[str, str] = {},
    unresolvable: Mapping[str, str] = {},
    error: str = "",
) -> bytes:
    """ExtenderFilterResult. With an ``error`` the scheduler goes on without us where we are
    ignorable; elsewhere it tries the pod again later.
    """
    return _encode(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": error,
        }
    )


def prioritize_answer(names: Iterable[str], scores: Iterable[int]) -> bytes:
    """HostPriorityList."""
    return _encode(list(map(_HostPriority, names, scores)))


def error_answer(error: str) -> bytes:
    return _encode({"Error": error})


def _read(decoder: msgspec.json.Decoder[S], body: Buffer) -> S:
    """The decoded body; where none of its keys is known, with keys in any case."""
    found = decode(decoder, body)
    if found == decoder.type():
        known = [each.encode_name for each in msgspec.structs.fields(decoder.type)]
        spelled = {key.lower(): key for key in known}
        parts = decode(_parts, body)
        found = decode(decoder, _encode({spelled.get(k.lower(), k): v for k, v in parts.items()}))
    return found


def decode(decoder: msgspec.json.Decoder[T], body: Buffer, where: str = "") -> T:
    """The decoded body. WireError with what is wrong, and in which part."""
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
