"""The scheduler extender's wire format, v1: requests decoded, answers encoded. Pure.

Go's structs carry no JSON tags, so keys are capitalised; lower-case ones are read as well, as Go's
decoder would. What is only passed on is never decoded: it goes back byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview | Raw

_NULL: Final = (None, UNSET)


class WireError(ValueError):
    """The body is not what a scheduler sends. One line: where, and what is wrong."""


class _Metadata(Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Labelled(Struct, gc=False):
    name: str
    labels: dict[str, str] | None = None


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class NodeHead(Struct, gc=False):
    """Of a whole Node: its name and its labels."""

    metadata: _Labelled

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name


class _Named(Struct, gc=False):
    name: str


class _NamedNode(Struct, gc=False):
    metadata: _Named


class _Args(Struct, gc=False):
    """ExtenderArgs, in every spelling; each part is looked at on its own."""

    pod: _Pod | None = msgspec.field(name="Pod", default=None)
    pod_lower: _Pod | None = msgspec.field(name="pod", default=None)
    names: Raw | UnsetType = msgspec.field(name="NodeNames", default=UNSET)
    names_camel: Raw | UnsetType = msgspec.field(name="nodeNames", default=UNSET)
    names_lower: Raw | UnsetType = msgspec.field(name="nodenames", default=UNSET)
    nodes: Raw | UnsetType = msgspec.field(name="Nodes", default=UNSET)
    nodes_lower: Raw | UnsetType = msgspec.field(name="nodes", default=UNSET)


class _NodeList(Struct, gc=False, omit_defaults=True):
    """A NodeList whose items are looked at one by one."""

    kind: Raw | UnsetType = UNSET
    apiVersion: Raw | UnsetType = UNSET  # noqa: N815 (Kubernetes's own spelling)
    metadata: Raw | UnsetType = UNSET
    items: list[Raw] | None = None
    items_upper: list[Raw] | None = msgspec.field(name="Items", default=None)


class _NodeNames(Struct, gc=False):
    items: list[_NamedNode] | None = None
    items_upper: list[_NamedNode] | None = msgspec.field(name="Items", default=None)


class Asked(Struct, gc=False):
    """What `/filter` and `/prioritize` are asked: one of the two forms at least is not None.

    ``names`` and ``nodes`` are raw: see `read_names`, `read_nodes` and `read_nodes_names`.
    """

    scheduler: str
    uid: str
    names: Raw | None
    nodes: Raw | None


class _Victims(Struct, gc=False):
    pods: list[_Pod] | None = msgspec.field(name="Pods", default=None)
    pods_lower: list[_Pod] | None = msgspec.field(name="pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)
    violations_lower: int = msgspec.field(name="numPDBViolations", default=0)


class _MetaPod(Struct, gc=False):
    uid: str = msgspec.field(name="UID", default="")
    uid_lower: str = msgspec.field(name="uid", default="")


class _MetaVictims(Struct, gc=False):
    pods: list[_MetaPod] | None = msgspec.field(name="Pods", default=None)
    pods_lower: list[_MetaPod] | None = msgspec.field(name="pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)
    violations_lower: int = msgspec.field(name="numPDBViolations", default=0)


class _PreemptArgs(Struct, gc=False):
    victims: dict[str, _Victims | None] | None = msgspec.field(
        name="NodeNameToVictims", default=None
    )
    victims_lower: dict[str, _Victims | None] | None = msgspec.field(
        name="nodeNameToVictims", default=None
    )
    meta: dict[str, _MetaVictims | None] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )
    meta_lower: dict[str, _MetaVictims | None] | None = msgspec.field(
        name="nodeNameToMetaVictims", default=None
    )


class MetaPod(Struct, gc=False):
    """A victim by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(Struct, gc=False):
    """The victims on one node; the number of PodDisruptionBudgets that they violate is kept."""

    pods: list[MetaPod] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


class _BindArgs(Struct, gc=False):
    name: str = msgspec.field(name="PodName", default="")
    name_lower: str = msgspec.field(name="podName", default="")
    namespace: str = msgspec.field(name="PodNamespace", default="")
    namespace_lower: str = msgspec.field(name="podNamespace", default="")
    uid: str = msgspec.field(name="PodUID", default="")
    uid_lower: str = msgspec.field(name="podUID", default="")
    node: str = msgspec.field(name="Node", default="")
    node_lower: str = msgspec.field(name="node", default="")


class Binding(Struct, frozen=True, gc=False):
    """Which pod is to go to which node."""

    pod: str
    namespace: str
    uid: str
    node: str


_args = msgspec.json.Decoder(_Args)
_strings = msgspec.json.Decoder(list[str])
_node_list = msgspec.json.Decoder(_NodeList)
_node_names = msgspec.json.Decoder(_NodeNames)
_head = msgspec.json.Decoder(NodeHead)
_preempt = msgspec.json.Decoder(_PreemptArgs)
_bind = msgspec.json.Decoder(_BindArgs)
_encode: Final = msgspec.json.Encoder().encode


def read_args(body: Buffer) -> Asked:
    """The body of `/filter` and `/prioritize`. WireError when there are no candidates in it."""
    args = _decode(_args, body)
    pod = args.pod or args.pod_lower
    names = _given(args.names, args.names_camel, args.names_lower)
    nodes = _given(args.nodes, args.nodes_lower)
    if names is None and nodes is None:
        raise WireError(
            "neither Nodes nor NodeNames is there: one of them must name the candidates"
        )
    spec = None if pod is None else pod.spec
    metadata = None if pod is None else pod.metadata
    return Asked(
        scheduler=(spec and spec.schedulerName) or "",
        uid=(metadata and metadata.uid) or "",
        names=names,
        nodes=nodes,
    )


def read_names(raw: Buffer) -> list[str]:
    """The value of NodeNames."""
    return _decode(_strings, raw, "NodeNames")


def read_nodes(raw: Buffer) -> tuple[bytes, list[Raw]]:
    """The value of Nodes: what stands before its items when it is written again, and the items."""
    found = _decode(_node_list, raw, "Nodes")
    items = found.items if found.items is not None else found.items_upper
    kept = (
        (b'"kind":', found.kind),
        (b'"apiVersion":', found.apiVersion),
        (b'"metadata":', found.metadata),
    )
    head = b"".join(key + bytes(value) + b"," for key, value in kept if isinstance(value, Raw))
    return b"{" + head + b'"items":', items or []


def read_head(item: Buffer) -> NodeHead:
    """Name and labels of one of the items."""
    return _decode(_head, item, "Nodes.items[]")


def read_nodes_names(raw: Buffer) -> list[str]:
    """The names alone of the nodes in Nodes."""
    found = _decode(_node_names, raw, "Nodes")
    items = found.items if found.items is not None else found.items_upper
    return [node.metadata.name for node in items or ()]


def read_preemption(body: Buffer) -> dict[str, MetaVictims]:
    """The body of `/preempt`: victims by node, in the meta form, whichever was sent."""
    args = _decode(_preempt, body)
    meta = args.meta if args.meta is not None else args.meta_lower
    if meta is not None:
        return {node: _meta(victims or _MetaVictims()) for node, victims in meta.items()}
    full = args.victims if args.victims is not None else args.victims_lower
    if full is None:
        raise WireError("neither NodeNameToVictims nor NodeNameToMetaVictims is there")
    return {node: _from_pods(victims or _Victims()) for node, victims in full.items()}


def read_binding(body: Buffer) -> Binding:
    """The body of `/bind`. WireError when pod, namespace or node is missing."""
    args = _decode(_bind, body)
    binding = Binding(
        args.name or args.name_lower,
        args.namespace or args.namespace_lower,
        args.uid or args.uid_lower,
        args.node or args.node_lower,
    )
    given = {"PodName": binding.pod, "PodNamespace": binding.namespace, "Node": binding.node}
    if missing := [name for name, value in given.items() if not value]:
        raise WireError(f"{', '.join(missing)} missing")
    return binding


def filter_tail(
    *,
    names: Buffer | None,
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
    error: str = "",
) -> bytes:
    """ExtenderFilterResult after the value of Nodes; ``names`` is encoded already."""
    shown = b"null" if names is None else bytes(names)
    return b',"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":%b}' % (
        shown,
        _encode(failed),
        _encode(unresolvable),
        _encode(error),
    )


def filter_error(error: str) -> bytes:
    """ExtenderFilterResult without a result: the scheduler goes on without us where the extender
    is ignorable, and tries the pod again later where it is not.
    """
    return b'{"Nodes":null' + filter_tail(names=None, failed={}, unresolvable={}, error=error)


def names_answer(names: Sequence[str]) -> bytes:
    """A list of names as JSON."""
    return _encode(names)


def preempt_answer(victims: Mapping[str, MetaVictims]) -> bytes:
    """ExtenderPreemptionResult."""
    return b'{"NodeNameToMetaVictims":%b}' % _encode(victims)


def error_answer(error: str) -> bytes:
    """ExtenderBindingResult."""
    return b'{"Error":%b}' % _encode(error)


def refusal(message: str) -> bytes:
    """What is answered to a body that is no question."""
    return b'{"error":%b}' % _encode(message)


def host_fragments(names: Sequence[str]) -> list[bytes]:
    """For each name a HostPriority up to its score, after a comma."""
    # Nearly every name is a DNS name, as long encoded as it is: then all are written in one go.
    every = "".join(names)
    if names and len(_encode(every)) == len(every) + 2:
        text = '","Score":\0,{"Host":"'.join(names)
        return f',{{"Host":"{text}","Score":'.encode().split(b"\0")
    return [b',{"Host":%b,"Score":' % _encode(name) for name in names]


def _decode(decoder: msgspec.json.Decoder[T], body: Buffer, where: str = "") -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        raise WireError(f"{where}: {text}" if where else text) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None
    except RecursionError:
        raise WireError("not JSON that can be read: it is nested too deeply") from None


def _given(*values: Raw | UnsetType) -> Raw | None:
    """The first that is there and not null."""
    for value in values:
        if isinstance(value, Raw) and bytes(memoryview(value)[:4]) != b"null":
            return value
    return None


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
