"""The simulator of the closed loop: what is measured on it is worth what these tests show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import simulated_loop
from closedloop.descheduler import Running, evictions
from closedloop.meters import Meters
from closedloop.players import Default, Dynsched, Oracle
from closedloop.scenarios import ALL, CHOSEN_ON, REPORTED
from closedloop.scheduler import Ledger, Scheduler
from closedloop.workload import MIB, Kind, Pod, Scenario, draw, node_cores
from closedloop.world import Player, World, make_world, simulate

from dynsched.core.verdict_value import COOL, HOT, UNDECIDED

pytestmark = pytest.mark.thorough

GIB = 1024 * MIB
SMALL = Scenario("small", nodes=12, warm=600.0, hours=0.25)


def ledger(*cores: float) -> Ledger:
    return Ledger(np.array(cores), np.full(len(cores), 32 * GIB))


def pod(name: str = "p", owner: str = "o", cpu: float = 0.2, memory: float = 256 * MIB) -> Pod:
    return Pod(name, owner, arrives=0.0, lives=900.0, cpu=cpu, memory=memory, uses=0.5)


# --- the workload ---


@pytest.mark.parametrize("scenario", ALL.values(), ids=ALL)
def test_pods_use_the_share_that_the_scenario_names(scenario: Scenario) -> None:
    if scenario.nodes > 100:
        scenario = replace(scenario, nodes=100)
    used = []
    for seed in range(3):
        pods = draw(scenario, seed)
        assert [p.arrives for p in pods] == sorted(p.arrives for p in pods)
        capacity = sum(node_cores(scenario)[: scenario.nodes - scenario.joining])
        for part in range(8):
            now = scenario.warm + 3600 * scenario.hours * part / 8
            present = (p.uses for p in pods if p.arrives <= now < p.arrives + p.lives)
            used.append(sum(present) / capacity)
    # Uses are cut at nine tenths of a node, so that a heavy tail comes to a little less.
    assert sum(used) / len(used) == pytest.approx(scenario.used, rel=0.25)


def test_replicas_arrive_together_and_use_the_same() -> None:
    kind = Kind(replicas=30, alike=True)
    late = [p for p in draw(replace(SMALL, kinds=(kind,)), 1) if p.arrives > 100]
    by_owner: dict[str, set[float]] = {}
    for each in late:
        by_owner.setdefault(each.owner, set()).add(each.uses)
    assert all(len(uses) == 1 for uses in by_owner.values())
    first = late[:30]
    assert len({p.owner for p in first}) == 1
    assert first[-1].arrives - first[0].arrives <= 2


def test_names_of_scenarios_are_unique_and_none_is_in_both_lists() -> None:
    assert len(ALL) == len(CHOSEN_ON) + len(REPORTED)


# --- what Prometheus answers ---


def test_a_rate_is_the_rise_between_the_first_and_the_last_scrape_of_its_range() -> None:
    meters = Meters(1, scrape=30, window=120, seed=1)
    totals = np.zeros(1)
    for now in range(600):
        totals += 4.0 if now < 300 else 8.0
        meters.scrape(now, totals, np.array([0.0]))
        if now < 30:
            assert math.isnan(meters.values(now)[0])
        if now == 299:
            assert meters.values(now)[0] == pytest.approx(4.0)
    assert meters.values(599)[0] == pytest.approx(8.0)


def test_a_rate_shows_a_change_when_its_range_has_passed_and_not_before() -> None:
    meters = Meters(1, scrape=15, window=60, seed=1)
    totals, shown = np.zeros(1), []
    for now in range(400):
        totals += 0.0 if now < 200 else 1.0
        meters.scrape(now, totals, np.array([0.0]))
        shown.append(meters.values(now)[0])
    assert shown[199] == 0.0
    assert 0 < shown[235] < 1
    assert shown[280] == pytest.approx(1.0)


def test_a_gauge_is_what_the_last_scrape_read() -> None:
    meters = Meters(2, scrape=30, window=0, seed=1)
    for now in range(100):
        meters.scrape(now, np.zeros(2), np.array([now, -now], dtype=float))
    up, down = meters.values(99)
    assert 69 <= up <= 99
    assert -99 <= down <= -69


# --- the model of kube-scheduler ---


def test_the_least_requested_node_is_best_and_a_full_one_no_candidate() -> None:
    nodes = ledger(8.0, 8.0, 8.0)
    for _ in range(20):
        nodes.count(pod(owner="other"), 0, 1)
    nodes.count(pod(cpu=7.9, owner="other"), 2, 1)
    found = nodes.fits(pod())
    assert found.tolist() == [0, 1]
    scores = Scheduler(nodes, 1).scores(pod(), found)
    # 200m of 8 cores and 256 MiB of 32 GiB, after the pod: (97 + 99) / 2 = 98.
    # Balance: |0.025 - 0.0078| / 2 of distance where there was none: (50 + 50 + (99 - 100) / 2).
    assert scores[1] - scores[0] == 98 - ((100 * (1 - 4.2 / 8) // 1) + 83) // 2
    assert Scheduler(nodes, 1).choose(pod()) == 1


def test_a_soft_taint_costs_three_hundred_and_a_missed_preference_two_hundred_points() -> None:
    nodes = ledger(8.0, 8.0, 8.0)
    plain = Scheduler(nodes, 1).scores(pod(), np.arange(3))
    nodes.taints[:] = [0, 1, 2]
    assert (Scheduler(nodes, 1).scores(pod(), np.arange(3)) - plain).tolist() == [300, 150, 0]
    nodes.taints[:] = 0
    nodes.labels[1] = 1
    by_label = Scheduler(nodes, 1, affinity=True).scores(pod(), np.arange(3)) - plain
    assert by_label.tolist() == [200, 0, 200]


def test_pods_of_one_owner_spread_over_hosts() -> None:
    nodes = ledger(*[8.0] * 5)
    scheduler = Scheduler(nodes, 1)
    for number in range(10):
        chosen = scheduler.choose(pod(str(number)))
        assert chosen is not None
        nodes.count(pod(str(number)), chosen, 1)
    assert nodes.pods.tolist() == [2] * 5


def test_in_a_large_cluster_a_share_of_the_nodes_is_looked_at_in_turn() -> None:
    nodes = ledger(*[8.0] * 300)
    scheduler = Scheduler(nodes, 1)
    first = scheduler._searched(np.arange(300))
    second = scheduler._searched(np.arange(300))
    assert len(first) == len(second) == 144  # 48 % of 300
    assert first.tolist() == list(range(144))
    assert second.tolist() == list(range(144, 288))


# --- the loop ---


def test_a_run_is_the_same_for_the_same_seed() -> None:
    shipped = simulated_loop.ways()["extender and taint"]
    assert simulate(SMALL, 1, shipped) == simulate(SMALL, 1, shipped)
    assert simulate(SMALL, 1, shipped) != simulate(SMALL, 2, shipped)


def test_the_oracle_is_best_and_dynsched_between() -> None:
    scenario = replace(SMALL, nodes=20, warm=900.0, hours=0.5)
    ways = simulated_loop.ways()
    hot = {
        name: simulate(scenario, 1, ways[name]).hot
        for name in ("default scheduler", "shipped rules, taint", "oracle")
    }
    assert sorted(hot, key=lambda name: hot[name], reverse=True) == list(hot)


def test_a_mark_is_in_force_for_the_scheduler_and_counted() -> None:
    seen: list[Dynsched] = []

    def player(world: World) -> Player:
        content = simulated_loop.hot_only()
        low = {**content["rules"][0], "threshold": 5, "clear_threshold": 1}
        seen.append(Dynsched(world, content={**content, "rules": [low]}))
        return seen[0]

    outcome = simulate(SMALL, 1, player)
    taints = seen[0].world.ledger.taints
    # All nodes are over 5 %; guard.max_marked lets half of them be marked.
    assert (taints.sum(), taints.max()) == (6, 1)
    assert seen[0].writes >= 6
    assert outcome.writes < seen[0].writes  # those of the first minutes are not counted


def test_a_node_that_joins_takes_pods_from_then_on() -> None:
    scenario = replace(SMALL, joining=2)
    joined: list[tuple[int, float]] = []
    early: list[float] = []

    class Watched(Default):
        def joined(self, node: int) -> None:
            joined.append((node, self.world.clock.now))

        def bound(self, pod: Pod, node: int) -> None:
            if node >= 10:
                early.append(self.world.clock.now)

    simulate(scenario, 1, Watched)
    assert joined == [(10, scenario.join_at), (11, scenario.join_at)]
    assert early
    assert min(early) >= scenario.join_at


def test_a_node_that_is_not_there_yet_has_no_load() -> None:
    world = make_world(replace(SMALL, joining=2), 1)
    assert np.isnan(world.measured()[-2:]).all()
    assert Oracle(world).choose(pod()) not in (10, 11)


def test_overload_is_a_share_of_what_can_be_avoided() -> None:
    found = simulated_loop.measure(["20 nodes"], ["shipped rules, taint"], 1)
    share = simulated_loop.removed(found, "20 nodes", "shipped rules, taint", 1)
    default, oracle, way = (
        found["20 nodes", name, 1].hot
        for name in ("default scheduler", "oracle", "shipped rules, taint")
    )
    assert share == pytest.approx((default - way) / (default - oracle))
    assert simulated_loop.removed(found, "20 nodes", "oracle", 1) == 1


# --- the descheduler ---


def running(*placed: tuple[str, int], since: float = 0.0) -> dict[str, Running]:
    return {name: Running(pod(name), node, since, 0.5) for name, node in placed}


def test_each_hot_node_gives_one_pod_a_cycle_and_only_three_go() -> None:
    here = running(("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3))
    verdicts = {0: HOT, 1: HOT, 2: UNDECIDED, 3: COOL, 4: COOL}
    assert [each.pod.uid for each in evictions(verdicts, here, 1e6)] == ["a", "c"]
    all_hot = dict.fromkeys(range(5), HOT) | {5: COOL, 6: COOL}
    many = running(*((f"p{node}", node) for node in range(5)))
    assert len(evictions(all_hot, many, 1e6)) == 3


@pytest.mark.parametrize(
    "verdicts", [{0: HOT, 1: UNDECIDED, 2: UNDECIDED}, {0: HOT, 1: HOT}, {0: HOT, 1: COOL}, {}]
)
def test_nothing_is_evicted_unless_two_nodes_are_clean(verdicts: dict[int, float]) -> None:
    assert evictions(verdicts, running(("a", 0)), 1e6) == []


def test_a_young_pod_stays() -> None:
    verdicts = {0: HOT, 1: COOL, 2: COOL}
    assert evictions(verdicts, running(("a", 0), since=100.0), 1899.0) == []
    assert evictions(verdicts, running(("a", 0), since=100.0), 1900.0)


def test_an_evicted_pod_goes_on_elsewhere_and_ends_when_it_would_have() -> None:
    seen: list[tuple[float, str, int, int]] = []

    class Moving(Default):
        def choose(self, pod: Pod) -> int | None:
            return 1 if any(uid == pod.uid for _, uid, _, _ in seen) else 0

        def bound(self, pod: Pod, node: int) -> None:
            seen.append((self.world.clock.now, pod.uid, node, 1))

        def gone(self, pod: Pod, node: int) -> None:
            seen.append((self.world.clock.now, pod.uid, node, -1))

        def evicts(self, running: Mapping[str, Running]) -> list[Running]:
            return list(running.values())[:1] if self.world.clock.now == 100 else []

    scenario = replace(SMALL, nodes=2, warm=50.0, kinds=(Kind(lives=300.0, mean=0.2),))
    outcome = simulate(scenario, 1, Moving)
    assert outcome.evicted == 1
    moved = next(uid for at, uid, node, _ in seen if node == 1 and at == 100)
    assert [(node, sign) for _, uid, node, sign in seen if uid == moved] == [
        (0, 1),
        (0, -1),
        (1, 1),
        (1, -1),
    ]
    lived = next(each for each in draw(scenario, 1) if each.uid == moved)
    ended = max(at for at, uid, _, _ in seen if uid == moved)
    assert ended == pytest.approx(lived.arrives + lived.lives, abs=2)
