"""The nodes as they are known, and the only way to read and patch one."""

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
    """Whether resourceVersion ``version`` was given before ``than``, within one history of etcd.
    They compare as decimal integers (KEP-5504); where they are something else, nothing can be said.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class NodeStore:
    """Nodes by name: from watch events (which may be late), from the answers to our own calls
    (which are ahead of the watch) and from lists. Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self.synced = False
        """Whether all have been listed; an outage makes nodes old, not gone."""
        self.error: str | None = None
        """Why what is known may be old; None while all is well."""
        self._nodes: dict[str, Node] = {}
        self._view: Mapping[str, Node] | None = None
        self._changes = 0
        self._changed_at: dict[str, int] = {}
        self._lock = threading.Lock()

    def nodes(self) -> Mapping[str, Node]:
        """All by name. The mapping never changes; it is the same object until something changed."""
        with self._lock:
            if self._view is None:
                self._view = MappingProxyType(dict(self._nodes))
            return self._view

    def find(self, name: str) -> Node | None:
        """One node as it is now."""
        with self._lock:
            return self._nodes.get(name)

    @property
    def changes(self) -> int:
        """How many changes there were."""
        return self._changes

    def offer(self, node: Node, *, only_known: bool = False) -> None:
        """Keep ``node`` unless a newer state of it is known. ``only_known``: for answers to our own
        calls, which must not bring a deleted node back.
        """
        with self._lock:
            known = self._nodes.get(node.name)
            if known is None and only_known:
                return
            if known and is_older(node.resource_version, known.resource_version):
                return
            self._put(node)

    def drop(self, name: str, uid: str) -> None:
        """Forget the node, if it is still the one with this uid (a namesake may have followed)."""
        with self._lock:
            known = self._nodes.get(name)
            if known is not None and known.uid == uid:
                self._drop(name)

    def correct(self, listed: Mapping[str, Node], since: int) -> None:
        """Take over a whole list. Nodes that changed after the change ``since``, when the list was
        requested, are newer than the list. For all others the list is right, whatever the versions
        are: an etcd that was restored from a backup counts from an earlier one.
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
    """The nodes, and the only way to read and patch one."""

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
        """The node as the API server has it, which is then known; None where it is gone.
        ClusterError.
        """
        known = self._store.find(name)
        node = await self._client.read(name)
        if node is not None:
            self._store.offer(node, only_known=True)
        elif known is not None:
            self._store.drop(name, known.uid)
        return node

    async def patch(self, patch: NodePatch) -> Node:
        """As `KubeClient.patch`; after a NotFoundError the node is forgotten."""
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
        """As it is listed now, and as our own calls will find it; without a watch."""
        store = NodeStore()
        store.correct(await client.list_nodes(), store.changes)
        return cls(client, store)


class DryRunCluster(NodeCluster):
    """A cluster whose patches change a copy of the nodes and are not sent: the next pass decides on
    the nodes as this one would have left them. Where somebody else changes what a patch changed,
    the copy is dropped.
    """

    def __init__(self, client: KubeClient, store: NodeStore) -> None:
        super().__init__(client, store)
        self._patches: dict[str, tuple[Node, list[NodePatch]]] = {}
        """By name: the node as it really was at the last patch, and all patches."""
        self._real: Mapping[str, Node] = {}
        self._view: Mapping[str, Node] | None = None

    def nodes(self) -> Mapping[str, Node]:
        """All by name, with the patches."""
        real = super().nodes()
        if self._view is None or real is not self._real:
            copies = ((name, self._copy_of(name, real.get(name))) for name in [*self._patches])
            changed = {name: copy for name, copy in copies if copy is not None}
            self._real, self._view = real, {**real, **changed}
        return self._view

    def _copy_of(self, name: str, node: Node | None) -> Node | None:
        """None, and its patches are dropped, where nothing is left of them."""
        before, patches = self._patches[name]
        if node is not None and _own_part(node, patches) == _own_part(before, patches):
            copy = reduce(apply_patch, patches, node)
            if _own_part(copy, patches) != _own_part(node, patches):
                return copy
        del self._patches[name]
        return None

    async def read(self, name: str) -> Node | None:
        """The copy."""
        return self.nodes().get(name)

    async def patch(self, patch: NodePatch) -> Node:
        """Change the copy. NotFoundError and ConflictError as of a real one."""
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
