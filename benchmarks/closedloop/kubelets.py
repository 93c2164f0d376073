"""What Prometheus tells of pods by the kubelets' metrics, as `dynsched.sources.pod_use` asks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from closedloop.workload import Pod
from closedloop.world import World
from dynsched.sources import pod_use

HOUSEKEEPING = 5.0
"""Seconds. A kubelet measures its containers every 10 s, and a scrape gives what it last measured:
on average that is half as old.
"""
Running = Mapping[str, tuple[Pod, int, float]]
"""By uid: the pod, the place of its node, and when it was bound."""


class PodUses:
    """By uid and by workload, in cores: ``of_pods``, ``of_ended`` and ``of_workloads``, as of
    `PodUseSource`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._every = world.scenario.scrape
        chance = np.random.default_rng(world.seed)
        self._offsets = chance.uniform(0, self._every, len(world.names))
        self._asked_at = self._asked_of_recent_at = -math.inf
        self._last_uses = pod_use.LastUses()
        self._means: dict[str, float] = {}
        self.of_pods: dict[str, float] = {}
        self.of_ended: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self.of_workloads: dict[str, float] = {}

    def ask(self, running: Running) -> None:
        """What `PodUseSource.run` does by now."""
        now, many = self._world.clock(), len(running) > pod_use.MOST_PODS
        if now - self._asked_at >= (pod_use.EVERY_OF_MANY if many else pod_use.EVERY):
            self._asked_at = now
            uses = dict(self._uses(running, self._every))
            self._means = _means(uses, running)
            self._last_uses.begin_round()
            self._last_uses.add({} if many else uses)
        elif now - self._asked_of_recent_at < pod_use.EVERY_OF_RECENT:
            return
        self._asked_of_recent_at = now
        self.of_ended |= self._ended
        self._ended = {}
        new = dict(self._uses(running, pod_use.YOUNGEST, pod_use.OLDEST))
        self.of_workloads = {**_means(new, running), **self._means}
        self.of_pods = self._last_uses.add(new)

    def end(self, uid: str, running: Running) -> None:
        """A pod ends that was among the running ones. It is asked for next."""
        self._ended |= self._uses({uid: running[uid]}, self._every)

    def _uses(
        self, running: Running, youngest: float, oldest: float = math.inf
    ) -> Iterator[tuple[str, float]]:
        """Of the pods that were so old when they were last measured and scraped. A node that has
        less than its pods want gives each a part.
        """
        world, now = self._world, self._world.clock()
        served = world.served / np.maximum(world.demand, 1e-9)
        measured = now - (now - self._offsets) % self._every - HOUSEKEEPING
        for uid, (pod, place, since) in running.items():
            if youngest < measured.item(place) - since < oldest:
                yield uid, pod.uses_at(now - since) * served.item(place)


def _means(uses: Mapping[str, float], running: Running) -> dict[str, float]:
    """By workload."""
    found: dict[str, list[float]] = {}
    for uid, use in uses.items():
        found.setdefault(running[uid][0].owner, []).append(use)
    return {owner: sum(each) / len(each) for owner, each in found.items()}
