"""Prometheus fails, lies or forgets: nothing is lost, nothing flaps. See docs/reliability.md."""

from __future__ import annotations

import math

import pytest
from bench import COOL, HOT, bench, rules
from cluster import Cluster

from dynsched.sim.nodes import make_node

MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture
async def eight(cluster: Cluster) -> list[str]:
    names = list("abcdefgh")
    for index, name in enumerate(names):
        await cluster.create_node(make_node(name, index))
    return names


async def test_prometheus_is_away_for_hours(cluster, prometheus, eight, tmp_path) -> None:
    guard = {"max_marked": "50%", "max_releases": "25%"}
    prometheus.set(load=dict.fromkeys("abcd", HOT) | dict.fromkeys("efgh", COOL))
    async with bench(cluster, prometheus, tmp_path, rules(guard=guard, for_="1m")) as it:
        await it.tick()
        await it.tick(MINUTE)
        assert await it.marked() == "a b c d"

        await prometheus.down()
        for _ in range(4):
            await it.tick(MINUTE)
            assert await it.marked() == "a b c d"
        assert "no rule could be queried" in it.status()["error"]
        assert it.rules()[0]["readings"]["failed"] == 8
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
    cluster, prometheus, eight, tmp_path
) -> None:
    prometheus.set(load=dict.fromkeys(eight, HOT))
    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        await it.tick()
        assert await it.marked() == "a b c d e f g h"

        prometheus.set(load={"a": COOL, "b": HOT, "c": math.nan, "d": math.inf, "e": COOL})
        prometheus.ages = {"e": 6 * MINUTE}
        prometheus.warnings = ["a store gateway did not answer"]
        await it.tick()

        assert await it.marked() == "b c d e f g h"  # of all but a and b nothing is known
        (rule,) = it.rules()
        assert rule["readings"] == {"ok": 2, "missing": 3, "stale": 1, "invalid": 2, "failed": 0}
        assert rule["warnings"] == ("a store gateway did not answer",)
        assert [str(it.node(name).rules[0].quality) for name in "acef"] == [
            "ok",
            "invalid",
            "stale",
            "missing",
        ]
        for quality, count in rule["readings"].items():
            name = f'dynsched_rule_readings{{quality="{quality}",rule="load"}}'
            assert it.metric(name) == count


async def test_each_rule_has_its_own_patience(cluster, prometheus, tmp_path) -> None:
    for name in ("short", "default", "held"):
        await cluster.create_node(make_node(name))
    content = rules(stale_after="1m")
    content["rules"] += [
        {"name": "mem", "expr": "mem", "threshold": 80},
        {"name": "disk", "expr": "disk", "threshold": 80, "on_stale": "hold"},
    ]
    prometheus.set(load={"short": HOT}, mem={"default": HOT}, disk={"held": HOT})
    async with bench(cluster, prometheus, tmp_path, content) as it:
        await it.tick()
        prometheus.failing = {"*": 503}
        await it.tick(2 * MINUTE)
        assert await it.marked() == "default held"
        await it.tick(4 * MINUTE)
        assert await it.marked() == "held"
        await it.tick(24 * HOUR)
        assert await it.marked() == "held"
        assert [(rule["stale_after"], rule["on_stale"]) for rule in it.rules()] == [
            ("1m", "release"),
            ("5m", "release"),
            ("5m", "hold"),
        ]

        prometheus.set(disk={"held": COOL})
        prometheus.failing = {}
        await it.tick()
        assert await it.marked() == "default short"


async def test_one_rule_fails_and_the_others_go_on(cluster, prometheus, tmp_path) -> None:
    for name in ("a", "b"):
        await cluster.create_node(make_node(name))
    content = rules()
    content["rules"].append({"name": "mem", "expr": "mem", "threshold": 80})
    prometheus.set(load={"a": HOT}, mem={"b": HOT})
    prometheus.failing = {"load": 500}
    async with bench(cluster, prometheus, tmp_path, content) as it:
        await it.tick()
        assert await it.marked() == "b"
        assert it.status()["error"] is None
        assert [rule["health"] for rule in it.rules()] == ["err", "ok"]
        assert "500" in it.rules()[0]["last_error"]


async def test_a_prometheus_that_hangs_costs_one_timeout(cluster, prometheus, tmp_path) -> None:
    await cluster.create_node(make_node("a"))
    prometheus.set(load={"a": HOT})
    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        await it.tick()
        prometheus.hanging = True
        snapshot = await it.tick()
        assert "no answer within 2 s" in it.status()["error"]
        assert snapshot.duration < 10
        assert await it.marked() == "a"


# --- a restart, and what Prometheus remembers ---


async def test_a_restart_in_the_middle_of_for_goes_on_with_it(
    cluster, prometheus, tmp_path
) -> None:
    await cluster.create_node(make_node("a"))
    prometheus.set(load={"a": HOT})
    content = rules(for_="5m")
    async with bench(cluster, prometheus, tmp_path, content) as it:
        await it.tick()
        await it.tick(4 * MINUTE)
        since = it.node("a").rules[0].active_since
    async with bench(cluster, prometheus, tmp_path) as it:
        await it.tick(2 * MINUTE)
        assert await it.marked() == "a"
        assert it.node("a").rules[0].active_since <= since


@pytest.mark.parametrize("forgetful", [False, True], ids=["with its past", "without a past"])
async def test_a_restart_releases_no_mark_that_would_have_been_kept(
    cluster, prometheus, tmp_path, *, forgetful
) -> None:
    """The window that is replayed is longer here than stale_after."""
    for name in ("hot", "held"):
        await cluster.create_node(make_node(name))
    content = rules(for_="10m", keep_firing_for="10m")
    prometheus.set(load=dict.fromkeys(("hot", "held"), HOT))
    async with bench(cluster, prometheus, tmp_path, content) as it:
        await it.tick()
        for _ in range(4):
            await it.tick(3 * MINUTE)
        assert await it.marked() == "held hot"
        prometheus.set(load={"hot": HOT, "held": COOL})
        await it.tick()

    prometheus.forgetful = forgetful
    async with bench(cluster, prometheus, tmp_path) as it:
        for _ in range(3):
            await it.tick(3 * MINUTE)
            assert await it.marked() == "held hot"
        await it.tick(4 * MINUTE)
        assert await it.marked() == "hot"


@pytest.mark.parametrize("status", [200, 503])
async def test_a_restart_while_nothing_is_known(cluster, prometheus, tmp_path, status) -> None:
    """Prometheus answers, but has neither past nor present; or it does not answer."""
    await cluster.create_node(make_node("a"))
    prometheus.set(load={"a": HOT})
    content = rules(for_="1h")
    await cluster.patch_node("a", {"metadata": {"labels": {"status": "presure"}}})
    prometheus.set(load={})
    prometheus.forgetful = True
    prometheus.failing = {"load": status}
    async with bench(cluster, prometheus, tmp_path, content) as it:
        await it.tick(4 * MINUTE)
        assert await it.marked() == "a"
        assert it.node("a").rules[0].adopted
        await it.tick(2 * MINUTE)
        assert await it.marked() == ""  # stale_after counts from the start
