"""The history in parts: what is asked for, what fails, what is kept."""

from __future__ import annotations

import errno
import math
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from builders import NOON, rule, rule_set

from dynsched.backtest.columns import to_block
from dynsched.backtest.fetching import GIVE_UP, Fetcher, Past, Query
from dynsched.backtest.steps import Part, Window, parts_of, step_within, window_of
from dynsched.core.answers import AnswerLimit
from dynsched.core.errors import ExpectedError
from dynsched.sources.prometheus import LongResult, LongSeries

START = 1_700_000_100.0
STEP = 30.0
CPU = Query("cpu", ("node", "instance"), rises=True)


def series(values: list[float], start: float = START, **labels: str) -> LongSeries:
    times = array("d", [start + number * STEP for number in range(len(values))])
    return LongSeries(labels, times, array("d", values))


@dataclass
class Server:
    """Answers 7 for node ``a`` at every step; ``answer`` may say otherwise."""

    answer: Callable[[float, float], str | None] = lambda _start, _end: None
    warnings: tuple[str, ...] = ()
    asked: list[tuple[float, float]] = field(default_factory=list)

    async def query_long(
        self,
        expr: str,
        start: float,
        end: float,
        step: float,
        *,
        label: str = "instance",
        limit: AnswerLimit | None = None,
    ) -> LongResult:
        self.asked.append((start, end))
        error = self.answer(start, end)
        if error is not None:
            return LongResult(error=error)
        count = round((end - start) / step) + 1
        return LongResult((series([7.0] * count, start, node="a"),), warnings=self.warnings)


def window(count: int) -> Window:
    return Window(START, STEP, count)


async def fetch(server: Server, folder: Path, count: int, expected: int) -> Past:
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 (a directory of the test)
    found = await Fetcher(server, window(count), folder, "x", pauses=(0.0, 0.0)).fetch(
        {CPU: expected}
    )
    return found[CPU]


def column(past: Past, count: int) -> list[float]:
    return past.values(0, count, {"a": 0}, 1, rises=True)[:, 0].tolist()


# Which moments, in which parts


def test_the_moments_are_multiples_of_the_step() -> None:
    found = window_of(NOON + 7, NOON + 100, 30)
    assert (found.start % 30, found.start >= NOON + 7) == (0, True)
    assert found.end <= NOON + 100
    with pytest.raises(ExpectedError, match="no moment"):
        window_of(NOON + 1, NOON + 2, 30)


def test_the_step_grows_in_whole_steps_until_the_budget_is_kept() -> None:
    assert step_within(1000, 30, 0, 3000, 9) == 30
    assert step_within(1000, 30, 0, 30_000, 1) == 60
    assert step_within(10, 30, 0, 30_000, 100) >= 30 * 10_000


@pytest.mark.parametrize("number", [1, 200, 5_000, 10_000_000])
def test_parts_cover_every_step_once_and_are_the_same_a_minute_later(number: int) -> None:
    whole = Window(START, STEP, 40_000 if number < 5_000 else 200)
    parts = list(parts_of(whole, number))
    assert [part.first for part in parts] == [
        0,
        *np.cumsum([part.count for part in parts])[:-1].tolist(),
    ]
    assert sum(part.count for part in parts) == whole.count
    assert all(part.count <= 8192 for part in parts)
    assert all(part.count * number <= 250_000 or part.count == 1 for part in parts)
    later = Window(START + 2 * STEP, STEP, whole.count)
    moments = {(whole.at(part.first), part.count) for part in parts[2:-1]}
    assert moments <= {(later.at(part.first), part.count) for part in parts_of(later, number)}


# From series to columns


def test_a_series_that_changes_its_labels_in_the_middle_is_one_column() -> None:
    block = to_block(
        [
            series([1.0, 2.0], node="a", zone="x"),
            series([3.0, 4.0], START + 2 * STEP, node="a", zone="y"),
        ],
        ("node",),
        window(4),
        Part(0, 4),
        rises=True,
    )
    assert block.names == ("a",)
    assert block.values[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert not block.several


@pytest.mark.parametrize(("rises", "wanted"), [(True, [5.0, 9.0]), (False, [1.0, 3.0])])
def test_of_several_series_of_a_node_the_worst_value_counts(
    rises: bool, wanted: list[float]
) -> None:
    both = [
        series([1.0, 9.0] * 20, node="a", disk="x"),
        series([5.0, 3.0] * 20, node="a", disk="y"),
    ]
    block = to_block(both, ("node",), window(40), Part(0, 40), rises=rises)
    assert block.values[:, 0].tolist() == wanted * 20
    assert block.several == {"a"}


def test_what_is_no_finite_number_is_not_known() -> None:
    odd = series([math.nan, math.inf, -math.inf, 4.0], node="a")
    bare = series([1.0], cluster="x")
    block = to_block([odd, bare], ("node", "instance"), window(4), Part(0, 4), rises=True)
    assert np.isnan(block.values[:3, 0]).all()
    assert block.values[3, 0] == 4.0
    assert block.unnamed == 1


def test_moments_that_were_not_asked_for_are_left_out() -> None:
    early = series([1.0, 2.0, 3.0], START - STEP, node="a")
    block = to_block([early], ("node",), window(2), Part(0, 2), rises=True)
    assert block.values[:, 0].tolist() == [2.0, 3.0]


# From the server, with failures


async def test_a_part_that_is_too_large_is_halved_until_it_is_answered(tmp_path: Path) -> None:
    server = Server(
        lambda start, end: (
            "HTTP 422: execution: query processing would load too many samples into memory in "
            "query execution"
            if end - start > 20 * STEP
            else None
        )
    )
    past = await fetch(server, tmp_path, 100, 1)
    assert not past.missing
    assert column(past, 100) == [7.0] * 100


async def test_a_part_that_failed_once_is_asked_for_again(tmp_path: Path) -> None:
    errors = ["HTTP 503: starting", "connection refused", None]
    past = await fetch(Server(lambda *_: errors.pop(0)), tmp_path, 10, 1)
    assert not past.missing
    assert past.asked == 3


async def test_a_refusal_is_not_asked_for_again(tmp_path: Path) -> None:
    past = await fetch(Server(lambda *_: "HTTP 403: no"), tmp_path, 10, 1)
    assert past.asked == 1
    assert [missing.error for missing in past.missing] == ["HTTP 403: no"]


async def test_a_part_that_fails_leaves_a_hole_and_the_next_run_asks_only_for_it(
    tmp_path: Path,
) -> None:
    count, expected = 1000, 2000  # parts of 64 steps
    bad = START + 300 * STEP
    broken = Server(lambda start, end: "HTTP 500: block is broken" if start <= bad <= end else None)
    past = await fetch(broken, tmp_path, count, expected)
    assert len(past.missing) == 1
    lost = past.missing[0].part
    values = column(past, count)
    assert np.isnan(values[lost.first : lost.first + lost.count]).all()
    assert sum(map(math.isnan, values)) == lost.count

    mended = Server()
    past = await fetch(mended, tmp_path, count, expected)
    assert len(mended.asked) == 1
    assert column(past, count) == [7.0] * count


async def test_a_server_that_is_gone_is_not_asked_for_every_part(tmp_path: Path) -> None:
    server = Server(lambda *_: "connection refused")
    past = await fetch(server, tmp_path, 5000, 2000)
    assert len(server.asked) == 3 * GIVE_UP
    assert sum(missing.part.count for missing in past.missing) == 5000


async def test_partial_answers_are_used_and_asked_for_again_by_the_next_run(tmp_path: Path) -> None:
    past = await fetch(Server(warnings=("store is gone",)), tmp_path, 10, 1)
    assert column(past, 10) == [7.0] * 10
    assert list(past.warnings) == ["store is gone"]
    again = Server()
    past = await fetch(again, tmp_path, 10, 1)
    assert len(again.asked) == 1
    assert not past.warnings


async def test_a_damaged_file_is_asked_for_again(tmp_path: Path) -> None:
    await fetch(Server(), tmp_path, 10, 1)
    (kept,) = list(tmp_path.iterdir())  # noqa: ASYNC240 (a directory of one file)
    kept.write_bytes(kept.read_bytes()[:50])
    past = await fetch(Server(), tmp_path, 10, 1)
    assert column(past, 10) == [7.0] * 10


async def test_a_full_disk_is_one_line_and_leaves_no_half_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills(file: IO[bytes], **_: object) -> None:
        file.write(b"as much as fits")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", fills)
    with pytest.raises(ExpectedError) as refused:
        await fetch(Server(), tmp_path, 10, 1)
    assert str(refused.value) == (
        f"the history cannot be kept in {tmp_path}: No space left on device; free some space, or "
        "name another directory with --cache"
    )
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 (an empty directory)


def test_rules_with_the_same_query_share_it() -> None:
    made = rule_set(
        rule("one", expr="x"), rule("two", expr="x", threshold=90), rule("down", expr="x", op="<")
    )
    one, two, down = (Query.of(each) for each in made.file_rules)
    assert one == two
    assert one != down  # of several series of a node another is the worst


async def test_a_part_that_takes_too_long_is_halved_twice_at_most(tmp_path: Path) -> None:
    words = "no answer within 120 s (while waiting for the answer)"
    hanging = Server(lambda *_: words)
    past = await fetch(hanging, tmp_path / "a", 5000, 2000)
    assert len(hanging.asked) == 1 + 2 + 4
    assert sum(missing.part.count for missing in past.missing) == 5000
    slow = Server(lambda start, end: words if end - start > 40 * STEP else None)
    past = await fetch(slow, tmp_path / "b", 200, 2000)
    assert not past.missing
