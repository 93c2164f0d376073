"""The true state of real nodes: which pods run where, what they use, and the judged figures.

Use changes only when a pod is bound or ends, so the sums between two such moments are exact.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from closedloop.meters import Floats
from closedloop.workload import MIB, Pod
from closedloop.world import Outcome, World

NAMESPACE = "default"
_MEMORY_USED = 0.4
"""Share of memory that every node reports as used; memory plays no role here."""


@dataclass(slots=True)
class _Running:
    pod: Pod
    node: int
    share_at_start: float
    started: float = field(default_factory=time.time)


@dataclass(slots=True)
class Account:
    """Updates ``world`` and sums up what happens in it.

    Times are seconds since the start of the run; nothing before ``world.scenario.warm`` is judged.
    ``shares``: per node, the time integral of the share of its demand that it could serve. A pod's
    CPU counter is its demand times the growth of this integral since it was bound.
    """

    world: World
    outcome: Outcome = field(default_factory=Outcome)
    node_writes: int = 0
    shares: Floats = field(init=False)
    _idle: Floats = field(init=False)
    _pressed: Floats = field(init=False)
    _running: dict[str, _Running] = field(default_factory=dict)
    _hot: float = 0.0
    _beyond: float = 0.0
    _used: float = 0.0
    _empty: float = 0.0

    def __post_init__(self) -> None:
        self.shares = np.zeros(len(self.world.capacity))
        self._idle = np.zeros(len(self.world.capacity))
        self._pressed = np.zeros(len(self.world.capacity))

    def advance(self, now: float) -> None:
        """Sum up until ``now``; nothing has changed since the last call."""
        world = self.world
        before = world.clock.now
        passed = max(0.0, now - before)
        served = world.served
        world.totals += served * passed
        self._idle += (world.capacity - served) * passed
        self._pressed += (world.demand > world.capacity) * passed
        self.shares += passed * served / np.maximum(world.demand, 1e-9)
        judged = max(0.0, now - max(before, world.scenario.warm))
        self._hot += judged * float(world.hot.sum())
        self._beyond += judged * float((world.demand - served).sum())
        self._used += judged * float(served.sum())
        self._empty += judged * int((world.ledger.pods == 0).sum())
        world.clock.now = max(now, before)

    def bound(self, pod: Pod, node: int, now: float) -> None:
        """The pod starts to use CPU on the node."""
        self.advance(now)
        if now >= self.world.scenario.warm:
            self.outcome.placed += 1
            self.outcome.on_hot += bool(self.world.hot[node])
        self.world.ledger.count(pod, node, 1)
        self._running[pod.uid] = _Running(pod, node, float(self.shares[node]))
        self._sum_up(node)

    def ended(self, pod: Pod, now: float, *, evicted: bool = False) -> None:
        """The pod stops using CPU."""
        self.advance(now)
        self.outcome.evicted += evicted and now >= self.world.scenario.warm
        node = self._running.pop(pod.uid).node
        self.world.ledger.count(pod, node, -1)
        self._sum_up(node)

    def node_written(self) -> None:
        """Count a write to a Node."""
        self.node_writes += self.world.clock.now >= self.world.scenario.warm

    def result(self) -> Outcome:
        """The result of the run until the last `advance`."""
        world, outcome = self.world, self.outcome
        seconds = world.clock.now - world.scenario.warm
        capacity = float(world.capacity.sum())
        outcome.hot = self._hot / seconds / len(world.names)
        outcome.beyond = self._beyond / seconds / capacity
        outcome.used = self._used / seconds / capacity
        outcome.empty = self._empty / seconds
        outcome.writes = self.node_writes / len(world.names) / (seconds / 3600)
        return outcome

    def page(self, now: float) -> str:
        """The metrics at ``now``: node-exporter's counters, and the kubelets' counters of pods."""
        self.advance(now)
        return "".join(self._lines())

    def _sum_up(self, node: int) -> None:
        # A fresh sum each time: differences would leave a rounding error on an empty node.
        here = (each.pod.uses for each in self._running.values() if each.node == node)
        self.world.demand[node] = sum(here)

    def _lines(self) -> Iterator[str]:
        world = self.world
        total = world.scenario.memory
        yield "# TYPE node_cpu_seconds_total counter\n"
        cores = round(world.scenario.cores)
        for name, idle, busy in zip(world.names, self._idle, world.totals, strict=True):
            for cpu, (mode, sum_) in product(range(cores), (("idle", idle), ("user", busy))):
                labels = f'cpu="{cpu}",instance="{name}",mode="{mode}"'
                yield f"node_cpu_seconds_total{{{labels}}} {sum_ / cores:.6f}\n"
        for name, waited in zip(world.names, self._pressed, strict=True):
            yield f'node_pressure_cpu_waiting_seconds_total{{instance="{name}"}} {waited:.6f}\n'
            yield f'node_pressure_memory_waiting_seconds_total{{instance="{name}"}} 0\n'
            yield f'kube_node_role{{node="{name}",role="worker"}} 1\n'
            yield f'kube_node_status_allocatable{{node="{name}",resource="memory"}} {total:.0f}\n'
        yield "# TYPE node_memory_MemTotal_bytes gauge\n"
        for name in world.names:
            yield f'node_memory_MemTotal_bytes{{instance="{name}"}} {total:.0f}\n'
        yield "# TYPE node_memory_MemAvailable_bytes gauge\n"
        available = total * (1 - _MEMORY_USED)
        for name in world.names:
            yield f'node_memory_MemAvailable_bytes{{instance="{name}"}} {available:.0f}\n'
        yield from self._pod_lines()

    def _pod_lines(self) -> Iterator[str]:
        cpu, memory, started = [], [], []
        for uid, each in self._running.items():
            node = self.world.names[each.node]
            labels = (
                f'namespace="{NAMESPACE}",pod="{pod_name(uid)}",container="app",image="app:1",'
                f'node="{node}",instance="{node}"'
            )
            seconds = each.pod.uses * (float(self.shares[each.node]) - each.share_at_start)
            cpu.append(f'container_cpu_usage_seconds_total{{cpu="total",{labels}}} {seconds:.6f}\n')
            memory.append(f"container_memory_working_set_bytes{{{labels}}} {200 * MIB:.0f}\n")
            started.append(f"container_start_time_seconds{{{labels}}} {each.started:.3f}\n")
        yield "# TYPE container_cpu_usage_seconds_total counter\n"
        yield from cpu
        yield "# TYPE container_memory_working_set_bytes gauge\n"
        yield from memory
        yield "# TYPE container_start_time_seconds gauge\n"
        yield from started


def pod_name(uid: str) -> str:
    """The name of the Pod object for a uid of the workload."""
    return f"app-{uid}"
