"""What the page shows of a node in addition to its rules: pods, answers of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dynsched.core.load.pods import AboveRequest
from dynsched.core.load.recent import BoundOnNode
from dynsched.core.percent import full_at
from dynsched.core.tick import Tick
from dynsched.features.order.ranks import Order
from dynsched.features.order.status import place_of
from dynsched.rules.rule_set import RuleSet
from dynsched.web.placements import hottest
from dynsched.web.why import what_clears

LOOKED_AT: Final = 600.0
"""Seconds after a request for the page during which Prometheus is still queried for it."""


@dataclass(slots=True)
class PageFacts:
    """``clock`` gives seconds and is never set. ``requested``: by resource and node, in percent of
    allocatable. ``above``: by node, the pods furthest above their requests; None while unknown.
    ``bound``: the pods that were just bound to a node; None where pods are not watched.
    """

    clock: Callable[[], float]
    bound: Callable[[str], BoundOnNode | None] = lambda _: None
    requested: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    above: Mapping[str, Sequence[AboveRequest]] | None = None
    tick: Tick | None = None
    """The last one."""
    _looked_at: float | None = field(default=None, init=False)

    def look(self) -> None:
        """Somebody has the page open."""
        self._looked_at = self.clock()

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody had the page open a moment ago."""
        return self._looked_at is not None and self.clock() - self._looked_at < LOOKED_AT

    def hottest(self, most: int) -> list[str]:
        """The names of at most ``most`` nodes, the worst first."""
        return [] if self.tick is None else hottest(self.tick.evaluation, most)

    def of_node(self, node: str, order: Order | None) -> dict[str, Any]:
        """None for what is not known."""
        about: dict[str, Any] = {
            "bound": self.bound(node),
            "above": (self.above or {}).get(node),
            "clears": [],
            "machine": None,
            "requested": {},
        }
        tick = self.tick
        if tick is None or node not in tick.evaluation.table.entries:
            return about
        alerts = tick.evaluation.pressures[node].alerts
        return {
            **about,
            "clears": what_clears(tick.rule_set, alerts, tick.taken_at),
            "machine": _machine(tick, order, node),
            "requested": self._requested(tick.rule_set, node),
        }

    def _requested(self, rule_set: RuleSet, node: str) -> dict[str, float]:
        """What pods request, by rule and in its unit, as far as it is known."""
        return {
            rule.name: of_nodes[node] * full_at(rule) / 100
            for rule in rule_set.rules
            if rule.higher_is_worse
            and node in (of_nodes := self.requested.get(rule.resource or "", {}))
        }


def _machine(tick: Tick, order: Order | None, name: str) -> dict[str, Any]:
    node = tick.evaluation.table.entries[name].node
    return {
        "zone": node.labels.get("topology.kubernetes.io/zone"),
        "type": node.labels.get("node.kubernetes.io/instance-type"),
        "cpu": node.allocatable.get("cpu"),
        "memory": node.allocatable.get("memory"),
        "order": order and place_of(tick, order, name),
    }
