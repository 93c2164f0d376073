"""The players, which place pods: the default scheduler, dynsched, an oracle, and a naive one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from closedloop.descheduler import EVERY, Running, evictions
from closedloop.operator import Operator, SimulatedCluster
from closedloop.scheduler import Scheduler
from closedloop.workload import Pod
from closedloop.world import World


def profile(world: World) -> dict[str, bool]:
    """The options of the kube-scheduler model that the scenario sets."""
    return {"packs": world.scenario.packs, "spread": world.scenario.spreads}


class Default:
    """kube-scheduler alone."""

    writes = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler = Scheduler(world.ledger, world.seed, **profile(world))
        self.descheduler: Callable[[Mapping[str, Running]], list[Running]] | None = None
        """Returns the pods to evict, called every tick; None: no descheduler."""

    def choose(self, pod: Pod) -> int | None:
        """See `world.Player`."""
        return self.scheduler.choose(pod)

    async def tick(self) -> None:
        """Ignores the load."""

    def bound(self, pod: Pod, node: int) -> None:
        """Does not track pods."""

    def gone(self, pod: Pod, node: int) -> None:
        """Does not track pods."""

    async def reevaluate(self) -> None:
        """Does not track pods."""

    def joined(self, node: int) -> None:
        """Does nothing: the ledger has the node already."""

    def cordoned(self, node: int) -> None:
        """Does nothing: the ledger has the change already."""

    def evicts(self, running: Mapping[str, Running]) -> list[Running]:
        """The evictions of the descheduler, if there is one."""
        return [] if self.descheduler is None else self.descheduler(running)


class Oracle(Default):
    """Always sees the true load, and places each pod on the least loaded node."""

    def choose(self, pod: Pod) -> int | None:
        """The node with the least true load."""
        found = self.world.ledger.fits(pod)
        if not len(found):
            return None
        load = self.world.demand[found] / self.world.capacity[found]
        return int(found[load.argmin()])


class Naive(Default):
    """Places each pod on the node with the least measured load, and tracks no pods."""

    def choose(self, pod: Pod) -> int | None:
        """The node with the least measured load."""
        found = self.world.ledger.fits(pod)
        if not len(found):
            return None
        values = np.nan_to_num(self.world.measured()[found], nan=100.0)
        return int(found[values.argmin()])


class Dynsched(Default):
    """dynsched together with kube-scheduler: marks (taint, or label and affinity), the order, the
    extender, or several of these.

    ``by_requests`` False: the profile of the second scheduler. ``watches_pods`` False: no
    permission to watch pods. ``kubelets``: Prometheus scrapes the kubelets. ``knows_each``: the use
    of each pod is known. ``descheduler``: it runs too, with the policy of
    manifests/components/descheduler.
    """

    def __init__(
        self,
        world: World,
        content: Mapping[str, Any],
        *,
        marks: bool = True,
        affinity: bool = False,
        extender: bool = False,
        order: bool = False,
        by_requests: bool = True,
        watches_pods: bool = True,
        kubelets: bool = True,
        knows_each: bool = False,
        descheduler: bool = False,
    ) -> None:
        super().__init__(world)
        self._cluster = SimulatedCluster(world)
        self.operator = Operator(
            _with_range(content, world.scenario.window),
            self._cluster,
            world,
            marks=marks,
            watches_pods=watches_pods,
            kubelets=kubelets,
            knows_each=knows_each,
            scrape=world.scenario.scrape,
        )
        self._watches_pods = watches_pods
        if descheduler:
            self.descheduler = self._by_verdicts
        self.scheduler = Scheduler(
            world.ledger,
            world.seed,
            affinity=affinity,
            asked=self.operator.scores if extender else self.operator.preferred if order else None,
            by_requests=by_requests,
            **profile(world),
        )

    @property
    def writes(self) -> int:  # type: ignore[override]
        """See `world.Player`."""
        return self._cluster.writes

    async def tick(self) -> None:
        """One tick with what Prometheus answers now."""
        await self.operator.tick(self.world.measured())

    async def reevaluate(self) -> None:
        """Evaluate again with the pods that were bound or ended since."""
        await self.operator.reevaluate()

    def bound(self, pod: Pod, node: int) -> None:
        """Event of the pod watch."""
        if self._watches_pods:
            self.operator.bound(pod, self.world.names[node])

    def gone(self, pod: Pod, node: int) -> None:
        """Event of the pod watch."""
        if self._watches_pods:
            self.operator.deleted(pod, self.world.names[node])

    def joined(self, node: int) -> None:
        """Event of the node watch."""
        self._cluster.add(node)

    def cordoned(self, node: int) -> None:
        """Event of the node watch."""
        self._cluster.show_cordon(node)

    def _by_verdicts(self, running: Mapping[str, Running]) -> list[Running]:
        """The evictions of the shipped policy, based on the verdicts of the last tick."""
        now = self.world.clock()
        return [] if now % EVERY else evictions(self.operator.verdicts(), running, now)


def _with_range(content: Mapping[str, Any], window: float) -> Mapping[str, Any]:
    """The rules with the range of the scenario's metric, from which dynsched derives the lag."""
    expr = f"rate(cpu[{window:.0f}s])" if window else "memory"
    return {**content, "rules": [{**rule, "expr": expr} for rule in content["rules"]]}
