from dataclasses import replace

import pytest
from builders import NOON, rule_set

from dynsched.engine.health import why_unhealthy
from dynsched.engine.model import Quality, RuleHealth
from dynsched.engine.snapshot import Snapshot
from dynsched.util.logs import trouble_kind


def snapshot(error: str | None = None) -> Snapshot:
    return Snapshot(
        taken_at=NOON, tick=1, duration=0.1, rule_set=rule_set(), nodes={}, rules=(), error=error
    )


@pytest.mark.parametrize(
    ("age", "interval", "error", "reason"),
    [
        (0, 10, None, None),
        (30, 10, None, None),
        (30.6, 10, None, "31s ago"),
        (30, 1, None, None),  # however short the interval, a query may take its time
        (31, 1, None, "31s ago"),
        (180, 60, None, None),
        (181, 60, None, "3m1s ago"),
        (7200, 10, None, "2h ago"),
        (1, 10, "refused", "refused"),
        (60, 10, "refused", "1m ago"),
    ],
)
def test_a_tick_that_is_overdue_or_failed(age, interval, error, reason) -> None:
    found = why_unhealthy(snapshot(error), age, interval)
    assert found is None if reason is None else str(found).endswith(reason)
    assert why_unhealthy(None, 0, 10) is not None


def seen(quality: Quality, samples: int = 3) -> Snapshot:
    rules = rule_set()
    health = RuleHealth(
        *(rules.rules[0], None, (), 0.1, NOON, samples, 0), quality={quality: 3}, states={}
    )
    return replace(
        snapshot(),
        rules=(health,),
        nodes={"n1": None},  # that there is one is all that counts
    )


@pytest.mark.parametrize("quality", [Quality.MISSING, Quality.STALE, Quality.INVALID])
def test_rules_that_answer_and_say_nothing_usable_of_any_node_are_not_well(quality) -> None:
    assert str(quality) in str(why_unhealthy(seen(quality), 1, 10))
    assert why_unhealthy(seen(Quality.MISSING, samples=0), 1, 10) is not None
    assert why_unhealthy(seen(Quality.OK), 1, 10) is None


@pytest.mark.parametrize(
    ("same", "one", "other"),
    [
        (True, "no answer within 8s", "no answer within 7.9s"),
        (True, "'10.0.0.7:9100': no node has this name", "'abc': no node has this name"),
        (True, 'HTTP 500: "request id xyz"; look at it', 'HTTP 500: "request id abc"; look at it'),
        (True, "the answer of 812 bytes is cut short", "the answer of 1024 bytes is cut short"),
        (True, "no node 'a'", "no node 'a', 'b', 'c'"),
        (
            True,
            "more than one node has the address 10.0.0.7: n1, n2",
            "more than one node has the address fd00::7: n3, n4, n5",
        ),
        (True, "Prometheus's answer is 'a'", "Prometheus's answer is 'b'"),
        (False, "HTTP 500 Internal Server Error", "HTTP 503 Service Unavailable"),
        (False, "connection refused", "no answer within 8s"),
        (False, "the query's result is empty", "'a': no node has this name or address"),
        (False, "they differ in cluster", "they differ in cluster, job"),
        (False, "Prometheus's answer isn't JSON", "Prometheus's answer isn't there"),
    ],
)
def test_the_same_trouble_in_other_numbers_and_names(same: bool, one: str, other: str) -> None:
    assert (trouble_kind(one) == trouble_kind(other)) is same
