"""Prometheus fails, lies or forgets: nothing is lost, nothing flaps. See docs/reliability.md."""

import math

import pytest
from bench import COOL, HOT, bench, rules
from cluster import SimCluster

MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture
async def eight(sim: SimCluster) -> list[str]:
    await sim.create_nodes(*"abcdefgh")
    return list("abcdefgh")


async def test_prometheus_is_away_for_hours(sim, prometheus, eight, tmp_path) -> None:
    guard = {"max_marked": "50%", "max_releases": "25%"}
    prometheus.set(load=dict.fromkeys("abcd", HOT) | dict.fromkeys("efgh", COOL))
    async with bench(sim, prometheus, tmp_path, rules(guard=guard, for_="1m")) as it:
        await it.tick()
        await it.tick(MINUTE)
        assert await it.marked() == "a b c d"

        await prometheus.down()
        for _ in range(4):
            await it.tick(MINUTE)
            assert await it.marked() == "a b c d"
        assert "no rule could be queried" in it.status()["error"]
        assert it.metric('dynsched_rule_readings{quality="failed",rule="load"}') == 8
        assert it.metric('dynsched_rule_query_failures_total{rule="load"}') == 4

        await it.tick(2 * MINUTE)  # stale_after is over: they go, but not as one herd
        assert it.node("d").withheld == "release delayed: guard.max_releases is 25%"
        left = [await it.marked()]
        while left[-1]:
            await it.tick()
            left.append(await it.marked())
        assert left == ["b c d", "c d", "d", ""]

        await it.tick(3 * HOUR)
        await prometheus.up()
        prometheus.set(load=dict.fromkeys(eight, HOT))
        await it.tick()
        assert it.status()["error"] is None
        assert await it.marked() == ""  # `for` counts from when something is known again
        await it.tick(MINUTE)
        assert await it.marked() == "a b c d"
        assert it.metric("dynsched_capped_pools") == 1


async def test_what_is_unknown_is_counted_and_changes_nothing(
    sim, prometheus, eight, tmp_path
) -> None:
    prometheus.set(load=dict.fromkeys(eight, HOT))
    async with bench(sim, prometheus, tmp_path, rules(on_stale="hold")) as it:
        await it.tick()
        prometheus.set(load={"a": COOL, "b": HOT, "c": math.nan, "d": math.inf, "e": COOL})
        prometheus.ages, prometheus.warnings = {"e": 6 * MINUTE}, ["a store is away"]
        await it.tick()
        assert await it.marked() == "b c d e f g h"  # of all but a and b nothing is known
        (rule,) = it.rules()
        assert (rule["warnings"], rule["on_stale"]) == (("a store is away",), "hold")
        counts = {"ok": 2, "missing": 3, "stale": 1, "invalid": 2, "failed": 0}
        for quality, count in counts.items():
            assert it.metric(f'dynsched_rule_readings{{quality="{quality}",rule="load"}}') == count
