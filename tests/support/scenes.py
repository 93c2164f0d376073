"""Ticks over a few nodes, evaluated by the same core as in `run`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.health import rules_health
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.marks import apply_patch
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.core.tick import Leadership, Tick, WriteResult
from dynsched.rules.keys import CONTROL_PLANE_LABELS, HOSTNAME_LABEL
from dynsched.rules.parse import parse_rules

NOON = datetime.fromisoformat("2026-11-20T12:00:00Z").timestamp()

EXAMPLE_RULES: Mapping[str, Any] = {
    "guard": {"max_marked": 2},
    "order": {"score": {"node-cpu": 1}},
    "rules": [
        {
            "name": "node-cpu",
            "expr": "cpu_busy_percent",
            "threshold": 80,
            "clear_threshold": 70,
            "for": "1m",
            "keep_firing_for": "2m",
        },
        {"name": "node-mem-usage", "expr": "mem_used_percent", "threshold": 85, "for": "30s"},
    ],
}

Answer = Mapping[str, float] | str | list[Sample]
"""Values by the label `instance`, or the error of a failed query, or samples."""


def registered(node: Node) -> Node:
    """The node with the hostname label that the kubelet sets, unless it has one."""
    return replace(node, labels={HOSTNAME_LABEL: node.name, **node.labels})


class Scene:
    """Nodes that are evaluated tick by tick and changed by the resulting patches."""

    def __init__(self, rules: Mapping[str, Any], nodes: Iterable[Node]) -> None:
        self.rule_set = parse_rules(rules)
        self.nodes = {node.name: registered(node) for node in nodes}
        self.ticks = 0
        self._last: Evaluation | None = None
        self._last_success: dict[str, float] = {}

    def tick(
        self,
        at: float,
        *,
        pods: KnownPods = NO_PODS,
        dry_run: bool = False,
        writes: bool = True,
        **answers: Answer,
    ) -> Tick:
        """One tick. ``answers`` are by rule name with `_` for `-`.

        Without ``writes`` the patches stay due.
        """
        results = {
            rule.name: _result(answers[rule.name.replace("-", "_")], at)
            for rule in self.rule_set.rules
        }
        self._last_success |= {name: at for name, each in results.items() if each.error is None}
        found = evaluate(self.rule_set, results, dict(self.nodes), self._last, at, pods=pods)
        for patch in found.patches if writes else ():
            self.nodes[patch.node] = apply_patch(self.nodes[patch.node], patch)
        self._last = found.after_writes(dict(self.nodes))
        self.ticks += 1
        return Tick(
            evaluation=self._last,
            taken_at=at,
            number=self.ticks,
            duration=0.25,
            rules=rules_health(self._last, results, self._last_success),
            writes=WriteResult(applied=found.patches if writes and not dry_run else ()),
            planned=found.patches,
            leadership=Leadership(dry_run=dry_run),
            pods=pods,
        )


def example(*, dry_run: bool = False, writes: bool = True) -> Tick:
    """Two minutes of a small cluster with one node for each case.

    worker-2 fires and is marked; worker-3 has cooled but keeps firing; worker-4 has a label that a
    person set; worker-5 exceeds the cap; worker-6 is pending; worker-7 has lost its samples. With
    ``dry_run``, as in `dynsched plan`, only the last tick plans writes.
    """
    workers = {f"worker-{n}": Node(f"worker-{n}") for n in range(1, 8)}
    workers["worker-4"] = Node("worker-4", labels={"status": "maintenance"})
    control_plane = Node("control-plane-1", labels={CONTROL_PLANE_LABELS[0]: ""})
    scene = Scene(EXAMPLE_RULES, [*workers.values(), control_plane])
    cool = dict.fromkeys(scene.nodes, 31.5) | {"10.0.9.9:9100": 12.0}
    hot = cool | {"worker-2": 91.25, "worker-3": 88.0, "worker-4": 90.0}
    hotter = hot | {"worker-5": 83.5}
    last = hotter | {"worker-3": 66.0, "worker-6": 81.0}
    del last["worker-7"]
    memory = dict.fromkeys(scene.nodes, 42.0)
    for seconds, cpu in ((0, hot), (30, hotter), (60, hotter), (90, hotter)):
        early = writes and not dry_run
        scene.tick(NOON + seconds, node_cpu=cpu, node_mem_usage=memory, writes=early)
    answers = {"node_cpu": last, "node_mem_usage": memory}
    return scene.tick(NOON + 120, dry_run=dry_run, writes=writes, **answers)


def many(count: int) -> Tick:
    """One tick over ``count`` nodes with long names; every third is hot and marked."""
    names = [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(count)]
    rules = {"rules": [{"name": f"rule-{n}", "expr": "x", "threshold": 80} for n in range(3)]}
    scene = Scene(rules, [Node(name) for name in names])
    values = {name: 85.123 if n % 3 == 0 else 20.5 for n, name in enumerate(names)}
    return scene.tick(NOON, rule_0=values, rule_1=values, rule_2=values)


def _result(answer: Answer, at: float) -> QueryResult:
    if isinstance(answer, str):
        return QueryResult(error=answer, duration=0.02)
    if isinstance(answer, list):
        return QueryResult(tuple(answer), duration=0.02)
    samples = (Sample({"instance": key}, value, at - 4) for key, value in answer.items())
    return QueryResult(tuple(samples), duration=0.02)


EXPECTED_RULES: Final[Mapping[str, Any]] = {
    "rules": [
        {
            "name": "node-cpu",
            "expr": "cpu",
            "resource": "cpu",
            "by": "expected",
            "threshold": 64,
            "clear_threshold": 58,
            "lag": "1m",
        },
        {"name": "node-mem", "expr": "mem", "threshold": 85},
    ]
}
"""With nodes of 10 cores, 0.1 core is one percentage point."""

CPU: Final = {"worker-1": 61.0, "worker-2": 44.0, "worker-3": 46.0, "worker-4": 82.0}
MEMORY: Final = dict.fromkeys(CPU, 30.0)
CORES: Final = {"cpu": 10.0, "memory": 2.0**34}
USES: Final = {"cpu": {"shop/web": 1.04, "shop/batch": 0.26}}


def expected_scene(
    *, rules: Mapping[str, Any] = EXPECTED_RULES, **labels: Mapping[str, str]
) -> Scene:
    """A scene with the nodes of CPU; ``labels`` are by node name with ``_`` for ``-``."""
    return Scene(
        rules,
        [
            Node(name, labels=labels.get(name.replace("-", "_"), {}), allocatable=CORES)
            for name in CPU
        ],
    )


def known_pods(**changed: Any) -> KnownPods:
    """On worker-1 one pod was bound and one ended, both half a lag ago as seen by the metric."""
    web = BoundPod("1", "worker-1", workload="shop/web")
    batch = BoundPod("2", "worker-1", workload="shop/batch")
    about: dict[str, Any] = {
        "recent": (RecentPod(web, 34.0, None), RecentPod(batch, None, 34.0)),
        "running": 100,
        "use_of_workloads": USES,
        "scrape_intervals": {"node-cpu": 30.0},
    }
    return KnownPods(**{**about, **changed})


def expected_example() -> Tick:
    """worker-1 is marked by its expected load only, worker-4 also by its measured load."""
    scene = expected_scene()
    return scene.tick(NOON, node_cpu=CPU, node_mem=MEMORY, pods=known_pods())
