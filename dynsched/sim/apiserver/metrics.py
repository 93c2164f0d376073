"""metrics.k8s.io, as metrics-server serves it: NodeMetrics with values that a test sets.

    server.metrics.set("worker-1", cpu="137m", memory="2Gi")

Until then the API is not there, as in a cluster without metrics-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from dynsched.sim.apiserver import refusals
from dynsched.sim.apiserver.resources import NODE_METRICS

ROOT: Final = f"{NODE_METRICS.root}/{NODE_METRICS.plural}"
_WINDOW: Final = "20.05s"


@dataclass(slots=True)
class NodeMetrics:
    """The NodeMetrics of one server. ``served``: whether the API is there."""

    served: bool = False
    _items: dict[str, dict[str, Any]] = field(default_factory=dict)

    def set(
        self, node: str, *, cpu: str = "0", memory: str = "0", at: datetime | None = None
    ) -> None:
        """What a node uses, measured now or ``at``; the API is there from now on."""
        moment = (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.put(node, {"timestamp": moment, "usage": {"cpu": cpu, "memory": memory}})

    def put(self, node: str, body: Mapping[str, Any]) -> None:
        """A NodeMetrics with this body, whatever it is; for what no metrics-server would say."""
        self.served = True
        self._items[node] = {"metadata": {"name": node}, "window": _WINDOW, **body}

    def answer(self, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """The object at ``path``; None when it is none of this API. ApiError 404."""
        head = {"kind": NODE_METRICS.kind, "apiVersion": NODE_METRICS.api_version}
        path = path.rstrip("/")
        if not self.served or not (path == ROOT or path.startswith(f"{ROOT}/")):
            return None
        if path == ROOT:
            items, metadata = self._page(query)
            return {**head, "kind": f"{head['kind']}List", "metadata": metadata, "items": items}
        name = path.removeprefix(f"{ROOT}/")
        if name not in self._items:
            raise refusals.not_found(NODE_METRICS, name)
        return {**head, **self._items[name]}

    def _page(self, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The real one gives all at once, but a client must take pages too: other servers of this
        API give them.
        """
        names = sorted(name for name in self._items if name >= query.get("continue", ""))
        limit = int(query.get("limit") or 0) or len(names)
        onward = {"continue": names[limit]} if len(names) > limit else {}
        return [self._items[name] for name in names[:limit]], onward
