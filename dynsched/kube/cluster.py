"""The known nodes, and the only way to read and patch a node."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Self

from dynsched.core.marks import NodePatch, apply_patch
from dynsched.core.nodes import Node
from dynsched.kube.client import KubeClient
from dynsched.rules.labels import own_taints
from dynsched.util.errors import ConflictError, NotFoundError


def is_older(version: str, than: str) -> bool:
    """Whether resourceVersion ``version`` is older than ``than``, within one history of etcd. They
    compare as decimal integers (KEP-5504); False if one of them is something else.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class NodeStore:
    """Nodes by name: from watch events (which may be late), from the responses to our own calls
    (which are ahead of the watch) and from lists. All methods are thread-safe.
    """

    def __init__(self) -> None:
        self.synced = False
        """Whether all nodes have been listed. In an outage nodes are old, not gone."""
        self.error: str | None = None
        """Why the known nodes may be outdated; None if they are not."""
        self._nodes: dict[str, Node] = {}
        self._view: Mapping[str, Node] | None = None
        self._changes = 0
        self._changed_at: dict[str, int] = {}
        self._lock = threading.Lock()

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name. The mapping is immutable, and the same object until a node changes."""
        with self._lock:
            if self._view is None:
                self._view = MappingProxyType(dict(self._nodes))
            return self._view

    def find(self, name: str) -> Node | None:
        with self._lock:
            return self._nodes.get(name)

    @property
    def changes(self) -> int:
        """The number of changes so far."""
        return self._changes

    def offer(self, node: Node, *, only_known: bool = False) -> None:
        """Store ``node`` unless a newer state of it is known. ``only_known``: for responses to our
        own calls, which must not bring back a deleted node.
        """
        with self._lock:
            known = self._nodes.get(node.name)
            if known is None and only_known:
                return
            if known and is_older(node.resource_version, known.resource_version):
                return
            self._put(node)

    def drop(self, name: str, uid: str) -> None:
        """Remove the node if it still has this uid; a new one may have taken its name."""
        with self._lock:
            known = self._nodes.get(name)
            if known is not None and known.uid == uid:
                self._drop(name)

    def correct(self, listed: Mapping[str, Node], since: int) -> None:
        """Replace the nodes with a complete list. ``since`` is the value of `changes` when the list
        was requested: nodes that changed later are newer than the list and are kept. For all
        others the list is right, whatever the versions: a restored etcd continues from an earlier
        one.
        """
        with self._lock:
            for name in [*self._nodes.keys() - listed.keys()]:
                if self._changed_at[name] <= since:
                    self._drop(name)
            for name, node in listed.items():
                if self._changed_at.get(name, 0) <= since:
                    self._put(node)
            self._changed_at = {name: self._changed_at[name] for name in self._nodes}
            self.synced = True

    def _put(self, node: Node) -> None:
        self._changes += 1
        self._changed_at[node.name] = self._changes
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._view = None

    def _drop(self, name: str) -> None:
        self._changes += 1
        self._changed_at[name] = self._changes
        del self._nodes[name]
        self._view = None


class NodeCluster:
    """A store of nodes, and the client that reads and patches them."""

    def __init__(self, client: KubeClient, store: NodeStore) -> None:
        self._client = client
        self._store = store

    @property
    def synced(self) -> bool:
        """As `NodeStore.synced`."""
        return self._store.synced

    @property
    def error(self) -> str | None:
        """As `NodeStore.error`."""
        return self._store.error

    def nodes(self) -> Mapping[str, Node]:
        """As `NodeStore.nodes`."""
        return self._store.nodes()

    async def read(self, name: str) -> Node | None:
        """Read the node from the API server into the store; None if it is gone. ClusterError."""
        known = self._store.find(name)
        node = await self._client.read(name)
        if node is not None:
            self._store.offer(node, only_known=True)
        elif known is not None:
            self._store.drop(name, known.uid)
        return node

    async def patch(self, patch: NodePatch) -> Node:
        """Like `KubeClient.patch`, and updates the store. NotFoundError also removes the node."""
        known = self._store.find(patch.node)
        try:
            node = await self._client.patch(patch)
        except NotFoundError:
            if known is not None:
                self._store.drop(patch.node, known.uid)
            raise
        self._store.offer(node, only_known=True)
        return node

    @classmethod
    async def listed(cls, client: KubeClient) -> Self:
        """A cluster from one list, without a watch: only our own calls update it."""
        store = NodeStore()
        store.correct(await client.list_nodes(), store.changes)
        return cls(client, store)


class DryRunCluster(NodeCluster):
    """A cluster whose patches are not sent but change copies of the nodes, so that the next pass
    sees the nodes as this one would have left them. If anyone else changes what a patch changed,
    the copy is dropped.
    """

    def __init__(self, client: KubeClient, store: NodeStore) -> None:
        super().__init__(client, store)
        self._patches: dict[str, tuple[Node, list[NodePatch]]] = {}
        """By name: the real node at the last patch, and all patches."""
        self._real: Mapping[str, Node] = {}
        self._view: Mapping[str, Node] | None = None

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, with the patches applied."""
        real = super().nodes()
        if self._view is None or real is not self._real:
            copies = ((name, self._copy_of(name, real.get(name))) for name in [*self._patches])
            changed = {name: copy for name, copy in copies if copy is not None}
            self._real, self._view = real, {**real, **changed}
        return self._view

    def _copy_of(self, name: str, node: Node | None) -> Node | None:
        """The patched node, or None if its patches are obsolete; they are then dropped."""
        before, patches = self._patches[name]
        if node is not None and _own_part(node, patches) == _own_part(before, patches):
            copy = reduce(apply_patch, patches, node)
            if _own_part(copy, patches) != _own_part(node, patches):
                return copy
        del self._patches[name]
        return None

    async def read(self, name: str) -> Node | None:
        """The node with the patches applied."""
        return self.nodes().get(name)

    async def patch(self, patch: NodePatch) -> Node:
        """Patch the copy. NotFoundError and ConflictError as for a real patch."""
        node = super().nodes().get(patch.node)
        if node is None:
            raise NotFoundError(f"node {patch.node} is gone")
        if node.resource_version != patch.version:
            raise ConflictError(f"node {patch.node} changed")
        _, patches = self._patches.get(patch.node, (node, []))
        self._patches[patch.node] = node, [*patches, patch]
        self._view = None
        return reduce(apply_patch, [*patches, patch], node)


def _own_part(node: Node, patches: Iterable[NodePatch]) -> tuple[object, ...]:
    keys = {key for patch in patches for key in patch.body["metadata"].get("labels", {})}
    labels = {key: node.labels.get(key) for key in keys}
    return node.uid, labels, node.annotations, own_taints(node.taints)
