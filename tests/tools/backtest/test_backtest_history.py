"""Fetching the history in parts: queries, failures, and kept values."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import pytest
from builders import NOON

from dynsched.core.samples import Series
from dynsched.sources.prometheus import RangeResult
from dynsched.tools.backtest.history import (
    Past,
    Query,
    Window,
    fetch,
    parts_of,
    window_of,
)
from dynsched.util.errors import ExpectedError

START = 1_700_000_100.0
STEP = 30.0
LABELS = ("node", "instance")
CPU = Query("cpu", LABELS, higher_is_worse=True)


def series(values: list[float], start: float = START, **labels: str) -> Series:
    return Series(labels, tuple((start + n * STEP, value) for n, value in enumerate(values)))


@dataclass
class Server:
    """Returns 7 for node ``a`` at every step, or the error that ``error_of`` returns."""

    error_of: Callable[[float, float], str | None] = lambda _start, _end: None
    warnings: tuple[str, ...] = ()
    queries: int = 0

    async def query_range(
        self, expr: str, start: float, end: float, step: float, **_: object
    ) -> RangeResult:
        self.queries += 1
        error = self.error_of(start, end)
        if error is not None:
            return RangeResult(error=error)
        count = round((end - start) / step) + 1
        return RangeResult((series([7.0] * count, start, node="a"),), warnings=self.warnings)


def window(count: int) -> Window:
    return Window(START, STEP, count)


async def fetched(server: Server, count: int, expected: int) -> Past:
    return (await fetch(server, window(count), {CPU: expected}))[CPU]


def column(past: Past) -> list[float | None]:
    """The values of node ``a`` by step; None if there is none or the query failed."""
    return [values.get("a") for values in past.by_step()]


def test_times_are_multiples_of_the_step() -> None:
    found = window_of(NOON + 7, NOON + 100, 30)
    assert (found.start % 30, found.start >= NOON + 7) == (0, True)
    assert found.end <= NOON + 100
    with pytest.raises(ExpectedError, match="no moment"):
        window_of(NOON + 1, NOON + 2, 30)


@pytest.mark.parametrize("number", [1, 200, 10_000_000])
def test_parts_cover_every_step_once(number: int) -> None:
    whole = Window(START, STEP, 40_000 if number < 5_000 else 200)
    parts = list(parts_of(whole, number))
    assert [p.start for p in parts] + [whole.count] == [0, *accumulate(len(p) for p in parts)]
    most = max(len(part) for part in parts)
    assert most <= 8192
    assert most * number <= 250_000 or most == 1


ODD = [math.nan, math.inf, -math.inf, 4]
LATER = series([3, 4], START + 2 * STEP, node="a", z="y")
TWO = [series([1, 9] * 20, node="a", d="x"), series([5, 3] * 20, node="a")]


@pytest.mark.parametrize(
    ("found", "higher_is_worse", "wanted"),
    [
        # The series' labels change in the middle.
        ([series([1, 2], node="a", z="x"), LATER], True, [1, 2, 3, 4]),
        # Of several series for one node the worst value counts.
        (TWO, True, [5, 9] * 20),
        (TWO, False, [1, 3] * 20),
        # Values that are not finite are unknown. A series without a node is left out.
        ([series(ODD, node="a"), series([1], cluster="x")], True, [None, None, None, 4]),
        # Times that were not queried are left out.
        ([series([1, 2, 3], START - STEP, node="a")], True, [2, 3]),
    ],
)
def test_a_query_result_becomes_one_value_per_node_and_step(found, higher_is_worse, wanted) -> None:
    past = Past(Query("cpu", LABELS, higher_is_worse), window(len(wanted)))
    past.take(range(len(wanted)), RangeResult(tuple(found)))
    assert column(past) == wanted


async def test_after_a_failed_part_nothing_is_known_and_a_partial_result_is_a_warning() -> None:
    count, expected, length = 1500, 2000, 125  # steps per part

    def the_third_is_broken(start: float, _: float) -> str | None:
        return "HTTP 500: block" if round((start - START) / STEP) == 2 * length else None

    server = Server(the_third_is_broken, ("store is gone",))
    past = await fetched(server, count, expected)
    assert (past.error, past.end, server.queries) == ("HTTP 500: block", 2 * length, 3)
    assert column(past) == [7.0] * past.end + [None] * (count - past.end)
    assert past.warnings == {"store is gone"}
