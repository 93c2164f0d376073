"""How much of the nodes' time was hot, by day: what is counted, and whose word counts."""

import pytest
from snapshots import NOON

from dynsched.engine.placing.placements import DAY, DAYS, MAX_SECONDS, Overload, day_name, day_of

TODAY = day_of(NOON)
MIDNIGHT = (TODAY + 1) * DAY


def counted(*ticks, overload=None):
    """``ticks``: seconds after noon, hot nodes, all nodes."""
    overload = overload or Overload()
    for seconds, hot, nodes in ticks:
        overload.count(hot, nodes, NOON + seconds)
    return overload


def test_before_anything_is_known_there_is_nothing_to_show() -> None:
    assert Overload().columns(NOON) is None
    assert counted((0, 5, 10)).columns(NOON) is None  # of one tick there is no time


def test_the_share_is_of_node_time_and_not_of_ticks() -> None:
    overload = counted((0, 0, 10), (100, 10, 10), (400, 0, 10))
    assert overload.columns(NOON + 400) == {"days": ["2026-11-20"], "share": [0.25]}


def test_each_day_has_its_own() -> None:
    overload = counted((0, 0, 4), (60, 1, 4))
    overload.count(0, 0, MIDNIGHT)
    overload.count(2, 4, MIDNIGHT + 60)
    assert overload.columns(MIDNIGHT + 60) == {
        "days": ["2026-11-20", "2026-11-21"],
        "share": [0.25, 0.5],
    }


def test_time_of_which_nothing_is_known_does_not_count() -> None:
    overload = counted((0, 0, 4), (60, 4, 4))
    overload.count(0, 0, NOON + 500)
    counted((560, 0, 4), overload=overload)
    assert overload.columns(NOON + 560)["share"] == [0.5]


def test_a_long_pause_is_no_long_overload() -> None:
    overload = counted((0, 0, 4), (MAX_SECONDS, 0, 4), (20 * MAX_SECONDS, 4, 4))
    assert overload.columns(NOON + 20 * MAX_SECONDS)["share"] == [0.5]


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    overload = counted((0, 0, 4), (60, 2, 4), (-3600, 0, 4), (-3540, 2, 4))
    assert overload.columns(NOON)["share"] == [0.5]


def test_days_before_the_start_are_as_prometheus_knows_them_with_gaps() -> None:
    overload = counted((0, 0, 4), (60, 4, 4))
    overload.set_known_shares({TODAY - 3: 0.125, TODAY - 1: 0.0}, NOON)
    assert overload.columns(NOON + 60) == {
        "days": [day_name(TODAY - ago) for ago in (3, 2, 1, 0)],
        "share": [0.125, None, 0.0, 1.0],
    }


@pytest.mark.parametrize(("told_at", "share"), [(NOON + 30, 0.75), (TODAY * DAY + 30, 1.0)])
def test_of_today_the_word_counts_that_is_of_more_of_the_day(told_at, share) -> None:
    overload = counted((0, 0, 4), (60, 4, 4))
    overload.set_known_shares({TODAY: 0.75}, told_at)
    assert overload.columns(NOON + 60)["share"] == [share]


def test_it_keeps_a_week() -> None:
    overload = Overload()
    for day in range(30):
        overload.set_known_shares({TODAY + day: 0.5}, NOON + day * DAY)
        counted((day * DAY, 1, 4), (day * DAY + 60, 1, 4), overload=overload)
    columns = overload.columns(NOON + 29 * DAY)
    assert columns["days"] == [day_name(TODAY + day) for day in range(30 - DAYS, 30)]
    assert len(overload._known) == len(overload._seen) == DAYS
