"""The scheduler extender's wire format, v1: requests decoded, answers encoded. Pure.

Go's structs carry no JSON tags, so keys are capitalised; lower-case keys are read as well, as by
Go's decoder. Whole nodes are only passed on: they are not decoded, and go back byte for byte.
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
    """The body is not a scheduler's request. One line: where, and what is wrong."""


class _Metadata(Struct, gc=False):
    uid: str = ""


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


_NULL: Final = Raw(b"null")


class Candidates(Struct, gc=False):
    """ExtenderArgs, the request of `/filter` and `/prioritize`: a pod, and the nodes by ``names``,
    as whole ``nodes``, or both.
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
    """Whole nodes, undecoded. kube-scheduler reads nothing else of the list."""

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
    """The body of `/filter` and `/prioritize`. WireError when there are no candidates in it."""
    found = _read(_candidates, body)
    if found.names is None and _is_null(found.nodes):
        raise WireError(
            "neither Nodes nor NodeNames is there: one of them must name the candidates"
        )
    return found


def read_nodes(raw: Raw, key: str | None) -> tuple[NodeList, list[tuple[str, bool]]]:
    """The list; and each Node's name, and whether it has the label ``key``, if that is not None.
    WireError where one is no Node.
    """
    nodes = decode(_node_list, raw, "Nodes")
    heads = [decode(_node, item, "Nodes").metadata for item in nodes.items or ()]
    return nodes, [
        (head.name, key is None or key in (decode(_labels, head.labels, "Nodes") or ()))
        for head in heads
    ]


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
    if not _is_null(args.meta):
        found = decode(_victims, args.meta, "NodeNameToMetaVictims")
    elif not _is_null(args.victims):
        found = decode(_victims, args.victims, "NodeNameToVictims")
    else:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is there")
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


def _is_null(value: Raw) -> bool:
    return bytes(memoryview(value)[:4]) == b"null"
