"""The queries that the checks of rules send to Prometheus, a bounded number for each rule: its
expression, two numbers at up to 169 moments of a week (fewer where its query is slow), and some
ten counts for each selector. No answer has more than a series for each node and job.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dynsched.core.samples import Sample
from dynsched.sources.prometheus import PrometheusSource, ServerClock
from dynsched.tools.doctor.expressions import Matcher, SeriesSelector, selector_text
from dynsched.util.formatting import label_name

WEEK: Final = 7 * 86400.0
HOUR: Final = 3600.0
_BUDGET: Final = 5.0
"""Seconds of evaluation that each of the two questions about a rule's last week may take; a query
has ten (--prom-timeout)."""
_POINTS: Final = 168
_LEAST_POINTS: Final = 8
_JOBS: Final = 5
_SHOWN_VALUES: Final = 5
_SCRAPES: Final = 600.0
"""Seconds in which scrapes are counted."""


class PastValues(NamedTuple):
    """The values of an expression over time, of all series since ``since`` seconds ago."""

    least: float
    most: float
    since: float


class Queries:
    """Each is sent once; None, or nothing, for what failed. ``errors``: why, by the code of the
    check that it was for.
    """

    def __init__(self, prometheus: PrometheusSource, clock: ServerClock) -> None:
        self.prometheus = prometheus
        self.now, self.behind = clock.now, clock.behind
        self.errors: dict[str, str] = {}
        self._answers: dict[str, Sequence[Sample] | None] = {}

    async def samples(self, expr: str, code: str = "") -> Sequence[Sample] | None:
        if expr not in self._answers:
            answer = await self.prometheus.query_expr(expr)
            failed = self._failed(code, answer.error)
            self._answers[expr] = None if failed else answer.samples
        return self._answers[expr]

    async def count(self, selector: str, code: str = "") -> int | None:
        samples = await self.samples(f"count({selector})", code)
        return None if samples is None else int(samples[0].value) if samples else 0

    async def was_seen(self, selector: str) -> bool:
        """Whether there was a series at one of the full hours of the last week."""
        found = await self.prometheus.query_range(
            f"count({selector})", self.now - WEEK, self.now, HOUR
        )
        self._failed("P1", found.error)
        return any(series.points for series in found.series)

    async def values(self, metric: str, matcher: Matcher) -> tuple[str, ...]:
        name, those = label_name(matcher.name), Matcher(matcher.name, "!=", "")
        selected = selector_text(metric, (those,))
        found = await self.samples(f"topk({_SHOWN_VALUES}, count by ({name}) ({selected}))")
        return tuple(each.labels.get(matcher.name, "") for each in found or ())

    async def interval(self, selector: SeriesSelector) -> float:
        """Seconds between two samples of a series, in the job that is scraped most rarely; 0 if it
        is not known.
        """
        firsts = await self.samples(f"topk by (job) (1, {selector.text})", "P12")
        worst = 0.0
        for sample in (firsts or ())[:_JOBS]:
            labels = dict(sample.labels)
            name = labels.pop("__name__", selector.metric)
            exact = tuple(Matcher(label, "=", value) for label, value in labels.items())
            found = await self.prometheus.raw(f"{selector_text(name, exact)}[{_SCRAPES:.0f}s]")
            self._failed("P12", found.error)
            times = [at for series in found.series[:1] for at, _ in series.points]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            if gaps:
                worst = max(worst, statistics.median(gaps))
        return worst

    async def lag(self, selector: SeriesSelector) -> float:
        found = await self.samples(f"min(time() - timestamp({selector.text}))", "N1")
        return next((each.value for each in found or () if math.isfinite(each.value)), 0.0)

    async def label_sets(
        self, selector: SeriesSelector, wanted: Callable[[str], bool]
    ) -> Sequence[Mapping[str, str]]:
        """The different values of the wanted labels that the series of a selector have."""
        since = {"start": f"{self.now - _SCRAPES:.3f}", "end": f"{self.now:.3f}"}
        names, error = await self.prometheus.read("labels", {"match[]": selector.text, **since})
        self._failed("P10", error)
        known = names if isinstance(names, list) else ()
        by = ", ".join(label_name(each) for each in map(str, known) if wanted(each))
        found = await self.samples(f"count by ({by}) ({selector.text})", "P10") if by else ()
        return [each.labels for each in found or ()]

    async def past(self, expr: str, seconds: float) -> PastValues | None:
        """The last week, at as many moments as a query that takes ``seconds`` can have."""
        points = int(min(_POINTS, max(_LEAST_POINTS, _BUDGET / max(seconds, 1e-3))))
        whole = f"(\n{expr}\n)"  # it may end in a comment
        found = []
        for query in (f"min{whole}", f"max{whole}"):
            answer = await self.prometheus.query_range(
                query, self.now - WEEK, self.now, WEEK / points
            )
            if self._failed("P9", answer.error):
                return None
            found.append([point for series in answer.series for point in series.points])
        least, most = found
        if not least:
            return None
        return PastValues(
            min((v for _, v in least if not math.isnan(v)), default=math.nan),
            max((v for _, v in most if not math.isnan(v)), default=math.nan),
            self.now - least[0][0],
        )

    def _failed(self, code: str, error: str | None) -> bool:
        if code and error:
            self.errors.setdefault(code, error)
        return error is not None
