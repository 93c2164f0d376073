"""The nodes as they are known: by name, from watch events (which may be late), from the answers to
our own calls (which are ahead of the watch) and from the comparison with the API server's list. The
object's resourceVersion decides which state is newer, not the order of arrival.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from dynsched.engine.model import Node, NodePatch
from dynsched.kube.client import KubeClient
from dynsched.util.errors import NotFoundError


def is_older(version: str, than: str) -> bool:
    """Whether resourceVersion ``version`` was given before ``than``, within one history of etcd.
    They compare as decimal integers (KEP-5504); where they are something else, nothing can be said.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class NodeStore:
    """Nodes by name. Every method may be called from any thread; none blocks on I/O. ``synced``:
    whether all have been listed; an outage makes nodes old, not gone.
    """

    def __init__(self) -> None:
        self.synced = False
        self._nodes: dict[str, Node] = {}
        self._view: Mapping[str, Node] | None = None
        self._undated: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> Mapping[str, Node]:
        """All by name. The mapping never changes; it is the same object until something changed."""
        with self._lock:
            if self._view is None:
                self._view = MappingProxyType(dict(self._nodes))
            return self._view

    def find(self, name: str) -> Node | None:
        """One node as it is now. `nodes` copies them all wherever one of them changed."""
        with self._lock:
            return self._nodes.get(name)

    def offer(self, node: Node, *, only_known: bool = False) -> bool:
        """Keep ``node`` unless a newer state of it is known; whether it was kept. ``only_known``:
        for answers to our own calls, which must not bring a deleted node back.
        """
        with self._lock:
            known, is_undated = self._nodes.get(node.name), node.name in self._undated
            if known is None and only_known:
                return False
            if known and not is_undated and is_older(node.resource_version, known.resource_version):
                return False
            self._undated.discard(node.name)
            if node != known:
                self._nodes[node.name] = node
                self._view = None
            return True

    def drop(self, name: str, uid: str) -> bool:
        """Forget the node, if it is still the one with this uid (a namesake may have followed)."""
        with self._lock:
            known = self._nodes.get(name)
            if known is None or known.uid != uid:
                return False
            del self._nodes[name]
            self._undated.discard(name)
            self._view = None
            return True

    def forget_versions(self) -> None:
        """Let the next state of each node in, whatever its version: an etcd restored from a backup
        counts from an earlier revision on, and every event would look late for ever.
        """
        with self._lock:
            self._undated = set(self._nodes)

    def undated(self) -> frozenset[str]:
        """The names of the nodes whose next state is let in, whatever its version."""
        with self._lock:
            return frozenset(self._undated)


class NodeCluster:
    """The nodes, and the only way to read and patch one. ``why_old``: why what is known may be old;
    None while all is well.
    """

    def __init__(
        self, client: KubeClient, store: NodeStore, why_old: Callable[[], str | None] = lambda: None
    ) -> None:
        self._client = client
        self._store = store
        self._why_old = why_old

    @property
    def synced(self) -> bool:
        """As of `NodeStore`."""
        return self._store.synced

    @property
    def error(self) -> str | None:
        """Why what is known may be old; None while all is well."""
        return self._why_old()

    def nodes(self) -> Mapping[str, Node]:
        """As `NodeStore.nodes`."""
        return self._store.nodes()

    def has(self, name: str) -> bool:
        """Whether a node of this name is known."""
        return self._store.find(name) is not None

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
    async def listed(cls, client: KubeClient) -> NodeCluster:
        """As it is listed now, and as our own calls will find it; without a watch."""
        store = NodeStore()
        for node in (await client.list_nodes()).values():
            store.offer(node)
        store.synced = True
        return cls(client, store)
