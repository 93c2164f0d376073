"""The input of rule checks: the rules with their query results, and the checks' own queries.

Each rule causes a bounded number of queries: its expression, and about ten counts per selector. No
answer has more than one series per node and job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dynsched.core.nodes import AddressLookup, Node
from dynsched.core.samples import Matched, QueryResult, Sample, match_samples
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.pod_use import scrape_interval
from dynsched.sources.prometheus import PrometheusSource, ServerClock
from dynsched.tools.doctor.expressions import Expression, Matcher, SeriesSelector, selector_text
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import label_name

NODE_LABELS: Final = ("node", "instance")
_SHOWN_VALUES: Final = 5
_RECENT: Final = 600.0
"""Labels are looked up in the series of this many seconds before now."""


class Queries:
    """Queries Prometheus, and caches the answers. Methods raise ExpectedError if a query fails."""

    def __init__(self, prometheus: PrometheusSource, clock: ServerClock) -> None:
        self.prometheus = prometheus
        self.now, self.behind = clock.now, clock.behind
        self._answers: dict[str, Sequence[Sample]] = {}

    async def samples(self, expr: str) -> Sequence[Sample]:
        if expr not in self._answers:
            answer = await self.prometheus.query_expr(expr)
            _require(answer.error)
            self._answers[expr] = answer.samples
        return self._answers[expr]

    async def count(self, selector: str) -> int:
        samples = await self.samples(f"count({selector})")
        return int(samples[0].value) if samples else 0

    async def values(self, metric: str, matcher: Matcher) -> tuple[str, ...]:
        name, those = label_name(matcher.name), Matcher(matcher.name, "!=", "")
        selected = selector_text(metric, (those,))
        found = await self.samples(f"topk({_SHOWN_VALUES}, count by ({name}) ({selected}))")
        return tuple(each.labels.get(matcher.name, "") for each in found)

    async def interval(self, rule: Rule) -> float:
        """Seconds between two scrapes of the rule's targets; 0 if unknown."""
        return await scrape_interval(self.samples, rule) or 0.0

    async def lag(self, selector: SeriesSelector) -> float:
        found = await self.samples(f"min(time() - timestamp({selector.text}))")
        return next((each.value for each in found if math.isfinite(each.value)), 0.0)

    async def label_sets(
        self, selector: SeriesSelector, wanted: Callable[[str], bool]
    ) -> Sequence[Mapping[str, str]]:
        """The distinct combinations of the wanted labels in the series of a selector."""
        since = {"start": f"{self.now - _RECENT:.3f}", "end": f"{self.now:.3f}"}
        names, error = await self.prometheus.read("labels", {"match[]": selector.text, **since})
        _require(error)
        by = ", ".join(label_name(each) for each in names or () if wanted(each))
        found = await self.samples(f"count by ({by}) ({selector.text})") if by else ()
        return [each.labels for each in found]


def _require(error: str | None) -> None:
    if error is not None:
        raise ExpectedError(error)


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
    """One rule, and Prometheus's answer to its expression."""

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
        """The label that names the node in the samples of the answer; "" if they have none."""
        first = self.answer.samples[0].labels if self.answer.samples else {}
        return next((label for label in self.rule.node_labels if label in first), "")

    def node_of(self, labels: Mapping[str, str]) -> str:
        """The node of a series with these labels; "" if they name none."""
        names = (self.read_label, *self.rule.node_labels, *NODE_LABELS)
        texts = (labels[name] for name in names if name in labels)
        return next((node for text in texts if (node := self.context.lookup.find(text).node)), "")
