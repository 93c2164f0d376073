"""Snapshots for the tests of what is told to others, made by the same core as in `run`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from dynsched.api.node_series import NodeSeries
from dynsched.api.nodes import around_nodes, encode_each
from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.decide import decide
from dynsched.engine.health import rules_health
from dynsched.engine.load.expected import NO_PODS, KnownPods
from dynsched.engine.model import Node, NodePatch, QueryResult, Sample
from dynsched.engine.placing.order import order_of
from dynsched.engine.snapshot import NodeView, NodeViews, Snapshot
from dynsched.rules.file import parse_rules
from dynsched.rules.keys import CONTROL_PLANE_LABELS, HOSTNAME_LABEL

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

Answer = Mapping[str, float] | str
"""Values by the label `instance`, or why the query failed."""


def registered(node: Node) -> Node:
    """With the label by its name that the kubelet gives it, unless it has another one."""
    return replace(node, labels={HOSTNAME_LABEL: node.name, **node.labels})


class Scene:
    """Nodes that are ticked over and change by their patches, as in a cluster."""

    def __init__(self, rules: Mapping[str, Any], nodes: Iterable[Node]) -> None:
        self.rule_set = parse_rules(rules)
        self.nodes = {node.name: registered(node) for node in nodes}
        self.ticks = 0
        self._alerts = no_alerts()
        self._last_success: dict[str, float] = {}

    def tick(
        self, at: float, *, pods: KnownPods = NO_PODS, dry_run: bool = False, **answers: Answer
    ) -> Snapshot:
        """One tick; a rule's answer by its name with `_` for `-`; ``pods`` as the loop is told."""
        results = {
            rule.name: _result(answers[rule.name.replace("-", "_")], at)
            for rule in self.rule_set.rules
        }
        nodes = dict(self.nodes)
        decision = decide(self.rule_set, results, nodes, self._alerts, at, pods=pods)
        self._alerts = decision.verdicts.alerts
        self.ticks += 1
        applied = () if dry_run else decision.patches
        for patch in applied:
            self.nodes[patch.node] = patched(self.nodes[patch.node], patch)
        for name, result in results.items():
            if result.error is None:
                self._last_success[name] = at
        views = decision.views(dict(self.nodes))
        return Snapshot(
            taken_at=at,
            tick=self.ticks,
            duration=0.25,
            rule_set=self.rule_set,
            nodes=views,
            rules=rules_health(self.rule_set, results, decision, self._last_success),
            unmatched=decision.unmatched,
            capped=decision.selection.capped,
            planned=decision.patches,
            applied=applied,
            dry_run=dry_run,
            order=order_of(views, pods),
            pods=pods,
        )


class OtherViews(NodeViews):
    """Those of a Snapshot, with other ones in their place: what cannot come of a tick."""

    def __init__(self, of: NodeViews, views: Mapping[str, NodeView]) -> None:
        self.__dict__.update(of.__dict__)
        self._views = views

    def __getitem__(self, name: str) -> NodeView:
        return self._views[name]

    def of(self, names: Sequence[str]) -> list[NodeView]:
        return [self._views[name] for name in names]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def nodes_payload(snapshot: Snapshot, views: Iterable[NodeView] | None = None) -> Any:
    """What `/nodes` answers, decoded; of ``views`` alone, where they are given."""
    before, behind = around_nodes(snapshot)
    views = snapshot.nodes.values() if views is None else views
    nodes = b",".join(bytes(each) for each in encode_each(snapshot, views))
    return json.loads(before + nodes + behind)


def series_text(snapshot: Snapshot) -> bytes:
    """The series of nodes in `/metrics`."""
    series = NodeSeries(snapshot)
    series.add(sorted(snapshot.nodes))
    return series.encoded()


def patched(node: Node, patch: NodePatch) -> Node:
    """The node after a merge patch."""
    metadata = patch.body["metadata"]
    taints = patch.body["spec"]["taints"] if "spec" in patch.body else node.taints
    return replace(
        node,
        labels=_merged(node.labels, metadata.get("labels", {})),
        annotations=_merged(node.annotations, metadata.get("annotations", {})),
        taints=tuple(taints or ()),
    )


def example(*, dry_run: bool = False) -> Snapshot:
    """Two minutes of a small cluster, in which each node is of another kind.

    worker-2 fires and is marked; worker-3 has cooled and is held; worker-4 carries a person's
    label; worker-5 is over the cap; worker-6 is pending; worker-7 has no sample any more.
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
        scene.tick(NOON + seconds, node_cpu=cpu, node_mem_usage=memory, dry_run=dry_run)
    return scene.tick(NOON + 120, node_cpu=last, node_mem_usage=memory, dry_run=dry_run)


def many(count: int) -> Snapshot:
    """One tick over so many nodes with long names; every third is hot and marked."""
    names = [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(count)]
    rules = {"rules": [{"name": f"rule-{n}", "expr": "x", "threshold": 80} for n in range(3)]}
    scene = Scene(rules, [Node(name) for name in names])
    values = {name: 85.123 if n % 3 == 0 else 20.5 for n, name in enumerate(names)}
    return scene.tick(NOON, rule_0=values, rule_1=values, rule_2=values)


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    new = {**old, **changes}
    return {key: value for key, value in new.items() if value is not None}


def _result(answer: Answer, at: float) -> QueryResult:
    if isinstance(answer, str):
        return QueryResult(error=answer, duration=0.02)
    samples = (Sample({"instance": key}, value, at - 4) for key, value in answer.items())
    return QueryResult(tuple(samples), duration=0.02)
