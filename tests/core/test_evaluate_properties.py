"""What holds of alerts whatever comes: odd values, gaps, failures, a clock that jumps."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from builders import NOON, named, rule, rule_set
from evaluating import RuleReadings, evaluate
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from properties import steady

from dynsched.core.alerts import Alerts
from dynsched.core.model import Alert, AlertState, Quality, Reading
from dynsched.core.rules import RuleSet

INACTIVE, PENDING, FIRING = AlertState

STALE_AFTER = 60.0
RULES = st.builds(
    rule,
    op=st.sampled_from([">", ">=", "<", "<="]),
    threshold=st.just(80),
    for_=st.sampled_from(["0s", "20s", "45s"]),
    keep_firing_for=st.sampled_from(["0s", "20s", "45s"]),
    on_stale=st.sampled_from(["release", "hold"]),
    stale_after=st.just("1m"),
    band=st.sampled_from([0, 5]),
)


def with_band(raw: dict[str, Any]) -> dict[str, Any]:
    band = raw.pop("band")
    return {**raw, "clear_threshold": 80 - band if raw["op"] in (">", ">=") else 80 + band}


VALUES = st.sampled_from([0.0, 74.0, 75.0, 79.0, 80.0, 81.0, 85.0, 86.0, math.nan, math.inf])
READINGS = st.tuples(VALUES, st.sampled_from([0.0, 1.0, 30.0, 60.0, 61.0, 500.0, -20.0]))
ENTRIES = st.none() | st.just("missing") | READINGS  # None: the query failed
TIMELINES = st.lists(
    st.tuples(st.sampled_from([0.0, 5.0, 10.0, 10.0, 20.0, 50.0, 70.0, -15.0, -400.0]), ENTRIES),
    min_size=1,
    max_size=25,
)


def observe(entry: object, now: float, node: str = "n1") -> RuleReadings:
    if entry is None:
        return RuleReadings(failed=True)
    if not isinstance(entry, tuple):
        return RuleReadings({})
    value, age = entry
    quality = Quality.OK if math.isfinite(value) else Quality.INVALID
    return RuleReadings({node: Reading(node, value, now - age, quality)})


def alerts_of(rules: RuleSet, timeline: list[tuple[float, object]]) -> list[Alert]:
    alerts: Alerts = {}
    now, found = NOON, []
    for seconds, entry in timeline:
        now += seconds
        alerts = evaluate(rules, {"cpu": observe(entry, now)}, named("n1"), alerts, now).alerts
        found.append(alerts["cpu"]["n1"])
    return found


@steady(500)
@given(raw=RULES.map(with_band), timeline=TIMELINES)
def test_time_never_runs_backwards_inside_an_alert(
    raw: dict[str, Any], timeline: list[tuple[float, object]]
) -> None:
    found = alerts_of(rule_set(raw), timeline)
    for before, after in pairwise(found):
        assert after.updated_at >= before.updated_at
        assert after.known_at >= before.known_at
        assert after.since >= before.since
        assert (after.since == before.since) or after.state is not before.state
    now = NOON
    for (seconds, _), alert in zip(timeline, found, strict=True):
        now += seconds
        assert alert.updated_at >= now
        assert alert.since <= alert.updated_at
        assert alert.known_at <= alert.updated_at
        assert (alert.active_since is None) == (alert.state is INACTIVE)
        assert alert.active_since is None or alert.active_since <= alert.since
        assert alert.keep_firing_since is None or alert.state is FIRING
        assert alert.keep_firing_since is None or alert.since <= alert.keep_firing_since


@steady(500)
@given(raw=RULES.map(with_band), timeline=TIMELINES)
def test_transitions(raw: dict[str, Any], timeline: list[tuple[float, object]]) -> None:
    rules = rule_set(raw)
    (the_rule,) = rules.rules
    found = alerts_of(rules, timeline)
    breach_began: float | None = None
    cool_began: float | None = None
    began = NOON + timeline[0][0]
    before = Alert("cpu", "n1", INACTIVE, since=began, updated_at=began, known_at=began)
    for (_, entry), alert in zip(timeline, found, strict=True):
        change = (before.state, alert.state)
        if alert.quality is Quality.OK:
            assert isinstance(entry, tuple)
            assert math.isfinite(entry[0])
            assert (alert.value, alert.adopted) == (entry[0], False)
            over = the_rule.breached(entry[0])
            breach_began = None if not over else (breach_began or alert.updated_at)
            cool_began = None if the_rule.holds(entry[0]) else (cool_began or alert.updated_at)
        else:
            # Unknown: all but these two fields is as it was, until nothing has been known for long.
            expired = alert.updated_at - before.known_at > STALE_AFTER
            held = raw["on_stale"] == "hold" and before.state is FIRING
            if before.state is INACTIVE or not expired or held:
                assert alert == replace(before, quality=alert.quality, updated_at=alert.updated_at)
            else:
                assert alert.state is INACTIVE
                breach_began = cool_began = None
        if before.state is not FIRING and alert.state is FIRING:
            assert breach_began is not None
            assert alert.updated_at - breach_began >= the_rule.hold_duration
        if change == (FIRING, INACTIVE) and alert.quality is Quality.OK:
            assert cool_began is not None
            assert alert.updated_at - cool_began >= the_rule.keep_firing_for
        if change in ((INACTIVE, PENDING), (PENDING, PENDING)) and alert.quality is Quality.OK:
            assert breach_began is not None
            assert alert.updated_at - breach_began < the_rule.hold_duration
        if alert.keep_firing_since is not None and alert.quality is Quality.OK:
            assert cool_began is not None
            assert alert.updated_at - cool_began < the_rule.keep_firing_for
        assert change != (FIRING, PENDING)
        before = alert


@steady(300)
@given(raw=RULES.map(with_band), timeline=TIMELINES)
def test_a_value_is_never_nan_nor_from_an_old_sample(
    raw: dict[str, Any], timeline: list[tuple[float, object]]
) -> None:
    found = alerts_of(rule_set(raw), timeline)
    for (_, entry), alert in zip(timeline, found, strict=True):
        assert alert.value is None or math.isfinite(alert.value)
        fresh = isinstance(entry, tuple) and math.isfinite(entry[0]) and entry[1] <= STALE_AFTER
        assert (alert.quality is Quality.OK) == fresh


@steady(200)
@given(
    raws=st.lists(RULES.map(with_band), min_size=2, max_size=3),
    timeline=st.lists(
        st.tuples(
            st.sampled_from([0.0, 10.0, 30.0, 70.0]),
            st.lists(st.lists(ENTRIES, min_size=3, max_size=3), min_size=3, max_size=3),
        ),
        max_size=8,
    ),
)
def test_no_rule_and_no_node_influences_another(
    raws: list[dict[str, Any]], timeline: list[tuple[float, list[list[object]]]]
) -> None:
    """All together gives the same as each rule on each node by itself."""
    names = ["a", "b", "c"]
    raws = [{**raw, "name": f"rule{number}"} for number, raw in enumerate(raws)]
    together: Alerts = {}
    apart: dict[tuple[str, str], Alerts] = {}
    now = NOON
    for seconds, entries in timeline:
        now += seconds
        observations = {}
        for raw, row in zip(raws, entries, strict=False):
            # A query fails for all nodes at once: its first entry says so.
            failed = row[0] is None
            readings = {
                name: reading
                for name, entry in zip(names, row, strict=True)
                for reading in observe(entry, now, name).readings.values()
            }
            observations[raw["name"]] = RuleReadings({} if failed else readings, failed=failed)
        together = evaluate(rule_set(*raws), observations, named(*names), together, now).alerts
        for raw in raws:
            whole = observations[raw["name"]]
            for name in names:
                key = raw["name"], name
                mine = {name: whole.readings[name]} if name in whole.readings else {}
                alone = {raw["name"]: RuleReadings(mine, failed=whole.failed)}
                apart[key] = evaluate(
                    rule_set(raw), alone, named(name), apart.get(key, {}), now
                ).alerts
                assert apart[key][raw["name"]][name] == together[raw["name"]][name]
