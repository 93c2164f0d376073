"""A cluster to which each evaluation's patches are applied at once."""

from collections.abc import Iterable, Mapping
from typing import Any

from builders import NOON, answer, node, rule, unlimited

from dynsched.core.alerts import Alert
from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.marks import apply_patch
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult
from dynsched.rules.rule_set import RuleSet

Answer = QueryResult | Mapping[str, float]


class Cluster:
    """The nodes and the last evaluation. Tests may change both."""

    def __init__(self, rules: RuleSet, nodes: Iterable[Node]) -> None:
        self.rules = rules
        self.nodes = {node.name: node for node in nodes}
        self.last: Evaluation | None = None
        self.writes: list[str] = []

    def tick(self, at: float = 0.0, *, pods: Any = None, **answers: Answer) -> Evaluation:
        """One tick, ``at`` seconds after NOON. ``answers`` by rule: a result, or values by node."""
        results = {
            name: found if isinstance(found, QueryResult) else answer(found, NOON + at)
            for name, found in answers.items()
        }
        known = {} if pods is None else {"pods": pods}
        found = evaluate(self.rules, results, dict(self.nodes), self.last, NOON + at, **known)
        for patch in found.patches:
            self.nodes[patch.node] = apply_patch(self.nodes[patch.node], patch)
            self.writes.append(f"{patch.action} {patch.node}")
        self.last = found.after_writes(dict(self.nodes))
        return found

    @property
    def marked(self) -> str:
        """The names of the nodes that carry the default mark."""
        labels = {name: node.labels.get("status") for name, node in self.nodes.items()}
        return " ".join(name for name, value in labels.items() if value == "presure")

    def alert(self, node: str, rule: str = "cpu") -> Alert:
        """The alert as of the last evaluation."""
        assert self.last is not None
        return self.last.alerts[node][rule]


def fleet(size: int, *rules: str, **sections: object) -> Cluster:
    """Nodes n0, n1, ..., with a guard without limits unless ``sections`` has one."""
    found = unlimited(*map(rule, rules or ("cpu",)), **sections)
    return Cluster(found, map(node, (f"n{number}" for number in range(size))))


def heats(cluster: Cluster, *hot: str) -> dict[str, float]:
    """Load 90 for these nodes, and 50 for all others."""
    return {name: 90.0 if name in hot else 50.0 for name in cluster.nodes}
