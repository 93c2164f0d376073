"""The scheduler extender's wire format, v1: decodes requests and encodes answers. Pure.

Go's structs carry no JSON tags, so keys are capitalised. Lower-case keys are accepted too, as by
Go's decoder. Whole nodes are returned byte for byte: only names and labels in them are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

Buffer = bytes | bytearray | Raw
T = TypeVar("T")
S = TypeVar("S", bound=Struct)


class WireError(ValueError):
    """The body is not a valid scheduler request. The message is one line: what is wrong where."""


class _Metadata(Struct, gc=False):
    uid: str = ""


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


_NULL: Final = Raw(b"null")


class Candidates(Struct, gc=False):
    """ExtenderArgs, the request of `/filter` and `/prioritize`: a pod, and its candidate nodes as
    ``names``, as whole ``nodes``, or both.
    """

    pod: _Pod | None = field(name="Pod", default=None)
    names: list[str] | None = field(name="NodeNames", default=None)
    nodes: Raw = field(name="Nodes", default=_NULL)

    @property
    def scheduler(self) -> str:
        return (self.pod and self.pod.spec and self.pod.spec.schedulerName) or ""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid if self.pod and self.pod.metadata else ""


class _Head(Struct, gc=False):
    name: str
    labels: Raw = _NULL


class _Node(Struct, gc=False):
    metadata: _Head


class NodeList(Struct, gc=False):
    """Whole nodes, undecoded. kube-scheduler reads no other field of the list."""

    items: list[Raw] | None = None


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
    """A pod to preempt: its uid (MetaVictims), or the whole Pod (Victims)."""

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


_candidates = msgspec.json.Decoder(Candidates)
_node_list = msgspec.json.Decoder(NodeList)
_node = msgspec.json.Decoder(_Node)
_binding = msgspec.json.Decoder(Binding)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_victims = msgspec.json.Decoder(dict[str, _Victims | None])
_parts = msgspec.json.Decoder(dict[str, Raw])
_labels = msgspec.json.Decoder(dict[str, Raw] | None)
_encode: Final = msgspec.json.Encoder().encode


def read_args(body: Buffer) -> Candidates:
    """The body of `/filter` and `/prioritize`. Raises WireError if it has no candidates."""
    found = _read(_candidates, body)
    if found.names is None and _is_null(found.nodes):
        raise WireError("neither Nodes nor NodeNames is set: one of them must list the candidates")
    return found


def read_nodes(raw: Raw, key: str | None) -> tuple[NodeList, list[tuple[str, bool]]]:
    """The list, and for each node its name and whether it has the label ``key`` (True for None).
    Raises WireError if an item is not a Node.
    """
    nodes = decode(_node_list, raw, "Nodes")
    heads = [decode(_node, item, "Nodes").metadata for item in nodes.items or ()]
    return nodes, [
        (head.name, key is None or key in (decode(_labels, head.labels, "Nodes") or ()))
        for head in heads
    ]


def read_binding(body: Buffer) -> Binding:
    """Raises WireError if pod, namespace or node is missing."""
    binding = _read(_binding, body)
    given = {"PodName": binding.pod, "PodNamespace": binding.namespace, "Node": binding.node}
    if missing := [name for name, value in given.items() if not value]:
        raise WireError(f"{', '.join(missing)} missing")
    return binding


def read_preemption(body: Buffer) -> dict[str, Any]:
    """MetaVictims by node, from either form of the request."""
    args = _read(_preempt_args, body)
    if not _is_null(args.meta):
        found = decode(_victims, args.meta, "NodeNameToMetaVictims")
    elif not _is_null(args.victims):
        found = decode(_victims, args.victims, "NodeNameToVictims")
    else:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is set")
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
    nodes: NodeList | None = None,
    failed: Mapping[str, str] = {},
    unresolvable: Mapping[str, str] = {},
    error: str = "",
) -> bytes:
    """ExtenderFilterResult. After an ``error`` the scheduler continues without the extender if it
    is configured as ``ignorable``; otherwise it tries the pod again later.
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
    """The decoded body. If no key is known, the case of keys is ignored."""
    found = decode(decoder, body)
    if found == decoder.type():
        known = [each.encode_name for each in msgspec.structs.fields(decoder.type)]
        spelled = {key.lower(): key for key in known}
        parts = decode(_parts, body)
        found = decode(decoder, _encode({spelled.get(k.lower(), k): v for k, v in parts.items()}))
    return found


def decode(decoder: msgspec.json.Decoder[T], body: Buffer, where: str = "") -> T:
    """The decoded body. Raises WireError, which names the part (``where``)."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise WireError(f"{where}: {error}" if where else str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None
    except RecursionError:
        raise WireError("the JSON cannot be read: it is nested too deeply") from None


def _is_null(value: Raw) -> bool:
    return bytes(memoryview(value)[:4]) == b"null"
