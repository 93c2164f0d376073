"""A replay in numbers."""

import numpy as np
import pytest

from dynsched.tools.backtest.summary import cells, runs_of, tally

STEP = 60.0


def lanes(*rows: str) -> np.ndarray:
    """A row for each lane, ``#`` where it is active -> shape (steps, lanes)."""
    return np.array([[mark == "#" for mark in row] for row in rows]).T


def test_runs_are_found_by_lane_and_time() -> None:
    found = runs_of(lanes("##..#", ".....", "..###"))
    assert np.transpose(found).tolist() == [[0, 0, 2], [0, 4, 5], [2, 2, 5]]


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


@pytest.mark.parametrize("steps", [1, 3, 7, 56, 100])
def test_cells_cover_the_whole_time(steps: int) -> None:
    active = np.ones((steps, 2), bool)
    active[:, 1] = False
    found = cells(active, 7)
    assert found.shape == (min(7, steps), 2)
    assert found[:, 0].tolist() == [1.0] * min(7, steps)
    assert not found[:, 1].any()
