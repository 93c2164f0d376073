"""Nodes: how samples are matched to them by name or address, and which ones may be marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Any, Final, NamedTuple

from dynsched.core.wording import Reason, some
from dynsched.rules import keys
from dynsched.rules.sections import GuardRules, NodeRules

_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_KUBERNETES_PREFIX: Final = "node.kubernetes.io/"
_CLOSING: Final = frozenset(
    {
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",  # its effect is PreferNoSchedule
        "ebs.csi.aws.com/agent-not-ready",
        "node.cilium.io/agent-not-ready",
    }
)
"""Taints of nodes that an autoscaler is about to remove, or whose agents are not ready for pods."""
_MAX_NAMED: Final = 3
"""Maximum number of nodes that a message lists if they share an address."""


def canonical(text: str) -> str:
    """Normalise a node name or address.

    An IPv6 address is compressed and in lower case (RFC 5952), without its zone. An IPv4-mapped one
    becomes the IPv4 address. Everything else is a name: lower case, no trailing dot.
    """
    if ":" in text:
        try:
            address = IPv6Address(text.partition("%")[0])
        except AddressValueError:
            return text.lower()
        return str(address.ipv4_mapped or address)
    lowered = text.lower().removesuffix(".")
    return text if lowered == text else lowered  # reuse the object: one is kept per node


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a Kubernetes Node that dynsched keeps (the whole object is 9 KB and more)."""

    name: str
    uid: str = ""
    """Changes if the node is deleted and created again under the same name."""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Only the annotations under ``dynsched.io/``."""
    taints: tuple[Mapping[str, Any], ...] = ()
    """Unparsed: ``spec.taints`` is an atomic list, so a write must send the taints of others back
    unchanged."""
    addresses: tuple[tuple[str, str], ...] = ()
    """Pairs ``(type, address)``."""
    allocatable: Mapping[str, float] = field(default_factory=dict)
    """``cpu`` in cores, ``memory`` in bytes."""
    created: float = 0.0
    """In whole Unix seconds on the API server's clock; 0 if unknown."""
    known_as: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The name, then the addresses, each in `canonical` form."""

    def __post_init__(self) -> None:
        texts = (self.name, *(address for _type, address in self.addresses))
        object.__setattr__(self, "known_as", tuple(dict.fromkeys(map(canonical, texts))))


def why_ineligible(node: Node, rules: NodeRules) -> str | None:
    """The first reason why the node must not be marked, in one line, or None if it may be."""
    if node.labels.get(keys.IGNORE_LABEL) == "true":
        return Reason("ignored", f"{keys.IGNORE_LABEL}=true")
    for label, value in keys.VIRTUAL_LABELS:
        if node.labels.get(label) == value:
            return Reason("virtual", f"{label}={value}")
    if not rules.include_control_plane:
        for label in keys.CONTROL_PLANE_LABELS:
            if label in node.labels:
                return Reason("control_plane", label)
    unmet = rules.selector.unmet(node.labels)
    return None if unmet is None else Reason("not_selected", str(unmet))


def pool_of(node: Node, guard: GuardRules) -> str:
    """The node's value of ``guard.pool_label``; "" if the key or the label is not set."""
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""


Taint = tuple[str, str, str]
"""Key, value and effect."""


def hard_taints(node: Node) -> frozenset[Taint]:
    """The NoSchedule and NoExecute taints, which keep out pods that do not tolerate them."""
    taints = [taint for taint in node.taints if taint.get("effect") in _HARD_EFFECTS]
    return frozenset((str(t.get("key")), str(t.get("value")), str(t["effect"])) for t in taints)


def is_ready(node: Node) -> bool:
    """Whether the node is ready. The node controller taints it unless the kubelet reports so."""
    return all(key not in _NOT_READY for key, _, _ in hard_taints(node))


def is_closed(node: Node) -> bool:
    """Whether new pods should avoid the node.

    It is cordoned, not ready, under pressure according to the kubelet, about to be removed, or its
    agents are not ready. The effects of the taints are ignored.
    """
    names = (str(taint.get("key")) for taint in node.taints)
    return any(name in _CLOSING or name.startswith(_KUBERNETES_PREFIX) for name in names)


class NodeGroup(NamedTuple):
    """Nodes with the same pool and the same hard taints, so they accept the same pods."""

    pool: str
    taints: frozenset[Taint]


def group_of(node: Node, guard: GuardRules) -> NodeGroup:
    return NodeGroup(pool_of(node, guard), hard_taints(node))


def spellings(text: str) -> Iterable[str]:
    """Spellings to look up for a label value, in order: the whole text, the text without port and
    brackets, and the canonical form of that.
    """
    yield text
    host, colon, port = text.rpartition(":")
    # The last group of a bare IPv6 address is not a port, even if it is all digits.
    has_port = colon and port.isdigit() and (":" not in host or host.startswith("["))
    bare = (host if has_port else text).removeprefix("[").removesuffix("]")
    yield bare
    yield canonical(bare)


class Found(NamedTuple):
    """The name of a node, or None and the reason why no node was found."""

    node: str | None
    reason: str = ""


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class AddressLookup:
    """Finds the node for a label value, by name or by any address. Names take precedence.

    If nodes share an address and only one of them is ready, the address belongs to that one: a
    machine that registers under a new name leaves its old Node behind, not ready. The same applies
    if the old Node is named after the IP address.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        nodes = tuple(nodes)
        self._nodes: dict[str, str] = {}
        self._shared: dict[str, list[str]] = {}
        self._found: dict[str, Found] = {}
        for node in nodes:
            for address in node.known_as[1:]:
                other = self._nodes.setdefault(address, node.name)
                if other != node.name:
                    self._shared.setdefault(address, [other]).append(node.name)
        ready = {node.name for node in nodes if is_ready(node)}
        for node in nodes:
            name = node.known_as[0]
            others = self._shared.pop(name, [self._nodes.get(name, "")])
            heirs = [other for other in others if other in ready]
            is_left_behind = node.name not in ready and len(heirs) == 1 and _is_ip(name)
            self._nodes[name] = heirs[0] if is_left_behind else node.name
        self._prefer_ready(ready)

    def _prefer_ready(self, ready: Collection[str]) -> None:
        for address, names in list(self._shared.items()):
            if len(found := [name for name in names if name in ready]) == 1:
                self._nodes[address] = found[0]
                del self._shared[address]

    def find(self, text: str) -> Found:
        """The node for a label value. Results are cached: each tick looks up the same values."""
        found = self._found.get(text)
        if found is None:
            if len(self._found) > 4 * len(self._nodes) + 1000:  # series come and go
                self._found.clear()
            found = self._found[text] = self._find(text)
        return found

    def _find(self, text: str) -> Found:
        for spelling in spellings(text):
            if spelling in self._shared:
                names = some(sorted(self._shared[spelling]), _MAX_NAMED)
                return Found(None, f"more than one node has the address {spelling}: {names}")
            if spelling in self._nodes:
                return Found(self._nodes[spelling])
        return Found(None, "no node has this name or address")
