"""A model of the pods' use in Prometheus, as `dynsched.sources.pod_use` queries it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from closedloop.workload import Pod
from closedloop.world import World
from dynsched.core.load.use_by_age import Counts, counted, start_factor, uses_of
from dynsched.sources import pod_use
from dynsched.util.durations import parse_duration

HOUSEKEEPING = 5.0
"""Age in seconds of a kubelet's last measurement at a scrape. It is 7.8 on real kubelets, which
measure every 10 to 20 s (docs/effect.md); the tables there use the value here.
"""
Counter = Callable[[float], float]
"""Maps a pod's age to its CPU seconds."""
Running = Mapping[str, tuple[Pod, int, float]]
"""By uid: the pod, the index of its node, and the time when it was bound."""


class PodUses:
    """The use of pods, ended pods and workloads in cores, as in `PodUseSource`."""

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
        self.start_factor = 1.0
        self._counts: dict[str, Counts] = {}
        self.by_age: dict[str, Counts] = {}
        self._ended: dict[str, float] = {}
        self.of_workloads: dict[str, float] = {}

    def ask(self, running: Running, bound: Mapping[str, float], ended: Iterable[str]) -> None:
        """Do what `PodUseSource.run` would have done until now.

        ``bound`` (uid -> age) and ``ended`` name the pods for the more frequent queries.
        """
        now, many = self._world.clock(), len(running) > pod_use.MOST_PODS
        if now - self._asked_at >= (pod_use.EVERY_OF_MANY if many else pod_use.EVERY):
            self._asked_at = now
            uses = dict(self._uses(running, self._slope))
            self._means = _means(uses, running)
            self._last_uses.begin_round()
            self._last_uses.add({} if many else uses)
        elif now - self._asked_of_recent_at < pod_use.EVERY_OF_RECENT:
            return
        self._asked_of_recent_at = now
        self.of_ended |= self._ended
        self._ended = {}
        named = {uid: running[uid] for uid in bound if uid in running}
        of_new = dict(self._uses(named, _by_age))
        of_ended = {uid: self._counts[uid] for uid in ended if uid in self._counts}
        found = counted(self._counts, of_new, bound)
        self._counts = of_ended | found
        workloads = {uid: running[uid][0].owner for uid in found if uid in running}
        self.start_factor = start_factor(found, workloads, self._means)
        self.by_age = self._counts if self.start_factor > 1 else {}
        of_new |= {uid: uses_of(found[uid])[-1] for uid in found if uid in self.by_age}
        self.of_workloads = {**_means(of_new, running), **self._means}
        self.of_pods = self._last_uses.add(of_new)

    def end(self, uid: str, running: Running) -> None:
        """A running pod ends; the next `ask` reports its use."""
        self._ended |= self._uses({uid: running[uid]}, self._last)

    def _uses(
        self, running: Running, of: Callable[[Counter, float], float | None]
    ) -> Iterator[tuple[str, float]]:
        """Apply ``of`` to each pod's counter and its age at the last scrape."""
        now = self._world.clock()
        measured = now - (now - self._offsets) % self._every - HOUSEKEEPING
        for uid, (pod, place, since) in running.items():
            counter = partial(self._used, pod, place, since)
            use = of(counter, measured.item(place) - since)
            if use is not None:
                yield uid, use

    def _used(self, pod: Pod, place: int, since: float, age: float) -> float:
        """CPU seconds at this age. A node that is short of CPU gives each pod its share."""
        given, last = self._world.given, len(self._world.given) - 1

        def until(seconds: float) -> float:
            return float(given[min(max(round(since + seconds), 0), last)][place])

        course = pod.course or ((0.0, pod.uses),)
        ends = (*(begin for begin, _ in course[1:]), math.inf)
        parts = zip(course, ends, strict=True)
        used = sum(
            uses * (until(min(age, end)) - until(begin))
            for (begin, uses), end in parts
            if begin < age
        )
        return used + 1e-9 * age**2  # so that no two scrapes have exactly the same use

    def _slope(self, counter: Counter, age: float) -> float | None:
        """As ``deriv`` over RANGE; None with fewer than two scrapes."""
        if age <= self._every:
            return None
        ages = np.arange(age, max(0.0, age - parse_duration(pod_use.RANGE)), -self._every)
        used = [counter(each) for each in ages.tolist()]
        from_mean = ages - ages.mean()
        return float(from_mean @ used / (from_mean @ from_mean))

    def _last(self, counter: Counter, age: float) -> float | None:
        """As ``irate``; None with fewer than two scrapes."""
        if age <= self._every:
            return None
        return (counter(age) - counter(age - self._every)) / self._every


def _by_age(counter: Counter, age: float) -> float | None:
    """Mean use since the start; None unless the age is between YOUNGEST and OLDEST."""
    if not pod_use.YOUNGEST < age < pod_use.OLDEST:
        return None
    return counter(age) / age


def _means(uses: Mapping[str, float], running: Running) -> dict[str, float]:
    """Mean use by workload."""
    found: dict[str, list[float]] = {}
    for uid, use in uses.items():
        found.setdefault(running[uid][0].owner, []).append(use)
    return {owner: sum(each) / len(each) for owner, each in found.items()}
