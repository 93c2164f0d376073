"""The two forms of ``loop.Cluster``: watched, for a process that stays; listed once, for one pass.

A node that we patched or read is known in its new state at once, before the watch reports it;
the watch's older events do not undo that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynsched.core.errors import NotFoundError
from dynsched.core.model import Node, NodePatch
from dynsched.kube.client import KubeClient
from dynsched.kube.store import NodeStore
from dynsched.kube.watch import NodeWatch


class _StoredCluster:
    """Reads and writes that go to the API server and into a store."""

    def __init__(self, client: KubeClient, store: NodeStore) -> None:
        self._client = client
        self._store = store

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; the mapping does not change after it was handed out."""
        return self._store.nodes()

    async def read(self, name: str) -> Node | None:
        """The node as the API server has it now; None when it is gone. Raises ClusterError."""
        known = self._store.nodes().get(name)
        node = await self._client.read(name)
        if node is not None:
            self._store.offer(node, only_known=True)
        elif known is not None:
            self._store.drop(name, known.uid)
        return node

    async def patch(self, patch: NodePatch) -> Node:
        """Send one merge patch; the node as stored.

        Raises ConflictError, NotFoundError (the node is forgotten), ForbiddenError, ClusterError.
        """
        known = self._store.nodes().get(patch.node)
        try:
            node = await self._client.patch(patch)
        except NotFoundError:
            if known is not None:
                self._store.drop(patch.node, known.uid)
            raise
        self._store.offer(node, only_known=True)
        return node


class NodeCluster(_StoredCluster):
    """The cluster as ``watch`` sees it; ``watch.run`` runs beside it."""

    def __init__(self, client: KubeClient, watch: NodeWatch) -> None:
        super().__init__(client, watch.store)
        self._watch = watch

    @property
    def synced(self) -> bool:
        """Whether the first list of nodes is complete."""
        return self._watch.synced

    @property
    def error(self) -> str | None:
        """Why what is known of the nodes may be old; None while all is well."""
        return self._watch.error


class ListedCluster(_StoredCluster):
    """The cluster as it was when it was listed, and as our own calls have found it since."""

    def __init__(self, client: KubeClient, nodes: Iterable[Node]) -> None:
        store = NodeStore()
        for node in nodes:
            store.offer(node)
        super().__init__(client, store)

    @classmethod
    async def load(cls, client: KubeClient) -> ListedCluster:
        """List all nodes, once. Raises ClusterError."""
        return cls(client, (await client.list_nodes()).values())

    @property
    def synced(self) -> bool:
        """True: there is nothing to wait for."""
        return True

    @property
    def error(self) -> str | None:
        """None: one pass is over before its list is old."""
        return None
