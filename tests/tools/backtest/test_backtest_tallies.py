"""A replay in numbers."""

import pytest

from dynsched.tools.backtest.replay import Runs
from dynsched.tools.backtest.summary import cells, tally

STEP = 60.0


def runs(text: str) -> Runs:
    """``#`` where it is active."""
    found = Runs()
    for step, mark in enumerate(text):
        if mark == "#":
            found.add(step)
    return found


def test_runs_have_a_beginning_and_an_end() -> None:
    found = [runs(text) for text in ("##..#", ".....", "..###")]
    assert [each.runs for each in found] == [[[0, 2], [4, 5]], [], [[2, 5]]]
    assert [each.steps for each in found] == [3, 0, 3]
    numbers = tally(found, 15, STEP)
    assert (numbers["marks"], numbers["node_time_marked"]) == (3, 0.4)
    assert (numbers["median_mark_seconds"], numbers["longest_mark_seconds"]) == (120, 180)


@pytest.mark.parametrize(
    ("nodes", "flaps"),
    [
        (["#" + "." * 10 + "#."], 1),  # within ten minutes of the one before on the same node
        (["#" + "." * 11 + "#"], 0),
        (["#............", "..#.........."], 0),
    ],
)
def test_a_flap_follows_soon_on_the_same_node(nodes: list[str], flaps: int) -> None:
    assert tally(map(runs, nodes), 13, STEP)["flaps"] == flaps


@pytest.mark.parametrize("steps", [1, 3, 7, 56, 100])
def test_cells_cover_the_whole_time(steps: int) -> None:
    assert cells(runs("#" * steps), steps, 7) == [1.0] * min(7, steps)
    assert not any(cells(runs("." * steps), steps, 7))


def test_a_cell_is_the_share_of_its_time() -> None:
    assert cells(runs("##.#...#"), 8, 4) == [1.0, 0.5, 0.0, 0.5]
