"""dynsched in the closed loop: its real `Evaluator`, `Extender` and order."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from closedloop.kubelets import PodUses
from closedloop.meters import Floats
from closedloop.scheduler import Ints
from closedloop.workload import Pod
from closedloop.world import Clock, World
from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.load.lag import longest_lag
from dynsched.core.load.pods import BoundPod
from dynsched.core.load.recent import WINDOW, RecentPods
from dynsched.core.marks import NodePatch, apply_patch
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.core.tick import Tick
from dynsched.features.extender.answers import Extender
from dynsched.features.extender.scoring import Scoring
from dynsched.features.order import writer
from dynsched.features.order.ranks import Order, compute_order
from dynsched.kube.leader import NoElection
from dynsched.rules import keys
from dynsched.rules.file import FixedRules
from dynsched.rules.labels import SOFT_EFFECT, Mark
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import Rule
from dynsched.web.node_series import verdict

EXTENDER_WEIGHT = 5
"""The weight in the shipped scheduler configurations."""
SPARE = 60.0
"""Seconds for which pods are tracked beyond the longest lag."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_SCORE = 10
"""kube-scheduler multiplies an extender's score (0 to 10) by this and the extender's weight."""


class SimulatedCluster:
    """The nodes as dynsched sees them. A patch takes effect at once, for the scheduler too."""

    synced = True
    error: str | None = None

    def __init__(self, world: World) -> None:
        self._ledger = world.ledger
        self.names = world.names
        self.places = {name: place for place, name in enumerate(world.names)}
        self._nodes: Mapping[str, Node] = {}
        for place in np.flatnonzero(world.ledger.present):
            self.add(int(place))
        self.mark: Mark | None = None
        self.writes = 0

    def nodes(self) -> Mapping[str, Node]:
        """See `dynsched.kube.cluster.NodeCluster`."""
        return self._nodes

    def add(self, place: int) -> None:
        """Add the node with this index of the ledger."""
        name = self.names[place]
        cpu, memory = float(self._ledger.cpu[place]), float(self._ledger.memory[place])
        node = Node(
            name,
            uid=name,
            resource_version="1",
            labels={keys.HOSTNAME_LABEL: name},
            allocatable={"cpu": cpu, "memory": memory},
        )
        self._nodes = {**self._nodes, name: node}

    def show_cordon(self, place: int) -> None:
        """Show whether the node with this index of the ledger is cordoned."""
        node = self._nodes[self.names[place]]
        taints = tuple(taint for taint in node.taints if taint["key"] != _UNSCHEDULABLE["key"])
        if self._ledger.cordoned[place]:
            taints += (_UNSCHEDULABLE,)
        self._nodes = {**self._nodes, node.name: replace(node, taints=taints)}

    async def read(self, name: str) -> Node | None:
        """See `dynsched.kube.cluster.NodeCluster`."""
        return self._nodes.get(name)

    async def patch(self, patch: NodePatch) -> Node:
        """See `dynsched.kube.cluster.NodeCluster`."""
        self.writes += 1
        node = apply_patch(self._nodes[patch.node], patch)
        self._nodes = {**self._nodes, node.name: node}
        place = self.places[node.name]
        self._ledger.taints[place] = sum(taint["effect"] == SOFT_EFFECT for taint in node.taints)
        label = self.mark.label if self.mark else None
        marked = label is not None and node.labels.get(label.key) == label.value
        self._ledger.labels[place] = marked
        return node


class _NoEvents:
    """Discards Events."""

    def post(self, *_: Any, **__: Any) -> None:
        return

    def post_own(self, *_: Any, **__: Any) -> None:
        return


class _Prometheus:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: Mapping[str, float] = {}

    async def query(self, _rule: Rule) -> QueryResult:
        now = self._clock()
        samples = (
            Sample({"instance": name}, value, now)
            for name, value in self.values.items()
            if not math.isnan(value)
        )
        return QueryResult(tuple(samples))


class Operator:
    """The core of `dynsched run`: `tick` evaluates and writes, `scores` is the extender.

    ``kubelets``: Prometheus scrapes the kubelets, so the use of pods is known. ``knows_each``: the
    use of each pod is known from its start, which is impossible in reality.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        cluster: SimulatedCluster,
        world: World,
        *,
        marks: bool,
        watches_pods: bool = True,
        kubelets: bool = True,
        knows_each: bool = False,
        scrape: float | None = None,
    ) -> None:
        rule_set = parse_rules(content)
        self._world = world
        self._clock = clock = world.clock
        self._cluster = cluster
        cluster.mark = rule_set.mark
        self._watches_pods = watches_pods
        scrapes = {} if scrape is None else dict.fromkeys(rule_set.by_name, scrape)
        self._pods = RecentPods(max(WINDOW, longest_lag(rule_set, scrapes)) + SPARE)
        self._kubelets = kubelets
        self._knows_each = knows_each
        self._running: dict[str, tuple[Pod, int, float]] = {}
        self._uses = PodUses(world)
        self._scrapes = {} if scrape is None else {rule.name: scrape for rule in rule_set.rules}
        self._source = _Prometheus(clock)
        self._extender = Extender(
            nodes=cluster.nodes,
            synced=lambda: True,
            rules=lambda: rule_set.extender,
            clock=clock,
            bound=self._pods,
        )
        self._evaluator = Evaluator(
            FixedRules(rule_set),
            queries=Queries({"prometheus": self._source}),
            histories={},
            cluster=cluster,
            reporter=Reporter(_NoEvents()),
            leadership=NoElection(may_write=marks),
            publish=self._publish,
            pods=self,
            clock=clock,
            monotonic=clock,
        )
        self._tick: Tick | None = None
        self._order: Order | None = None
        self._ordered: Order | None = None
        self._ordered_at = -math.inf
        self._chance = random.Random(0)
        self._names = [f'"{name}"'.encode() for name in cluster.names]

    async def _publish(self, tick: Tick) -> None:
        self._tick = tick
        self._extender.use(Scoring(tick.evaluation, tick.pods, tick.taken_at))
        self._order = compute_order(tick.evaluation, tick.pods)
        self._renew_order()

    def verdicts(self) -> dict[int, float]:
        """The verdict of each node in `/metrics`, by its index in the ledger."""
        if self._tick is None:
            return {}
        evaluation = self._tick.evaluation
        return {
            self._cluster.places[name]: verdict(evaluation, name)
            for name in evaluation.table.entries
        }

    async def tick(self, values: Floats) -> None:
        """One tick with the answers of Prometheus, in percent by node; NaN: no sample."""
        self._source.values = dict(zip(self._cluster.names, values.tolist(), strict=True))
        await self._evaluator.tick(self._clock())

    async def reevaluate(self) -> None:
        """Do what `Evaluator.run` and `NodeOrderWriter` do between two ticks."""
        await self._evaluator.reevaluate()
        self._renew_order()

    def bound(self, pod: Pod, node: str) -> None:
        """A pod was bound."""
        if self._knows_each:
            self._uses.of_pods[pod.uid] = pod.uses
        self._pods.add(_as_bound(pod, node), self._clock())
        self._pods.start(pod.uid, self._clock())
        self._running[pod.uid] = pod, self._cluster.places[node], self._clock()

    def deleted(self, pod: Pod, node: str) -> None:
        """A pod has gone."""
        self._pods.end(_as_bound(pod, node), self._clock())
        self._uses.end(pod.uid, self._running)
        if self._knows_each:
            self._uses.of_ended[pod.uid] = pod.uses
        del self._running[pod.uid]

    @property
    def sequence(self) -> int:
        """See `dynsched.controller.pod_tracking.PodTracking`."""
        return self._pods.sequence

    def known(self, ago: float = 0.0) -> KnownPods:
        """See `dynsched.controller.pod_tracking.PodTracking`."""
        if not self._watches_pods:
            return NO_PODS
        if self._kubelets:
            self._uses.ask(self._running, *self._pods.names(self._clock()))
        return KnownPods(
            use_of_workloads={"cpu": self._uses.of_workloads},
            use_of_pods={"cpu": self._uses.of_pods},
            use_of_ended={"cpu": self._uses.of_ended},
            cpu_by_age=self._uses.by_age,
            start_factor=self._uses.start_factor,
            recent=self._pods.pods(self._clock(), ago=ago),
            running=len(self._running),
            scrape_intervals=self._scrapes,
            sequence=self._pods.sequence,
        )

    def preferred(self, pod: Pod, found: Ints) -> Floats:
        """What the order adds to the scores of the candidates.

        The pod got one of the lists of the last order written. kube-scheduler scales the best
        candidate to 100, and node affinity has weight 2.
        """
        weights = np.zeros(len(self._cluster.names))
        lists = self._ordered.lists[""] if self._ordered else ()
        if self._ordered and not pod.spreads:
            lists += self._ordered.overflow_lists.get("", ())
        for tier in self._chance.choice(lists) if lists else ():
            named = [self._cluster.places[name] for name in tier.nodes]
            if tier.all_but:
                weights += tier.weight
                weights[named] -= tier.weight
            else:
                weights[named] += tier.weight
        weights = weights[found]
        best = weights.max()
        return 2 * np.floor(100 * weights / best) if best else weights

    def _renew_order(self) -> None:
        """Publish the order at the intervals of `NodeOrderWriter`."""
        order = self._order
        if order is self._ordered or self._clock() - self._ordered_at < writer.APART:
            return
        self._ordered, self._ordered_at = order, self._clock()

    def scores(self, pod: Pod, found: Ints) -> Floats:
        """What `/prioritize` adds to the scores of the candidates."""
        metadata = {"name": pod.uid, "uid": pod.uid, "namespace": "default"}
        body = b'{"Pod":%b,"NodeNames":[%b]}' % (
            json.dumps({"metadata": metadata}).encode(),
            b",".join(self._names[place] for place in found),
        )
        answer = json.loads(self._extender.prioritize(body))
        return np.array([entry["Score"] for entry in answer]) * float(EXTENDER_WEIGHT * _SCORE)


def _as_bound(pod: Pod, node: str) -> BoundPod:
    return BoundPod(pod.uid, node, cpu=pod.cpu, memory=pod.memory, workload=pod.owner, name=pod.uid)
