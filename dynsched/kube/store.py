"""The projections of all nodes, kept by name; fed by the watch, by our own writes and reads.

Three writers race here: watch events (which may be late), the answers to our own patches (which
are ahead of the watch) and the periodic comparison with the API server's list. The order between
them is the object's resourceVersion, not the order of arrival.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType

from dynsched.core.model import Node
from dynsched.kube.versions import is_older


class NodeStore:
    """Nodes by name. Every method may be called from any thread; none blocks on I/O."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._view: Mapping[str, Node] | None = None
        self._undated: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, as they are now. The mapping handed out never changes; a next call
        gives the same object until something changed, so that a quiet cluster costs nothing.
        """
        with self._lock:
            if self._view is None:
                self._view = MappingProxyType(dict(self._nodes))
            return self._view

    def offer(self, node: Node, *, only_known: bool = False) -> bool:
        """Keep ``node`` unless a newer state of it is known; whether it was kept.

        ``only_known``: for answers to our own calls. They may arrive after the watch has reported
        the node's deletion, and must not bring it back.
        """
        with self._lock:
            known = self._nodes.get(node.name)
            if known is None and only_known:
                return False
            if (
                known is not None
                and node.name not in self._undated
                and is_older(node.resource_version, known.resource_version)
            ):
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
        """Let the next state of each node in, whatever its version.

        For a new watch after a failed one: an etcd restored from a backup counts from an earlier
        revision on, and every event would look late for ever.
        """
        with self._lock:
            self._undated = set(self._nodes)

    def undated(self) -> frozenset[str]:
        """The nodes of which no state came in since their versions were forgotten."""
        with self._lock:
            return frozenset(self._undated)
