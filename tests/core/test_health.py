import pytest
from builders import FAILED, NOON, answer, node, rule, rule_set

from dynsched.core.alerts import AlertState
from dynsched.core.evaluate import evaluate
from dynsched.core.guard import WriteFailure
from dynsched.core.health import (
    is_blind,
    rules_health,
    several_series,
    unmatched_rules,
    why_unhealthy,
    why_unsuccessful,
)
from dynsched.core.samples import Quality, QueryResult, Sample
from dynsched.core.tick import Tick
from dynsched.rules.rule_set import RuleSet

NODES = {name: node(name) for name in ("n1", "n2", "n3")}
GOOD = answer({"n1": 90.0, "n2": 50.0})


def tick(
    answers: dict[str, QueryResult] | None = None,
    *,
    rules: RuleSet | None = None,
    error: str | None = None,
) -> Tick:
    rules, answers = rules or rule_set(), answers or {"cpu": GOOD}
    evaluation = evaluate(rules, answers, NODES, None, NOON)
    health = rules_health(evaluation, answers, {"cpu": NOON - 5}, {"cpu": "no past"})
    return Tick(evaluation, taken_at=NOON, number=1, duration=0.1, rules=health, error=error)


@pytest.mark.parametrize(
    ("age", "interval", "error", "reason"),
    [
        (0, 10, None, None),
        (30, 10, None, None),
        (30.6, 10, None, "31s ago"),
        (30, 1, None, None),  # a query may take seconds, however short the interval is
        (31, 1, None, "31s ago"),
        (180, 60, None, None),
        (181, 60, None, "3m1s ago"),
        (7200, 10, None, "2h ago"),
        (1, 10, "refused", "refused"),
        (60, 10, "refused", "1m ago"),
    ],
)
def test_an_overdue_or_failed_tick_is_unhealthy(age, interval, error, reason) -> None:
    found = why_unhealthy(tick(error=error), age, interval)
    assert found is None if reason is None else str(found).endswith(reason)
    assert why_unhealthy(None, 0, 10) is not None


SILENT = {
    "missing": answer({"gone": 90.0}),
    "stale": answer({"n1": 90.0}, NOON - 301),
    "invalid": answer({"n1": float("nan")}),
    "empty": QueryResult(),
    "failed": FAILED,
}


@pytest.mark.parametrize("silent", SILENT.values(), ids=SILENT)
def test_rules_without_a_usable_sample_for_any_node_are_unhealthy(silent) -> None:
    """One rule with a usable sample is enough, unless it is a shadow rule."""
    assert is_blind(tick({"cpu": silent}))
    assert why_unhealthy(tick({"cpu": silent}), 1, 10) is not None
    for shadow in (False, True):
        rules = rule_set(rule("cpu"), rule("memory", shadow=shadow))
        found = tick({"cpu": silent, "memory": GOOD}, rules=rules)
        assert is_blind(found) is shadow


def test_the_health_of_each_rule_has_its_counts_and_times() -> None:
    rules = rule_set(rule("cpu"), rule("memory", for_="1m"), rule("disk", selector="disk=ssd"))
    cpu = QueryResult((*GOOD.samples, Sample({"node": "x"}, 1.0, NOON)), duration=0.5)
    answers = {"cpu": cpu, "memory": GOOD, "disk": FAILED}
    found = {health.rule.name: health for health in tick(answers, rules=rules).rules}
    assert list(found) == ["cpu", "memory", "disk"]
    cpu, memory, disk = found.values()
    assert (cpu.samples, cpu.unmatched, cpu.duration) == (3, 1, 0.5)
    assert (cpu.last_success, cpu.past_error, cpu.ok) == (NOON - 5, "no past", True)
    assert cpu.quality == {Quality.OK: 2, Quality.MISSING: 1}
    assert cpu.states == {AlertState.FIRING: 1, AlertState.INACTIVE: 2}
    assert memory.states == {AlertState.PENDING: 1, AlertState.INACTIVE: 2}
    assert (disk.ok, disk.error, disk.last_success) == (False, FAILED.error, None)
    assert (disk.quality, disk.states) == ({}, {})


@pytest.mark.parametrize(
    ("options", "found", "code"),
    [
        ({}, GOOD, None),
        ({}, QueryResult(), "no_series"),
        (
            {"source": "metrics-server", "resource": "cpu", "expr": None},
            QueryResult(),
            "no_metrics",
        ),
        ({}, answer({"gone": 1.0}), "no_node"),
        ({}, answer({"gone": 1.0}, label="host"), "no_label"),
        ({"selector": "disk=ssd"}, GOOD, "selects_none"),
    ],
)
def test_the_reason_why_no_sample_of_a_rule_matches_a_node(options, found, code) -> None:
    reasons = unmatched_rules(tick({"cpu": found}, rules=rule_set(rule(**options))))
    assert getattr(reasons["cpu"], "code", None) == code
    assert unmatched_rules(tick({"cpu": FAILED})) == {}


def test_more_than_one_series_of_a_node_is_reported() -> None:
    two = QueryResult(tuple(Sample({"node": "n1", "core": core}, 9.0, NOON) for core in "01"))
    found = several_series(tick({"cpu": two}))["cpu"]
    assert found is not None
    assert "'n1', of 1 in all, has series which differ in core" in found
    assert several_series(tick()) == {"cpu": None}


@pytest.mark.parametrize(
    ("answers", "failures", "part"),
    [
        ({"cpu": GOOD, "memory": FAILED}, 0, None),
        ({"cpu": FAILED, "memory": FAILED}, 0, str(FAILED.error)),
        ({"cpu": GOOD, "memory": GOOD}, 2, "2 of 5 nodes could not be written: n0: 403"),
    ],
)
def test_a_tick_fails_if_no_rule_could_be_queried_or_a_write_failed(
    answers, failures, part
) -> None:
    failed = [WriteFailure(f"n{number}", "403") for number in range(failures)]
    reason = why_unsuccessful(rule_set(rule("cpu"), rule("memory")), answers, failed, 5)
    assert (reason is None) if part is None else part in str(reason)
