"""The queries that the checks of rules send to Prometheus, a bounded number for each rule: its
expression, and some ten counts for each selector. No answer has more than a series for each node
and job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dynsched.core.samples import Sample
from dynsched.rules.rule_set import Rule
from dynsched.sources.pod_use import scrape_interval
from dynsched.sources.prometheus import PrometheusSource, ServerClock
from dynsched.tools.doctor.expressions import Matcher, SeriesSelector, selector_text
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import label_name

_SHOWN_VALUES: Final = 5
_RECENT: Final = 600.0
"""Seconds before now in which the labels of series are looked up."""


class Queries:
    """Each answer is kept. Every method raises ExpectedError for a query that fails."""

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
        """Seconds between two scrapes of the rule's targets; 0 if it is not known."""
        return await scrape_interval(self.samples, rule) or 0.0

    async def lag(self, selector: SeriesSelector) -> float:
        found = await self.samples(f"min(time() - timestamp({selector.text}))")
        return next((each.value for each in found if math.isfinite(each.value)), 0.0)

    async def label_sets(
        self, selector: SeriesSelector, wanted: Callable[[str], bool]
    ) -> Sequence[Mapping[str, str]]:
        """The different values of the wanted labels that the series of a selector have."""
        since = {"start": f"{self.now - _RECENT:.3f}", "end": f"{self.now:.3f}"}
        names, error = await self.prometheus.read("labels", {"match[]": selector.text, **since})
        _require(error)
        by = ", ".join(label_name(each) for each in names or () if wanted(each))
        found = await self.samples(f"count by ({by}) ({selector.text})") if by else ()
        return [each.labels for each in found]


def _require(error: str | None) -> None:
    if error is not None:
        raise ExpectedError(error)
