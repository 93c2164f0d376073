"""The scheduler extender's wire format, v1: requests decoded, answers encoded. Pure.

Go's structs carry no JSON tags, so keys are capitalised; lower-case ones are read as well, as Go's
decoder would. What is only passed on is never decoded: it goes back byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dynsched.api.transport.answering import Buffer

T = TypeVar("T")

_BETWEEN: Final = 16
"""Bytes around a name: quotes, comma, and the blanks of an indented document."""
_FURTHER_METADATA: Final = 1000
"""Keys `metadata` that are not a Node's own: those of the Pod and of its volumes."""


class WireError(ValueError):
    """The body is not what a scheduler sends. One line: where, and what is wrong."""


MAX_POD_BYTES: Final = 2 << 20
"""Bytes of the Pod that is asked about; the API server takes no object of more than 1.5 MiB."""
MAX_NAME_LENGTH: Final = 253
"""Characters of a node's name: those of a DNS name."""


class _Metadata(Struct, gc=False):
    uid: str = ""


class _PodSpec(Struct, gc=False):
    schedulerName: str | None = None  # noqa: N815 (Kubernetes's own spelling)


class _Pod(Struct, gc=False):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class NodeHead(Struct, gc=False):
    """Of a whole Node: its name, and whether it carries the label that was asked for."""

    name: str
    labelled: bool


class _Args(Struct, gc=False):
    """ExtenderArgs, in every spelling; each part is looked at on its own."""

    pod: Raw | UnsetType = msgspec.field(name="Pod", default=UNSET)
    pod_lower: Raw | UnsetType = msgspec.field(name="pod", default=UNSET)
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


class Asked(Struct, gc=False):
    """What `/filter` and `/prioritize` are asked: one of the two forms at least is not None.

    ``names`` and ``nodes`` are raw: see `read_names` and `read_nodes`.
    """

    scheduler: str
    uid: str
    names: Raw | None
    nodes: Raw | None


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
_pod = msgspec.json.Decoder(_Pod | None)
_bind = msgspec.json.Decoder(_BindArgs)
_encode: Final = msgspec.json.Encoder().encode


def read_args(body: Buffer) -> Asked:
    """The body of `/filter` and `/prioritize`. WireError when there are no candidates in it."""
    args = decode(_args, body)
    names = given(args.names, args.names_camel, args.names_lower)
    nodes = given(args.nodes, args.nodes_lower)
    if names is None and nodes is None:
        raise WireError(
            "neither Nodes nor NodeNames is there: one of them must name the candidates"
        )
    raw = given(args.pod, args.pod_lower)
    if raw is not None and len(memoryview(raw)) > MAX_POD_BYTES:
        raise WireError(f"Pod: longer than {MAX_POD_BYTES >> 20} MiB, which no Pod is")
    pod = None if raw is None else decode(_pod, raw, "Pod")
    spec = None if pod is None else pod.spec
    metadata = None if pod is None else pod.metadata
    return Asked(
        scheduler=(spec and spec.schedulerName) or "",
        uid=(metadata and metadata.uid) or "",
        names=names,
        nodes=nodes,
    )


def names_fit(raw: Buffer, most: int) -> None:
    """WireError where this value of NodeNames cannot be one of ``most`` names, by its length."""
    if len(memoryview(raw)) > most * (MAX_NAME_LENGTH + _BETWEEN):
        raise too_many("NodeNames", most)


def read_names(value: Buffer, most: int) -> list[str]:
    """The value of NodeNames, counted before it is taken apart: ``most`` names."""
    raw = bytes(value)
    if raw.count(b'"') > 2 * most:
        raise too_many("NodeNames", most)
    return decode(_strings, raw, "NodeNames")


def read_nodes(raw: Buffer) -> tuple[bytes, list[Raw]]:
    """The value of Nodes, once `read_heads` has found it good: what stands before its items when
    it is written again, and the items.
    """
    found = decode(_node_list, raw, "Nodes")
    items = found.items if found.items is not None else found.items_upper
    kept = (
        (b'"kind":', found.kind),
        (b'"apiVersion":', found.apiVersion),
        (b'"metadata":', found.metadata),
    )
    head = b"".join(key + bytes(value) + b"," for key, value in kept if isinstance(value, Raw))
    return b"{" + head + b'"items":', items or []


def read_heads(body: bytes | bytearray, raw: Buffer, most: int, key: str | None) -> list[NodeHead]:
    """Of each whole Node in Nodes, which is a part of ``body``, what is asked of it; ``key`` is
    that of a label. WireError where they are more than ``most``, or one is no Node.

    An item without ``metadata`` ends the reading, and those with it are counted before: a body
    that claims to have millions of them costs no more than its bytes.
    """
    if body.count(b'"metadata"') > most + _FURTHER_METADATA:
        raise too_many("Nodes", most)
    found = decode(_heads_decoder(key), raw, "Nodes")
    items = found.items if found.items is not None else found.items_upper
    if items is not None and len(items) > most:
        raise too_many("Nodes", most)
    return [_head(item.metadata, asked=key is not None) for item in items or ()]


def _head(metadata: Any, *, asked: bool) -> NodeHead:
    labels = metadata.labels if asked else None
    return NodeHead(metadata.name, not asked or (labels is not None and labels.wanted is not UNSET))


@lru_cache(maxsize=4)
def _heads_decoder(key: str | None) -> msgspec.json.Decoder[Any]:
    """For a NodeList with names, and of their labels the one that is wanted, if there is one."""
    fields: list[Any] = [("name", str)]
    if key is not None:
        wanted = ("wanted", Raw | UnsetType, msgspec.field(name=key, default=UNSET))
        labels: Any = msgspec.defstruct("Labels", [wanted], gc=False)
        fields.append(("labels", labels | None, None))
    metadata: Any = msgspec.defstruct("Metadata", fields, gc=False)
    item: Any = msgspec.defstruct("Item", [("metadata", metadata)], gc=False)
    items = list[item] | None
    upper = msgspec.field(name="Items", default=None)
    whole = msgspec.defstruct("Heads", [("items", items, None), ("items_upper", items, upper)])
    return msgspec.json.Decoder(whole)


def read_binding(body: Buffer) -> Binding:
    """The body of `/bind`. WireError when pod, namespace or node is missing."""
    args = decode(_bind, body)
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
    *, failed: Mapping[str, str], unresolvable: Mapping[str, str], error: str = ""
) -> bytes:
    """ExtenderFilterResult after the values of Nodes and NodeNames."""
    return b',"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":%b}' % (
        _encode(failed),
        _encode(unresolvable),
        _encode(error),
    )


def filter_error(error: str) -> bytes:
    """ExtenderFilterResult without a result: the scheduler goes on without us where the extender
    is ignorable, and tries the pod again later where it is not.
    """
    tail = filter_tail(failed={}, unresolvable={}, error=error)
    return b'{"Nodes":null,"NodeNames":null' + tail


def error_answer(error: str) -> bytes:
    """ExtenderBindingResult."""
    return b'{"Error":%b}' % _encode(error)


def refusal(message: str) -> bytes:
    """The answer to a body that is not a valid request."""
    return b'{"error":%b}' % _encode(message)


def decode(decoder: msgspec.json.Decoder[T], body: Buffer, where: str = "") -> T:
    """What the body says. WireError with what is wrong in it, and in which part."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        raise WireError(f"{where}: {text}" if where else text) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None
    except RecursionError:
        raise WireError("not JSON that can be read: it is nested too deeply") from None


def too_many(where: str, most: int) -> WireError:
    """The error for more candidates than ``most``."""
    return WireError(f"{where}: more than {most}, which is more than the cluster can have")


def given(*values: Raw | UnsetType) -> Raw | None:
    """The first that is there and not null."""
    for value in values:
        if isinstance(value, Raw) and bytes(memoryview(value)[:4]) != b"null":
            return value
    return None
