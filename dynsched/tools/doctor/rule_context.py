"""What the checks of rules are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dynsched.core.nodes import AddressLookup, Node
from dynsched.core.samples import Matched, QueryResult, match_samples
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.doctor.expressions import Expression
from dynsched.tools.doctor.queries import Queries

NODE_LABELS: Final = ("node", "instance")


@dataclass(frozen=True)
class RuleContext:
    """All rules, and the nodes of the cluster by name."""

    rule_set: RuleSet
    nodes: Mapping[str, Node]

    @cached_property
    def lookup(self) -> AddressLookup:
        return AddressLookup(self.nodes.values())


@dataclass(frozen=True)
class CheckedRule:
    """One rule, and what Prometheus answers to its expression."""

    rule: Rule
    answer: QueryResult
    expression: Expression
    context: RuleContext
    queries: Queries

    @cached_property
    def matched(self) -> Matched:
        """The samples of the answer, by node."""
        return match_samples(self.rule, self.answer.samples, self.context.lookup)

    @property
    def read_label(self) -> str:
        """The label by which the samples of the answer name their node; "" where they have none."""
        first = self.answer.samples[0].labels if self.answer.samples else {}
        return next((label for label in self.rule.node_labels if label in first), "")

    def node_of(self, labels: Mapping[str, str]) -> str:
        """The node that a series with these labels is of; "" where they name none."""
        names = (self.read_label, *self.rule.node_labels, *NODE_LABELS)
        texts = (labels[name] for name in names if name in labels)
        return next((node for text in texts if (node := self.context.lookup.find(text).node)), "")
