"""metrics.k8s.io, as metrics-server serves it: NodeMetrics with values that a test sets.

    server.metrics.set("worker-1", cpu="137m", memory="2Gi")

Until then the API is not there, as in a cluster without metrics-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dynsched.sim.apiserver.objects import Objects
from dynsched.sim.apiserver.resources import NODE_METRICS

_WINDOW: Final = "20.05s"


@dataclass(slots=True)
class NodeMetrics:
    objects: Objects
    served: bool = False

    def set(
        self, node: str, *, cpu: str = "0", memory: str = "0", at: datetime | None = None
    ) -> None:
        """What a node uses, measured now or ``at``; the API is there from now on."""
        moment = (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.put(node, {"timestamp": moment, "usage": {"cpu": cpu, "memory": memory}})

    def put(self, node: str, body: Mapping[str, Any]) -> None:
        """A NodeMetrics with this body, whatever it is; for what no metrics-server would say."""
        self.served = True
        whole = {"metadata": {"name": node}, "window": _WINDOW, **body}
        if self.objects.store.get(NODE_METRICS, "", node):
            self.objects.replace(NODE_METRICS, node, whole)
        else:
            self.objects.create(NODE_METRICS, whole)
