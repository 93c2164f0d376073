"""A replay in numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dynsched.tools.backtest.tallies import Runs, RunsInParts, cells, runs_of, tally

STEP = 60.0


def lanes(*rows: str) -> np.ndarray:
    """A row for each lane, ``#`` where it is active -> shape (steps, lanes)."""
    return np.array([[mark == "#" for mark in row] for row in rows]).T


def told(runs: Runs) -> list[tuple[int, ...]]:
    """Lane, begin and end of each."""
    return list(zip(*(of.tolist() for of in (runs.lane, runs.begun, runs.ended)), strict=True))


def test_runs_are_found_by_lane_and_time() -> None:
    found = runs_of(lanes("##..#", ".....", "..###"))
    assert told(found) == [(0, 0, 2), (0, 4, 5), (2, 2, 5)]


@pytest.mark.parametrize(
    ("rows", "flaps"),
    [
        (["#" + "." * 10 + "#."], 1),  # within ten minutes of the one before on the same node
        (["#" + "." * 11 + "#"], 0),
        (["#............", "..#.........."], 0),
    ],
)
def test_a_flap_follows_soon_on_the_same_node(rows: list[str], flaps: int) -> None:
    active = lanes(*rows)
    assert tally(active, np.ones(active.shape, bool), STEP)["flaps"] == flaps


def test_durations_and_shares() -> None:
    found = tally(lanes("##...###..", ".........."), np.ones((10, 2), bool), STEP)
    assert (found["marks"], found["node_time_marked"]) == (2, 0.25)
    assert (found["median_mark_seconds"], found["longest_mark_seconds"]) == (150, 180)
    assert found["marks_per_node_day"] == pytest.approx(2 / (20 / 1440))
    nothing = tally(lanes("....."), np.zeros((5, 1), bool), STEP)
    assert (nothing["marks"], nothing["median_mark_seconds"]) == (0, None)


@pytest.mark.parametrize("steps", [1, 3, 7, 56, 100])
def test_cells_cover_the_whole_time(steps: int) -> None:
    active = np.ones((steps, 2), bool)
    active[:, 1] = False
    found = cells(active, 7)
    assert found.shape == (min(7, steps), 2)
    assert found[:, 0].tolist() == [1.0] * min(7, steps)
    assert not found[:, 1].any()


@pytest.mark.parametrize("part", [1, 2, 5, 9, 100])
def test_runs_that_come_in_parts_are_those_of_the_whole(part: int) -> None:
    active = np.random.default_rng(5).random((30, 4)) < 0.5
    parts = RunsInParts(4, 30)
    for first in range(0, 30, part):
        parts.add(active[first : first + part])
    assert told(parts.runs()) == told(runs_of(active))
    assert told(parts.runs().between(1, 3)) == told(runs_of(active[:, 1:3]))
