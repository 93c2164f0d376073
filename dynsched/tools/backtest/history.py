"""The history of queries: which moments, fetched in which parts, and kept on disk.

Each part is written to a file as soon as it has come, so that memory holds a few parts, whatever
the window. What is in the directory already is not queried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.util.errors import ExpectedError

PART_SAMPLES: Final = 250_000
"""Samples of one range query. While it is read, a sample takes some 200 bytes: 50 MB in all."""
PART_STEPS: Final = 8192  # Prometheus refuses more than 11,000 points for one series
IN_FLIGHT: Final = 2
"""Parts that are queried at a time: while one is read, the server computes the next."""
SPLITS: Final = 6  # how often a part is halved that the server finds too large
GIVE_UP: Final = 4
"""After this number of parts that failed in a row, a query is given up."""

_TOO_LARGE: Final = re.compile(
    r"too many samples|maximum resolution|too many points|is larger than|HTTP 413",
    re.IGNORECASE,
)
"""In an error: half of the part may be answered."""
_NOT_AGAIN: Final = re.compile(
    rf"HTTP 4(?!29|08)\d\d|no answer|timed out|timeout|{_TOO_LARGE.pattern}", re.IGNORECASE
)
"""In an error: the same query would fail again."""
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


Part = range
"""The numbers of the moments of a window that are queried together."""


def window_of(since: float, until: float, step: float) -> Window:
    """All multiples of ``step`` within; ExpectedError where there is none."""
    first, last = math.ceil(since / step - 1e-6), math.floor(until / step + 1e-6)
    if last < first:
        raise ExpectedError(
            "there is no moment to evaluate: --since is shorter than --step, or not before --until"
        )
    return Window(first * step, step, last - first + 1)


def step_within(budget: int, wanted: float, since: float, until: float, series: int) -> float:
    """``wanted``, or the least multiple of it that keeps ``series`` values a step in the budget."""
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


@dataclass(frozen=True, slots=True)
class Query:
    """A rule's query. Rules with the same query share its history."""

    expr: str
    labels: tuple[str, ...]
    """The first that a series has names its node."""
    higher_is_worse: bool

    @classmethod
    def of(cls, rule: Rule) -> Query | None:
        """None for a rule that Prometheus does not answer."""
        if rule.source != "prometheus" or rule.expr is None:
            return None
        return cls(rule.expr, rule.node_labels, rule.higher_is_worse)


class Missing(NamedTuple):
    part: Part
    error: str


class Block(msgspec.Struct):
    """The content of one part. ``values``: by the name of the node, one for each moment, None where
    there is no finite one. ``unnamed``: the number of series without a label that names a node.
    """

    values: dict[str, list[float | None]]
    unnamed: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Past:
    """The history of one query."""

    files: list[tuple[Part, Path]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the first and the last step with a value."""
    warnings: dict[str, list[Part]] = field(default_factory=dict)
    """The parts that were answered partially, by the server's warning."""
    unnamed: int = 0
    """The most series of a part without a label that names a node."""
    asked: int = 0

    def take(self, part: Part, path: Path, block: Block) -> None:
        self.files.append((part, path))
        self.unnamed = max(self.unnamed, block.unnamed)
        for warning in block.warnings:
            self.warnings.setdefault(warning, []).append(part)
        for name, values in block.values.items():
            known = [step for step, value in zip(part, values, strict=True) if value is not None]
            if known:
                first, last = self.seen.get(name, (known[0], known[-1]))
                self.seen[name] = min(first, known[0]), max(last, known[-1])

    def by_step(self, count: int) -> Iterator[Mapping[str, float] | None]:
        """At each of ``count`` moments the values by name; None where the query failed."""
        step = 0
        for part, path in self.files:
            yield from [None] * (part.start - step)
            columns = load(path).values.items()
            for index in range(len(part)):
                found = ((name, values[index]) for name, values in columns)
                yield {name: value for name, value in found if value is not None}
            step = part.stop
        yield from [None] * (count - step)


@dataclass(slots=True)
class Fetcher:
    """Queries the parts. ``folder`` holds what came; ``address``: of the server, which is a part of
    the files' names.
    """

    source: PrometheusSource
    window: Window
    folder: Path
    address: str
    pauses: tuple[float, ...] = (0.5, 2.0)
    """Seconds before a query that failed is sent again."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT))

    async def fetch(self, queries: Mapping[Query, int]) -> dict[Query, Past]:
        """``queries``: with the number of series that each is expected to have. What failed is in
        ``missing``.
        """
        plans = {query: list(parts_of(self.window, series)) for query, series in queries.items()}
        pasts = await asyncio.gather(
            *(self._query(query, plan, queries[query]) for query, plan in plans.items())
        )
        return dict(zip(plans, pasts, strict=True))

    async def _query(self, query: Query, plan: Sequence[Part], series: int) -> Past:
        past, failed = Past(), 0
        for part in plan:
            if failed == GIVE_UP:
                past.missing.append(Missing(part, past.missing[-1].error))
                continue
            async with self._slots:
                is_whole = await self._part(query, past, part, series)
            failed = 0 if is_whole else failed + 1
        return past

    async def _part(
        self, query: Query, past: Past, part: Part, series: int, splits: int = SPLITS
    ) -> bool:
        """Whether all of it came."""
        path = self._path(query, part)
        block = _kept(path, part)
        if block is None:
            answer = await self._ask(query, past, part, series)
            if answer.error is not None:
                if splits and len(part) > 1 and _TOO_LARGE.search(answer.error):
                    half = len(part) // 2
                    first = await self._part(query, past, part[:half], series, splits - 1)
                    second = await self._part(query, past, part[half:], series, splits - 1)
                    return first and second
                past.missing.append(Missing(part, answer.error))
                return False
            block = to_block(answer, query, self.window, part)
            save(path, block)
        past.take(part, path, block)
        return True

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
        text = "\n".join((self.address, query.expr, *query.labels, str(query.higher_is_worse)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        begun = self.window.at(part.start)
        return self.folder / f"{digest}-{begun:.3f}-{self.window.step:g}-{len(part)}.msgpack"


def _kept(path: Path, part: Part) -> Block | None:
    """A whole part that came in an earlier run; partial answers are queried again."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        block = load(path)
        if not block.warnings and all(len(each) == len(part) for each in block.values.values()):
            return block
    return None


def to_block(answer: RangeResult, query: Query, window: Window, part: Part) -> Block:
    """An answer by node and moment. Of several series of a node the worst value counts."""
    worse = max if query.higher_is_worse else min
    block, start = Block({}, warnings=answer.warnings), window.at(part.start)
    for series in answer.series:
        name = next((series.labels[each] for each in query.labels if each in series.labels), None)
        if name is None:
            block.unnamed += 1
            continue
        values = block.values.setdefault(name, [None] * len(part))
        for at, value in series.points:
            index = round((at - start) / window.step)
            # A server may give other moments than the requested ones.
            if 0 <= index < len(part) and math.isfinite(value):
                before = values[index]
                values[index] = value if before is None else worse(before, value)
    return block


def save(path: Path, block: Block) -> None:
    """ExpectedError: the disk is full. `_kept` does not use a file that is not whole."""
    try:
        path.write_bytes(msgspec.msgpack.encode(block))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ExpectedError(
            f"the history cannot be kept in {path.parent}: {error.strerror}; free some space, or "
            "name another directory with --cache"
        ) from error


def load(path: Path) -> Block:
    """Read a block. OSError or msgspec.DecodeError if the file has none."""
    return msgspec.msgpack.decode(path.read_bytes(), type=Block)
