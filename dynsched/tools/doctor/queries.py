"""The queries that the checks of rules send to Prometheus, a bounded number for each rule: its
expression, two numbers at up to 169 moments of a week (fewer where its query is slow), and some
ten counts for each selector. No answer has more than a series for each node and job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dynsched.core.samples import Sample
from dynsched.rules.rule_set import Rule
from dynsched.sources.pod_use import scrape_interval
from dynsched.sources.prometheus import PrometheusSource, ServerClock
from dynsched.tools.doctor.expressions import Matcher, SeriesSelector, selector_text
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import label_name

WEEK: Final = 7 * 86400.0
_BUDGET: Final = 5.0
"""Seconds of evaluation that each of the two questions about a rule's last week may take; a query
has ten (--prom-timeout)."""
_POINTS: Final = 168
_LEAST_POINTS: Final = 8
_SHOWN_VALUES: Final = 5
_RECENT: Final = 600.0
"""Seconds before now in which the labels of series are looked up."""


class PastValues(NamedTuple):
    """The values of an expression over time, of all series since ``since`` seconds ago."""

    least: float
    most: float
    since: float


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

    async def past(self, expr: str, seconds: float) -> PastValues | None:
        """The last week, at as many moments as a query that takes ``seconds`` can have. None where
        there are no values.
        """
        points = int(min(_POINTS, max(_LEAST_POINTS, _BUDGET / max(seconds, 1e-3))))
        whole = f"(\n{expr}\n)"  # it may end in a comment
        found = []
        for query in (f"min{whole}", f"max{whole}"):
            answer = await self.prometheus.query_range(
                query, self.now - WEEK, self.now, WEEK / points
            )
            _require(answer.error)
            found.append([point for series in answer.series for point in series.points])
        least, most = ([value for _, value in each if not math.isnan(value)] for each in found)
        return (
            PastValues(min(least), max(most), self.now - found[0][0][0]) if least and most else None
        )


def _require(error: str | None) -> None:
    if error is not None:
        raise ExpectedError(error)
