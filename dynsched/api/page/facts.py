"""What the page shows in addition to the last Snapshot: placements, answers of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dynsched.api.order_status import place_of
from dynsched.api.why import what_clears
from dynsched.engine.load.recent import BoundOnNode
from dynsched.engine.loads import full_at
from dynsched.engine.placing.placements import PlacedOn, Placements, hottest
from dynsched.engine.pod_values import AboveRequest
from dynsched.engine.snapshot import Snapshot
from dynsched.engine.wording import Reason

LOOKED_AT: Final = 600.0
"""Seconds after a request for which Prometheus is asked for what the page shows."""
MAX_WANTED: Final = 8


@dataclass(slots=True)
class PageFacts:
    """``clock`` gives seconds and is never set. ``requested``: by resource and node, in percent of
    allocatable. ``above``: by node, the pods furthest above their requests; None while unknown.
    ``bound``: the pods that were just bound to a node; None where pods are not watched. ``pasts``:
    by node and hours, from Prometheus; ``wanted``: those that a page waits for.
    """

    clock: Callable[[], float]
    bound: Callable[[str], BoundOnNode | None] = lambda _: None
    requested: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    above: Mapping[str, Sequence[AboveRequest]] | None = None
    pasts: Mapping[tuple[str, int], tuple[float, Any]] = field(default_factory=dict)
    wanted: set[tuple[str, int]] = field(default_factory=set)
    _looked_at: float | None = field(default=None, init=False)
    placements: Placements | None = field(default=None, init=False)
    _snapshot: Snapshot | None = field(default=None, init=False)

    def look(self) -> None:
        self._looked_at = self.clock()

    @property
    def is_looked_at(self) -> bool:
        return self._looked_at is not None and self.clock() - self._looked_at < LOOKED_AT

    def observe(self, snapshot: Snapshot, placed: Sequence[str] | None) -> Counter[PlacedOn] | None:
        """How many pods were ``placed`` by kind: the node of each that was bound since the Snapshot
        before; None where pods are not watched.
        """
        before, self._snapshot = self._snapshot, snapshot
        if placed is None:
            return None
        self.placements = self.placements or Placements()
        seen = (before or snapshot).nodes
        if before is None:
            placed = ()  # what their nodes were is not known: that is not clean
        return self.placements.count(placed, seen.hot, seen.marked, snapshot.taken_at, len(seen))

    def hottest(self, most: int) -> list[str]:
        return [] if self._snapshot is None else hottest(self._snapshot, most)

    def of_node(self, node: str, hours: int = 0) -> dict[str, Any]:
        """None for what is not known; with ``hours`` the past as Prometheus has it."""
        until, past = self.pasts.get((node, hours), (0.0, None))
        snapshot = self._snapshot
        known = snapshot if snapshot is not None and node in snapshot.nodes else None
        if hours and known and known.taken_at > until and len(self.wanted) < MAX_WANTED:
            self.wanted.add((node, hours))
        return {
            "bound": self.bound(node),
            "above": (self.above or {}).get(node),
            "past": past,
            "clears": [] if known is None else _clears(known, node),
            "machine": known and _machine(known, node),
            "requested": {} if known is None else self._requested(known, node),
        }

    def _requested(self, snapshot: Snapshot, node: str) -> dict[str, float]:
        """What pods request, by rule and in its unit, as far as it is known."""
        return {
            rule.name: of_nodes[node] * full_at(rule) / 100
            for rule in snapshot.rule_set.rules
            if rule.rises and node in (of_nodes := self.requested.get(rule.resource or "", {}))
        }


def _clears(snapshot: Snapshot, name: str) -> list[Reason]:
    alerts = snapshot.nodes[name].verdict.alerts
    return what_clears(snapshot.rule_set, alerts, snapshot.taken_at)


def _machine(snapshot: Snapshot, name: str) -> dict[str, Any]:
    node = snapshot.nodes.inventory.nodes[name]
    return {
        "zone": node.labels.get("topology.kubernetes.io/zone"),
        "type": node.labels.get("node.kubernetes.io/instance-type"),
        "cpu": node.allocatable.get("cpu"),
        "memory": node.allocatable.get("memory"),
        "order": snapshot.order and place_of(snapshot, snapshot.order, name),
    }
