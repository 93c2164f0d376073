"""An extender over a few nodes, and the requests of a scheduler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from scenes import NOON, Scene

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.recent import RecentPods
from dynsched.core.nodes import Node
from dynsched.features.extender.answers import Bind, Extender
from dynsched.features.extender.scoring import Scoring

RULES: Mapping[str, Any] = {
    "rules": [
        {"name": "node-cpu", "expr": "cpu", "threshold": 80},
        {"name": "node-mem-usage", "expr": "mem", "threshold": 85},
    ],
    "extender": {
        "reject": ["node-mem-usage"],
        "profiles": {
            "default": {"score": {"node-cpu": 1}},
            "mem-real-usage-scheduler": {"score": {"node-mem-usage": 1}, "method": "relative"},
        },
    },
}
CPU = {"a": 10.0, "b": 40.0, "c": 95.0, "d": 20.0}
MEMORY = {"a": 20.0, "b": 30.0, "c": 40.0, "d": 91.2}
ROOM = {"cpu": 8.0, "memory": 32 * 2.0**30}
NAMES = ["a", "b", "c", "d"]


class World:
    """Nodes a to d: c is hot by CPU, d by memory. ``now`` is the extender's clock."""

    def __init__(
        self, rules: Mapping[str, Any] = RULES, *, bind: Bind | None = None, watched: bool = True
    ) -> None:
        self.nodes = {
            name: Node(name, labels={"filter.xy.com": ""} if name in "ab" else {}, allocatable=ROOM)
            for name in NAMES
        }
        self.scene = Scene(rules, self.nodes.values())
        self.now = 1000.0
        self.synced = True
        self.bound = RecentPods()
        self.extender = Extender(
            nodes=lambda: self.nodes,
            synced=lambda: self.synced,
            rules=lambda: self.scene.rule_set.extender,
            clock=lambda: self.now,
            bound=self.bound,
            watches_pods=lambda: watched,
            bind_pod=bind,
        )

    def tick(
        self, at: float = NOON, cpu: Any = CPU, memory: Any = MEMORY, running: int | None = None
    ) -> World:
        self.bound.follow(self.nodes)
        recent = self.bound.pods(self.now)
        pods = KnownPods(recent=recent, running=running, sequence=self.bound.sequence)
        tick = self.scene.tick(at, pods=pods, node_cpu=cpu, node_mem_usage=memory)
        self.extender.use(Scoring(tick.evaluation, pods, at))
        return self

    def asked(self) -> Extender:
        """The extender, as the callback that an application takes."""
        return self.extender

    def counted(self) -> dict[str, int]:
        """Number of recently bound pods that count per node, including assumed ones."""
        recent = self.bound.pods(self.now)
        return dict(Counter(pod.node for pod, _, ended in recent if ended is None))

    def filter(self, body: Any) -> Any:
        return json.loads(self.extender.filter(raw(body)))

    def scores(self, body: Any) -> dict[str, int]:
        found = json.loads(self.extender.prioritize(raw(body)))
        assert all(set(entry) == {"Host", "Score"} for entry in found)
        return {entry["Host"]: entry["Score"] for entry in found}

    def preempt(self, body: Any) -> Any:
        return json.loads(self.extender.preempt(raw(body)))["NodeNameToMetaVictims"]


def raw(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def ask(names: list[str] | None = None, scheduler: str = "default-scheduler") -> dict[str, Any]:
    """A request with NodeNames, as with ``nodeCacheCapable: true``."""
    pod = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"schedulerName": scheduler}}
    return {"Pod": pod, "Nodes": None, "NodeNames": NAMES if names is None else names}


def whole(name: str, **labels: str) -> dict[str, Any]:
    """A whole Node, including fields that dynsched does not know."""
    return {
        "metadata": {"name": name, "labels": labels, "x-unknown": [1, {"a": None}]},
        "status": {"futureField": 1.50, "images": [{"names": ["é\u2028"]}]},
    }


def ask_whole(*nodes: Any) -> dict[str, Any]:
    """A request with whole Nodes, as with ``nodeCacheCapable: false``."""
    return {"Pod": {}, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}
