"""Alerts in columns are the alerts that come out one by one, whatever comes."""

import math

import pytest
from builders import NOON, rule, rule_set
from evaluating import Reading, RuleReadings, alerts_of, evaluate, table_of, verdicts_of
from hypothesis import given
from hypothesis import strategies as st
from plain_alerts import Plain, plainly
from properties import steady

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.restore import adopted
from dynsched.engine.columns import RangeVector, Roster
from dynsched.engine.model import Node, Quality, Series
from dynsched.engine.nodes.mark_state import mark_state

RULES = [
    rule("cpu", clear_threshold=75, for_="20s", keep_firing_for="20s"),
    rule("free", op="<=", threshold=80, clear_threshold=85, on_stale="hold", stale_after="1m"),
    rule("some", selector="pool=x", threshold=0, op=">="),
    rule("trial", shadow=True),
    rule("mem", for_="10s"),
    # what a reload may make of them
    rule("cpu", threshold=85, clear_threshold=80, for_="1m", keep_firing_for="1m"),
    rule("free", op=">", threshold=75, for_="10s", stale_after="1m"),
]
VALUES = st.sampled_from([-1e308, -1.0, 0.0, 74.0, 75.0, 80.0, 81.0, 85.0, 86.0, 1e308])
ENTRIES = st.tuples(
    VALUES | st.sampled_from([math.nan, math.inf]), st.sampled_from([0.0, 61, 500, -3600])
)
NODES = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.sampled_from("12"), st.sampled_from("xy")), max_size=4
)
NAMES = ["cpu", "free", "some", "trial", "mem"]
TICKS = st.tuples(
    st.sampled_from([0.0, 10.0, 10.0, 25.0, 70.0, 400.0, -15.0, -400.0]),
    NODES,
    st.dictionaries(
        st.sampled_from(NAMES),
        st.none() | st.dictionaries(st.sampled_from("abcd"), ENTRIES, max_size=4),
    ),
    st.sets(st.sampled_from(range(len(RULES))), min_size=1),
)


def read(answer: dict[str, tuple[float, float]] | None, now: float) -> RuleReadings:
    if answer is None:
        return RuleReadings(failed=True)
    return RuleReadings(
        {
            name: Reading(
                *(name, value, now - age), Quality.OK if math.isfinite(value) else Quality.INVALID
            )
            for name, (value, age) in answer.items()
        }
    )


STAYING = {"a": ("1", "x"), "b": ("1", "y")}
ANSWERED = st.fixed_dictionaries({}, optional=dict.fromkeys(STAYING, ENTRIES))
ALIVE = st.tuples(
    st.sampled_from([10.0, 10.0, 25.0, -400.0]),
    st.just(STAYING),
    st.fixed_dictionaries(dict.fromkeys(NAMES, ANSWERED)),
    st.sampled_from([{0, 1, 2, 3, 4}, {2, 3, 4, 5, 6}]),
)
HISTORIES = st.lists(TICKS, max_size=8) | st.lists(ALIVE, min_size=4, max_size=12)


@steady(300)
@given(HISTORIES, st.booleans(), st.booleans())
def test_columns_say_what_the_plain_form_says(ticks, same_rules, is_marked) -> None:
    """Over ticks in which nodes come, go and are replaced, rules are reloaded, clocks are set, and
    queries fail; or in which the same nodes have values, so that alerts fire, are kept and clear.
    At first a marked node may be adopted.
    """
    marked = {"a": Node("a", uid="1")} if is_marked else {}
    plain: Plain = {
        name: {
            node: adopted(made, [mark_state(each, made.mark)], NOON)[0]
            for node, each in marked.items()
        }
        for name in ("cpu", "free")
        for made in [rule_set(rule(name))]
    }
    alerts = table_of(plain, ["cpu", "free"], Roster(marked.values()))
    now = NOON
    for seconds, found, answers, chosen in ticks:
        now += seconds
        numbers = range(5) if same_rules else sorted(chosen)
        rules = rule_set(*{RULES[number]["name"]: RULES[number] for number in numbers}.values())
        nodes = {
            name: Node(name, uid=uid, labels={"pool": pool}) for name, (uid, pool) in found.items()
        }
        readings = {
            name: read(answer, now) for name, answer in answers.items() if name in rules.by_name
        }
        now_are = evaluate(rules, readings, nodes, alerts, now)
        plain, verdicts = plainly(rules, readings, nodes, plain, now)
        alerts = now_are.alerts
        assert alerts_of(alerts) == plain
        assert verdicts_of(now_are) == verdicts
        # The same in objects, and back: nothing is lost between the two forms.
        again = table_of(plain, list(rules.by_name), Roster(nodes.values()))
        assert alerts_of(again) == plain


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
