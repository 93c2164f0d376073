"""Prometheus fails, lies or forgets: nothing is lost, nothing flaps. See docs/operate.md."""

import math

from bench import Bench
from builders import rule, rule_set, unlimited

from dynsched.core.samples import QueryResult, Sample

MINUTE, HOUR = 60.0, 3600.0
HOT, COOL = 91.0, 12.0


async def test_prometheus_is_away_for_hours() -> None:
    guard = {"max_marked": "50%", "max_releases": "25%"}
    bench = Bench(*"abcdefgh", rules=rule_set(rule("load", for_="1m"), guard=guard))
    bench.leadership.steps_down = False  # nobody else takes the Lease
    await bench.tick(load=dict.fromkeys("abcd", HOT) | dict.fromkeys("efgh", COOL))
    await bench.tick(MINUTE)
    assert bench.marked == "a b c d"
    for _ in range(4):
        await bench.tick(MINUTE, load="connection refused")
        assert bench.marked == "a b c d"
    assert "no rule could be queried" in bench.status()["error"]
    assert bench.metric('dynsched_rule_readings{quality="failed",rule="load"}') == 8
    assert bench.metric('dynsched_rule_query_failures_total{rule="load"}') == 4

    await bench.tick(2 * MINUTE)  # stale_after is over: they go, but not as one herd
    assert bench.node("d").withheld == "release delayed: guard.max_releases is 25%"
    left = [bench.marked]
    while left[-1]:
        await bench.tick()
        left.append(bench.marked)
    assert left == ["b c d", "c d", "d", ""]

    await bench.tick(3 * HOUR)
    await bench.tick(load=dict.fromkeys("abcdefgh", HOT))
    assert bench.status()["error"] is None
    assert bench.marked == ""  # `for` counts from when something is known again
    await bench.tick(MINUTE)
    assert bench.marked == "a b c d"
    assert bench.metric("dynsched_capped_pools") == 1


async def test_what_is_unknown_is_counted_and_changes_nothing() -> None:
    bench = Bench(*"abcdefgh", rules=unlimited(rule("load", on_stale="hold")))
    await bench.tick(load=dict.fromkeys("abcdefgh", HOT))
    values = {"a": COOL, "b": HOT, "c": math.nan, "d": math.inf, "e": COOL}
    samples = (
        Sample({"node": name}, value, bench.now - 6 * MINUTE * (name == "e"))
        for name, value in values.items()
    )
    await bench.tick(load=QueryResult(tuple(samples), warnings=("a store is away",)))
    assert bench.marked == "b c d e f g h"  # of all but a and b nothing is known
    (found,) = bench.rules()
    assert (found["warnings"], found["on_stale"]) == (("a store is away",), "hold")
    counts = {"ok": 2, "missing": 3, "stale": 1, "invalid": 2, "failed": 0}
    for quality, count in counts.items():
        series = f'dynsched_rule_readings{{quality="{quality}",rule="load"}}'
        assert bench.metric(series) == count
