"""One run, second by second: pods end, change and start; load is summed, scraped and judged."""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from closedloop.descheduler import Running
from closedloop.meters import Floats, Meters
from closedloop.scheduler import Ledger
from closedloop.workload import DRAINED_FOR, Pod, Scenario, draw, late, node_cores

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))

from virtual_loop import VirtualLoop

RETRY = 10
"""Seconds until an unschedulable pod is retried; kube-scheduler's longest back-off."""
HOT = 0.8
"""A node is hot if its pods demand more than this share of its capacity."""


class Clock:
    """The simulated time in seconds, shared by all parts."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The current time."""
        return self.now


@dataclass(slots=True)
class World:
    """The true state of everything.

    ``demand`` is what pods want, in the unit of ``capacity``. ``served`` is what they get, and
    ``totals`` its integral over time, like a counter.
    """

    scenario: Scenario
    seed: int
    clock: Clock
    names: list[str]
    capacity: Floats
    ledger: Ledger
    meters: Meters
    demand: Floats = field(init=False)
    totals: Floats = field(init=False)
    given: list[Floats] = field(default_factory=list)
    """For each second, per node: time integral so far of the share of its demand that it served."""

    def __post_init__(self) -> None:
        self.demand = np.zeros(len(self.capacity))
        self.totals = np.zeros(len(self.capacity))

    def measured(self) -> Floats:
        """What Prometheus answers now, in percent of capacity; NaN for a node without a value."""
        values = 100 * self.meters.values(int(self.clock.now)) / self.capacity
        return np.where(self.ledger.present, values, np.nan)

    @property
    def served(self) -> Floats:
        """The demand of each node, limited by its capacity."""
        return np.minimum(self.demand, self.capacity)

    @property
    def hot(self) -> Floats:
        """Whether each node is hot."""
        return self.demand > HOT * self.capacity


class Player(Protocol):
    """Places pods. ``writes``: number of writes to nodes so far."""

    writes: int

    def choose(self, pod: Pod) -> int | None:
        """The index of the pod's node, or None if no node has room."""

    async def tick(self) -> None:
        """Called every ``scenario.tick`` seconds."""

    async def reevaluate(self) -> None:
        """Called every second between two ticks."""

    def bound(self, pod: Pod, node: int) -> None:
        """A pod was bound."""

    def gone(self, pod: Pod, node: int) -> None:
        """A pod has ended."""

    def joined(self, node: int) -> None:
        """A node has joined."""

    def cordoned(self, node: int) -> None:
        """A node was cordoned or uncordoned."""

    def evicts(self, running: Mapping[str, Running], /) -> list[Running]:
        """The pods to evict and place again now; called before every tick."""


@dataclass(slots=True)
class Outcome:
    """The result of one run, from the end of the warm-up on.

    ``hot``: share of node-time above the hot line. ``beyond``: demand beyond capacity, as a share
    of all capacity. ``placed``: pods that were placed, ``on_hot`` of them on a node that was hot at
    that moment. ``unplaced``: pods that found no node at once. ``waited``: mean wait of all pods
    that came, in seconds. ``starved``: share of pod-time in which a pod's node had less CPU than
    its pods wanted. ``starved_p99``: 99th percentile of that share over pods. ``writes``: writes to
    nodes, per hour and node. ``used``: mean share of capacity used. ``empty``: mean number of nodes
    without a pod. ``evicted``: pods that were moved. ``by_second``: share of hot nodes in each
    second.
    """

    hot: float = 0.0
    beyond: float = 0.0
    on_hot: int = 0
    placed: int = 0
    unplaced: int = 0
    waited: float = 0.0
    starved: float = 0.0
    starved_p99: float = 0.0
    writes: float = 0.0
    used: float = 0.0
    empty: float = 0.0
    evicted: int = 0
    by_second: list[float] = field(default_factory=list)


class _Change(NamedTuple):
    """A change of a bound pod: from ``at`` on it ``uses`` this much, or it ends if None."""

    at: float
    order: int
    pod: Pod
    uses: float | None


def make_world(scenario: Scenario, seed: int) -> World:
    """A world with all nodes, which are empty."""
    cores = np.array(node_cores(scenario), dtype=float)
    memory = scenario.memory * cores / scenario.cores
    ledger = Ledger(cores, memory)
    ledger.present[scenario.nodes - scenario.joining :] = False
    return World(
        scenario,
        seed,
        Clock(),
        [f"node-{number}" for number in range(len(cores))],
        cores,
        ledger,
        Meters(len(cores), scenario.scrape, scenario.window, seed, cadvisor=scenario.cadvisor),
    )


def simulate(
    scenario: Scenario, seed: int, player_of: Callable[[World], Player], chance: int = 0
) -> Outcome:
    """Play one run; the result is the same for the same arguments.

    ``chance``: other numbers delay each pod a little, as on real servers, and change the
    scheduler's random choices. The effect of that can be large.
    """
    virtual = VirtualLoop()
    world = make_world(scenario, seed + 1_000_000 * chance)
    pods = late(draw(scenario, seed), chance) if chance else draw(scenario, seed)
    try:
        return virtual.run_until_complete(_Run(world, pods, player_of).play())
    finally:
        virtual.close()


class _Run:
    def __init__(
        self, world: World, pods: Iterable[Pod], player_of: Callable[[World], Player]
    ) -> None:
        self._world = world
        self._player = player_of(self._world)
        self._pods = iter(pods)
        self._next = next(self._pods, None)
        self._changes: list[_Change] = []
        self._running: dict[str, Running] = {}
        self._waiting: list[Pod] = []
        self._again: list[Pod] = []
        self._chance = random.Random(world.seed)
        self._came = 0
        self._seconds = np.zeros((2, len(world.names)))  # per node: judged, and short of CPU
        self._seconds_of: dict[str, Floats] = {}
        self._order = count()
        self._outcome = Outcome()

    async def play(self) -> Outcome:
        world, outcome = self._world, self._outcome
        scenario = world.scenario
        warm, writes_before = int(scenario.warm), 0
        for now in range(scenario.seconds):
            world.clock.now = float(now)
            if now == scenario.join_at:
                self._join()
            if scenario.drained_every and now >= warm:
                self._drain(now, now - warm)
            self._change(now)
            self._arrive(now, judged=now >= warm)
            served = world.served
            world.totals += served
            share = served / np.maximum(world.demand, 1e-9)
            world.given.append(share if not world.given else world.given[-1] + share)
            world.meters.scrape(now, world.totals, served)
            if now == warm:
                writes_before = self._player.writes
            if now >= warm:
                self._judge(served)
            if now % scenario.tick == 0:
                self._evict(now, judged=now >= warm)
                await self._player.tick()
            else:
                await self._player.reevaluate()
        seconds = scenario.seconds - warm
        outcome.hot /= seconds
        outcome.beyond /= seconds
        outcome.used /= seconds
        outcome.empty /= seconds
        outcome.waited /= max(self._came, 1)
        self._sum_up_pods()
        written = self._player.writes - writes_before
        outcome.writes = written / len(world.names) / (seconds / 3600)
        return outcome

    def _sum_up_pods(self) -> None:
        """Compute the share of judged time in which pods had less CPU than they wanted."""
        for found in self._running.values():
            self._seconds_of[found.pod.uid] += self._seconds[:, found.node]
        of_pods = np.array(list(self._seconds_of.values()))
        lived, starved = of_pods[of_pods[:, 0] > 0].T
        if len(lived):
            self._outcome.starved = float(starved.sum() / lived.sum())
            self._outcome.starved_p99 = float(np.percentile(starved / lived, 99))

    def _join(self) -> None:
        for node in np.flatnonzero(~self._world.ledger.present):
            self._world.ledger.present[node] = True
            self._player.joined(int(node))

    def _drain(self, now: int, judged: int) -> None:
        """Drain the next node, or uncordon it, if that is due. The pods of a drained node arrive
        again within seconds, for the rest of their lives.
        """
        number, since = divmod(judged, int(self._world.scenario.drained_every))
        node, cordoned = number % len(self._world.names), self._world.ledger.cordoned
        if since == DRAINED_FOR:
            cordoned[node] = False
        elif since == 0:
            cordoned[node] = True
            for found in [each for each in self._running.values() if each.node == node]:
                self._take(found)
                pod, arrives = found.pod, now + self._chance.uniform(0, 3)
                left = pod.lives - (now - found.since)
                new = replace(pod, uid=f"{pod.uid}-{number}", arrives=arrives, lives=left)
                self._again.append(new)
        else:
            return
        self._player.cordoned(node)

    def _change(self, now: int) -> None:
        """Apply the changes of bound pods that are due."""
        while self._changes and self._changes[0].at <= now:
            _, _, pod, uses = heapq.heappop(self._changes)
            found = self._running.get(pod.uid)
            if found is None:
                continue  # it was evicted and found no other node
            if uses is None:
                self._take(found)
            else:
                self._world.demand[found.node] += uses - found.uses
                self._running[pod.uid] = found._replace(uses=uses)

    def _take(self, found: Running) -> None:
        """Remove the pod from its node."""
        del self._running[found.pod.uid]
        self._seconds_of[found.pod.uid] += self._seconds[:, found.node]
        self._world.demand[found.node] -= found.uses
        self._world.ledger.count(found.pod, found.node, -1)
        self._player.gone(found.pod, found.node)

    def _put(self, found: Running) -> None:
        """Start the pod on its node."""
        self._running[found.pod.uid] = found
        before = self._seconds_of.get(found.pod.uid, np.zeros(2))
        self._seconds_of[found.pod.uid] = before - self._seconds[:, found.node]
        self._world.ledger.count(found.pod, found.node, 1)
        self._world.demand[found.node] += found.uses
        self._player.bound(found.pod, found.node)

    def _evict(self, now: int, *, judged: bool) -> None:
        """Evict pods; each is replaced at once by one with the same use."""
        for found in self._player.evicts(self._running):
            self._take(found)
            self._outcome.evicted += judged
            node = self._player.choose(found.pod)
            if node is None:
                self._outcome.unplaced += judged
            else:
                self._outcome.placed += judged
                self._outcome.on_hot += judged and bool(self._world.hot[node])
                self._put(found._replace(node=node, since=now))

    def _arrive(self, now: int, *, judged: bool) -> None:
        """Place the pods that are due, each with the knowledge of the previous placement. A pod
        that finds no node is tried again every RETRY seconds.
        """
        world, outcome = self._world, self._outcome
        outcome.waited += judged * len(self._waiting)
        due, self._waiting = ([], self._waiting) if now % RETRY else (self._waiting, [])
        while (new := self._next) is not None and new.arrives <= now:
            self._next = next(self._pods, None)
            self._came += judged
            due.append(new)
        due += [pod for pod in self._again if pod.arrives <= now]
        self._again = [pod for pod in self._again if pod.arrives > now]
        for pod in due:
            node = self._player.choose(pod)
            if node is None:
                outcome.unplaced += judged and pod.arrives > now - 1
                self._waiting.append(pod)
                continue
            outcome.placed += judged
            outcome.on_hot += judged and bool(world.hot[node])
            (_, uses), *changes = pod.course or ((0.0, pod.uses),)
            self._put(Running(pod, node, now, uses))
            for age, uses in changes:
                self._later(now + age, pod, uses)
            self._later(now + pod.lives, pod, None)

    def _later(self, at: float, pod: Pod, uses: float | None) -> None:
        heapq.heappush(self._changes, _Change(at, next(self._order), pod, uses))

    def _judge(self, served: Floats) -> None:
        world, outcome = self._world, self._outcome
        capacity = world.capacity[world.ledger.present].sum()
        hot = float(world.hot[world.ledger.present].mean())
        self._seconds[0] += 1
        self._seconds[1] += world.demand > world.capacity * (1 + 1e-9)
        outcome.hot += hot
        outcome.by_second.append(hot)
        outcome.beyond += float((world.demand - served).sum() / capacity)
        outcome.used += float(served.sum() / capacity)
        outcome.empty += int((world.ledger.pods[world.ledger.present] == 0).sum())
