"""Columns of alerts and of series."""

import pytest
from builders import NOON, rule, rule_set
from evaluating import Reading, RuleReadings, alerts_of, evaluate
from hypothesis import given
from hypothesis import strategies as st

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.columns import RangeVector
from dynsched.engine.model import Node, Series


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_was_set_moves_all_times_of_an_alert(seconds: float) -> None:
    rules = rule_set(rule("cpu", for_="1m"), rule("mem", keep_firing_for="1m"))
    nodes = {"a": Node("a")}
    table = no_alerts()
    for at, value in ((0.0, 90.0), (10.0, 95.0), (20.0, 20.0)):
        answers = {
            "cpu": RuleReadings({"a": Reading("a", 90.0, NOON + at)}),
            "mem": RuleReadings({"a": Reading("a", value, NOON + at)}),
        }
        table = evaluate(rules, answers, nodes, table, NOON + at).alerts
    times = ("since", "updated_at", "known_at", "sampled_at", "active_since", "keep_firing_since")
    for name in ("cpu", "mem"):
        before, after = (alerts_of(each)[name]["a"] for each in (table, table.shifted(seconds)))
        for time in times:
            old = getattr(before, time)
            assert getattr(after, time) == (None if old is None else old + seconds), time
        assert (after.state, after.value, after.uid) == (before.state, before.value, before.uid)
    assert alerts_of(table)["mem"]["a"].keep_firing_since is not None
    assert alerts_of(table)["cpu"]["a"].active_since is not None


@given(
    st.lists(st.lists(st.integers(0, 40), unique=True, max_size=6).map(sorted), max_size=4),
    st.integers(-5, 45),
    st.integers(0, 20),
)
def test_the_last_point_of_each_series_within_a_span(times, since, length) -> None:
    series = [
        Series({"node": str(number)}, tuple((float(at), float(number + at)) for at in found))
        for number, found in enumerate(times)
    ]
    spans = RangeVector.of(series)
    assert list(spans) == series
    assert spans[-len(series) :] == series
    within = [[at for at in found if since < at <= since + length] for found in times]
    assert [
        (s.labels["node"], s.value, s.timestamp) for s in spans.last(since, since + length)
    ] == [
        (str(number), number + found[-1], found[-1]) for number, found in enumerate(within) if found
    ]
