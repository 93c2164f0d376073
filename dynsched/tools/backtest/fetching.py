"""The history of queries: which moments, fetched in which parts, and kept on disk.

Each part is written to a file as soon as it has come, so that memory holds a few parts, whatever
the window; what is in the directory already is not asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import BadZipFile

import numpy as np

from dynsched.engine.columns import Floats, RangeVector
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.util.errors import ExpectedError

PART_SAMPLES: Final = 250_000
"""Of one range query. While its answer is read, a sample takes some 200 bytes: 50 MB."""
PART_STEPS: Final = 8192  # Prometheus refuses more than 11,000 points for one series
IN_FLIGHT: Final = 2
"""Parts that are asked for at a time: while one is read, the server computes the next."""
SPLITS: Final = 6  # how often a part is halved that the server finds too large
_SLOW_COUNTS: Final = 3
"""As how many of these a split counts that is made because the server took too long."""
GIVE_UP: Final = 4
"""Parts of a query that failed one after another for the same reason: the others are not tried."""

_TOO_LARGE: Final = re.compile(
    r"too many samples|maximum resolution|too many points|is larger than|HTTP 413",
    re.IGNORECASE,
)
"""In an error: half of the part may be answered."""
_TOO_SLOW: Final = re.compile(r"no answer|timed out|timeout", re.IGNORECASE)
"""The same; but each that is not answered takes the whole timeout, so that few are tried."""
_NOT_AGAIN: Final = re.compile(
    rf"HTTP 4(?!29|08)\d\d|{_TOO_LARGE.pattern}|{_TOO_SLOW.pattern}", re.IGNORECASE
)
"""In an error: to ask again for the same gives the same."""
_POINT_BYTES: Final = 64
_SERIES_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """``count`` moments from ``start`` (Unix seconds), ``step`` seconds apart. ``start`` is a
    multiple of ``step``: servers with a cache of results shift other moments to such.
    """

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        return self.start + (self.count - 1) * self.step

    def at(self, index: int) -> float:
        return self.start + index * self.step

    def times(self, first: int = 0, last: int | None = None) -> Floats:
        numbers = np.arange(first, self.count if last is None else last, dtype=np.float64)
        return self.start + numbers * self.step


Part = range
"""The numbers of moments of a window that are asked for together."""


def window_of(since: float, until: float, step: float) -> Window:
    """All multiples of ``step`` within; ExpectedError where there is none."""
    first, last = math.ceil(since / step - 1e-6), math.floor(until / step + 1e-6)
    if last < first:
        raise ExpectedError(
            "there is no moment to evaluate: --since is shorter than --step, or not before --until"
        )
    return Window(first * step, step, last - first + 1)


def step_within(budget: int, wanted: float, since: float, until: float, series: int) -> float:
    """``wanted``, or as many times of it as keep ``series`` values a step within the budget."""
    samples = series * ((until - since) / wanted + 1)
    return wanted * max(1, math.ceil(samples / budget - 1e-6))


def parts_of(window: Window, series: int) -> Iterator[Part]:
    """In the order of time. They begin at multiples of their length since 1970: another run, a
    minute later, has the same parts but for the first and the last, and finds them in its cache.
    """
    most = min(PART_STEPS, max(1, PART_SAMPLES // max(1, series)))
    length = 1 << (most.bit_length() - 1)  # stable while the number of series changes a little
    begun, first = round(window.start / window.step), 0
    while first < window.count:
        count = min(length - (begun + first) % length, window.count - first)
        yield range(first, first + count)
        first += count


def chunks(window: Window, nodes: int, rules: int) -> Iterator[tuple[int, int]]:
    """Steps that are replayed at a time: as many values as a few parts have."""
    length = max(1, min(PART_STEPS, 2_000_000 // max(1, nodes * rules)))
    for first in range(0, window.count, length):
        yield first, min(first + length, window.count)


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for a rule. Rules with the same query share its history."""

    expr: str
    labels: tuple[str, ...]
    rises: bool

    @classmethod
    def of(cls, rule: Rule) -> Query | None:
        """None for a rule that Prometheus does not answer."""
        if rule.source != "prometheus" or rule.expr is None:
            return None
        return cls(rule.expr, rule.node_labels, rule.rises)


class Missing(NamedTuple):
    part: Part
    error: str


@dataclass(slots=True)
class Past:
    files: list[tuple[Part, Path]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the first and the last step with a value."""
    warnings: dict[str, list[Part]] = field(default_factory=dict)
    """What the server said beside its answers: they were partial."""
    unnamed: int = 0
    """The most series of a part without a label that names a node."""
    asked: int = 0

    def take(self, part: Part, path: Path, block: Block) -> None:
        self.files.append((part, path))
        self.unnamed = max(self.unnamed, block.unnamed)
        for warning in block.warnings:
            self.warnings.setdefault(warning, []).append(part)
        known = ~np.isnan(block.values)
        first, last = known.argmax(axis=0), len(part) - 1 - known[::-1].argmax(axis=0)
        for column in np.flatnonzero(known.any(axis=0)).tolist():
            name, begun = block.names[column], part.start + int(first[column])
            before = self.seen.get(name, (begun, begun))
            ended = max(before[1], part.start + int(last[column]))
            self.seen[name] = min(before[0], begun), ended

    def values(
        self, first: int, last: int, index_of: Callable[[str], int], nodes: int, *, rises: bool
    ) -> Floats:
        """Steps ``first`` to before ``last``, shape (steps, nodes); ``index_of`` a name, -1 where
        it has none.
        """
        found = np.full((last - first, nodes), np.nan)
        for part, path in self.files:
            begun, ended = max(first, part.start), min(last, part.stop)
            if begun >= ended:
                continue
            block = load(path)
            rows = block.values[begun - part.start : ended - part.start]
            target = found[begun - first : ended - first]
            for column, name in enumerate(block.names):
                index = index_of(name)
                if index >= 0:
                    target[:, index] = worst(target[:, index], rows[:, column], rises=rises)
        return found


@dataclass(slots=True)
class Fetcher:
    """Asks for the parts of queries. ``folder`` holds what came; ``address`` of the server, which
    is a part of the files' names.
    """

    source: PrometheusSource
    window: Window
    folder: Path
    address: str
    pauses: tuple[float, ...] = (0.5, 2.0)
    """Seconds before what failed is asked for again."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT))

    async def fetch(self, queries: Mapping[Query, int]) -> dict[Query, Past]:
        """``queries``: with how many series each is expected to have. What failed: ``missing``."""
        plans = {query: list(parts_of(self.window, series)) for query, series in queries.items()}
        pasts = await asyncio.gather(
            *(self._query(query, plan, queries[query]) for query, plan in plans.items())
        )
        return dict(zip(plans, pasts, strict=True))

    async def _query(self, query: Query, plan: Sequence[Part], series: int) -> Past:
        past = Past()
        failed: list[str] = []
        for part in plan:
            if len(failed) >= GIVE_UP and len(set(failed[-GIVE_UP:])) == 1:
                past.missing.append(Missing(part, failed[-1]))
            else:
                async with self._slots:
                    errors = await self._part(query, past, part, series, SPLITS)
                failed = [*failed, *errors] if errors else []
        past.files.sort(key=lambda each: each[0].start)
        past.missing.sort(key=lambda each: each.part.start)
        return past

    async def _part(
        self, query: Query, past: Past, part: Part, series: int, splits: int
    ) -> list[str]:
        """Its errors."""
        path = self._path(query, part)
        block = _kept(path, part)
        if block is None:
            answer = await self._ask(query, past, part, series)
            if answer.error is not None:
                slow = _TOO_SLOW.search(answer.error) is not None
                left = splits - (_SLOW_COUNTS if slow else 1)
                if left >= 0 and len(part) > 1 and (slow or _TOO_LARGE.search(answer.error)):
                    half = len(part) // 2
                    first = await self._part(query, past, part[:half], series, left)
                    return [*first, *await self._part(query, past, part[half:], series, left)]
                past.missing.append(Missing(part, answer.error))
                return [answer.error]
            block = to_block(answer, query.labels, self.window, part, rises=query.rises)
            save(path, block)
        past.take(part, path, block)
        return []

    async def _ask(self, query: Query, past: Past, part: Part, series: int) -> RangeResult:
        start, end = self.window.at(part.start), self.window.at(part[-1])
        most = max(2 * series, 2000)
        limit = AnswerLimit(series, most, most * (_SERIES_BYTES + len(part) * _POINT_BYTES))
        for pause in (0.0, *self.pauses):
            await asyncio.sleep(pause)
            past.asked += 1
            answer = await self.source.query_range(
                query.expr, start, end, self.window.step, label=query.labels[-1], limit=limit
            )
            if answer.error is None or _NOT_AGAIN.search(answer.error):
                break
        return answer

    def _path(self, query: Query, part: Part) -> Path:
        told = "\n".join((self.address, query.expr, *query.labels, str(query.rises)))
        digest = hashlib.sha256(told.encode()).hexdigest()[:20]
        begun = self.window.at(part.start)
        return self.folder / f"{digest}-{begun:.3f}-{self.window.step:g}-{len(part)}.npz"


def _kept(path: Path, part: Part) -> Block | None:
    """A whole part that came in an earlier run; partial answers are asked for again."""
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):
        block = load(path)
        if len(block.values) == len(part) and not block.warnings:
            return block
    return None


class Block(NamedTuple):
    """``values``: shape (steps, names), NaN where there is no finite value. ``unnamed``: series
    without a label that names a node.
    """

    names: tuple[str, ...]
    values: Floats
    unnamed: int = 0
    warnings: tuple[str, ...] = ()


def worst(one: Floats, other: Floats, *, rises: bool) -> Floats:
    """The worse of two values each; the only one where the other is NaN."""
    return np.fmax(one, other) if rises else np.fmin(one, other)


def to_block(
    answer: RangeResult, labels: Sequence[str], window: Window, part: Part, *, rises: bool
) -> Block:
    """The columns of an answer. ``labels``: the first that a series has names its node."""
    columns: dict[str, Floats] = {}
    unnamed, start = 0, window.at(part.start)
    for carried, times, found in RangeVector.of(answer.series).columns():
        name = next((carried[label] for label in labels if label in carried), None)
        if name is None:
            unnamed += 1
            continue
        column = _column((times - start) / window.step, found, len(part))
        columns[name] = worst(columns[name], column, rises=rises) if name in columns else column
    values = np.column_stack(list(columns.values())) if columns else np.empty((len(part), 0))
    return Block(tuple(columns), values, unnamed, answer.warnings)


def _column(steps: Floats, values: Floats, count: int) -> Floats:
    rows = np.rint(steps).astype(np.int64)
    # A server may give other moments than those that were asked for.
    fits = (rows >= 0) & (rows < count) & (np.abs(steps - rows) < 0.5)  # noqa: PLR2004 (half a step)
    column = np.full(count, np.nan)
    column[rows[fits]] = values[fits]
    column[~np.isfinite(column)] = np.nan
    return column


def save(path: Path, block: Block) -> None:
    """ExpectedError: the disk is full. Of a file that is not whole, `_kept` makes nothing."""
    try:
        with path.open("wb") as file:
            np.savez(file, **block._asdict())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ExpectedError(
            f"the history cannot be kept in {path.parent}: {error.strerror}; free some space, or "
            "name another directory with --cache"
        ) from error


def load(path: Path) -> Block:
    """What `save` wrote. ValueError, OSError or KeyError where it is something else."""
    with np.load(path, allow_pickle=False) as stored:
        names, values, unnamed, warnings = (stored[name] for name in Block._fields)
    return Block(tuple(names.tolist()), values, int(unnamed), tuple(warnings.tolist()))
