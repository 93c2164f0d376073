from __future__ import annotations

from dataclasses import replace

import pytest
from builders import NOON, rule_set

from dynsched.core.health import why_unhealthy
from dynsched.core.message_kind import kind_of
from dynsched.core.model import NodeView, Quality, RuleHealth, Snapshot


def snapshot(error: str | None = None) -> Snapshot:
    return Snapshot(
        taken_at=NOON, tick=1, duration=0.1, rule_set=rule_set(), nodes={}, rules=(), error=error
    )


def test_before_the_first_tick() -> None:
    assert why_unhealthy(None, 0, 10) == "no tick has finished yet"


@pytest.mark.parametrize(
    ("age", "interval", "reason"),
    [
        (0, 10, None),
        (30, 10, None),
        (30.6, 10, "the last tick finished 31s ago"),
        (30, 1, None),  # however short the interval, a query may take its time
        (31, 1, "the last tick finished 31s ago"),
        (180, 60, None),
        (181, 60, "the last tick finished 3m1s ago"),
        (7200, 10, "the last tick finished 2h ago"),
    ],
)
def test_a_tick_that_is_overdue(age: float, interval: float, reason: str | None) -> None:
    assert why_unhealthy(snapshot(), age, interval) == reason


def test_the_ticks_own_error() -> None:
    failed = snapshot("no rule could be queried: connection refused")
    assert why_unhealthy(failed, 1, 10) == "no rule could be queried: connection refused"


def seen(quality: Quality, samples: int = 3) -> Snapshot:
    rules = rule_set()
    health = RuleHealth(
        *(rules.rules[0], None, (), 0.1, NOON, samples, 0), quality={quality: 3}, states={}
    )
    return replace(
        snapshot(),
        rules=(health,),
        nodes={"n1": NodeView("n1", None, (), pressured=False, since=None, alerts=())},
    )


@pytest.mark.parametrize("quality", [Quality.MISSING, Quality.STALE, Quality.INVALID])
def test_rules_that_answer_and_say_nothing_usable_of_any_node_are_not_well(quality) -> None:
    reason = why_unhealthy(seen(quality), 1, 10)
    assert reason is not None
    assert reason.endswith(f"of any node: none of its readings is usable (3 {quality})")


def test_a_query_without_a_result_is_not_well_where_no_other_rule_sees() -> None:
    reason = str(why_unhealthy(seen(Quality.MISSING, samples=0), 1, 10))
    assert "the query's result is empty" in reason


def test_one_reading_of_one_node_is_well() -> None:
    assert why_unhealthy(seen(Quality.OK), 1, 10) is None


def test_overdue_says_more_than_an_old_error() -> None:
    assert why_unhealthy(snapshot("old"), 60, 10) == "the last tick finished 1m ago"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer within 8s", "no answer within 7.9s"),
        ("'10.0.0.7:9100': no node has this name", "'abc': no node has this name"),
        ('HTTP 500: "request id xyz"; look at it', 'HTTP 500: "request id abc"; look at it'),
        ("the answer of 812 bytes is cut short", "the answer of 1024 bytes is cut short"),
        ("no node 'a'", "no node 'a', 'b', 'c'"),
        (
            "more than one node has the address 10.0.0.7: n1, n2",
            "more than one node has the address fd00::7: n3, n4, n5",
        ),
        ("Prometheus's answer is 'a'", "Prometheus's answer is 'b'"),
    ],
)
def test_the_same_trouble_in_other_numbers_and_names(one: str, other: str) -> None:
    assert kind_of(one) == kind_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP 500 Internal Server Error", "HTTP 503 Service Unavailable"),
        ("connection refused", "no answer within 8s"),
        ("the query's result is empty", "'a': no node has this name or address"),
        ("they differ in cluster", "they differ in cluster, job"),
        ("Prometheus's answer isn't JSON", "Prometheus's answer isn't there"),
    ],
)
def test_another_trouble(one: str, other: str) -> None:
    assert kind_of(one) != kind_of(other)
