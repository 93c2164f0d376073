"""The simulator of the closed loop, and the accounts of the same loop on real servers: what is
measured by them is worth what these tests show.
"""

import asyncio
import json
import math
import random
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import simulated_loop
from closedloop import kubelets
from closedloop.account import Account
from closedloop.comparison import Run, agreement, removed
from closedloop.descheduler import Running, evictions
from closedloop.events import RolledOut, Scaled
from closedloop.faster import faster, scenario
from closedloop.kubelets import PodUses
from closedloop.meters import Meters
from closedloop.modes import SHIPPED, Mode, modes, read_rules
from closedloop.players import Default, Dynsched
from closedloop.real import Result, play
from closedloop.scenarios import ALL, of_trace
from closedloop.scheduler import Ledger, Scheduler
from closedloop.servers import servers
from closedloop.soft_tainter import missing, policy, recorded
from closedloop.traces import read
from closedloop.workload import MIB, Kind, Pod, Scenario, draw, node_cores
from closedloop.world import Outcome, Player, World, make_world, simulate
from cluster import EnvtestCluster
from operator_support import until
from scheduling_support import PODS, clear

from dynsched.engine.snapshot import COOL, HOT, UNDECIDED
from dynsched.rules.file import parse_rules
from dynsched.sources import pod_use

pytestmark = pytest.mark.thorough

GIB = 1024 * MIB
SMALL = Scenario("small", nodes=12, warm=600.0, hours=0.25)
TWO = Scenario("two nodes", nodes=2, warm=100.0, hours=1.0)
MODES = modes(read_rules(SHIPPED))


def ledger(*cores: float) -> Ledger:
    return Ledger(np.array(cores), np.full(len(cores), 32 * GIB))


def pod(name: str = "p", uses: float = 0.5, *, cpu: float = 0.2) -> Pod:
    return Pod(name, "o", arrives=0.0, lives=900.0, cpu=cpu, memory=256 * MIB, uses=uses)


@pytest.mark.parametrize("scenario", ALL.values(), ids=ALL)
def test_pods_use_the_share_that_the_scenario_names(scenario: Scenario) -> None:
    scenario = replace(scenario, nodes=min(scenario.nodes, 100))
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


def test_the_least_requested_node_is_best_and_a_full_one_no_candidate() -> None:
    nodes = ledger(8.0, 8.0, 8.0)
    for _ in range(20):
        nodes.count(replace(pod(), owner="other"), 0, 1)
    nodes.count(replace(pod(cpu=7.9), owner="other"), 2, 1)
    found = nodes.fits(pod())
    assert found.tolist() == [0, 1]
    scores = Scheduler(nodes, 1).scores(pod(), found)
    # 200m of 8 cores and 256 MiB of 32 GiB, after the pod: (97 + 99) / 2 = 98.
    # Balance: |0.025 - 0.0078| / 2 of distance where there was none: (50 + 50 + (99 - 100) / 2).
    assert scores[1] - scores[0] == 98 - ((100 * (1 - 4.2 / 8) // 1) + 83) // 2
    assert Scheduler(nodes, 1).choose(pod()) == 1


def test_what_a_soft_taint_a_missed_preference_and_a_pod_of_the_same_owner_cost() -> None:
    nodes = ledger(*[8.0] * 3)
    plain = Scheduler(nodes, 1).scores(pod(), np.arange(3))
    nodes.taints[:] = [0, 1, 2]
    assert (Scheduler(nodes, 1).scores(pod(), np.arange(3)) - plain).tolist() == [300, 150, 0]
    nodes.taints[:] = 0
    nodes.labels[1] = 1
    by_label = Scheduler(nodes, 1, affinity=True).scores(pod(), np.arange(3)) - plain
    assert by_label.tolist() == [200, 0, 200]
    nodes.labels[:] = 0
    scheduler = Scheduler(nodes, 1)
    for number in range(6):
        chosen = scheduler.choose(pod(str(number)))
        assert chosen is not None
        nodes.count(pod(str(number)), chosen, 1)
    assert nodes.pods.tolist() == [2] * 3


def test_pods_that_the_scheduler_does_not_spread_go_by_what_is_requested_alone() -> None:
    nodes = ledger(*[8.0] * 3)
    nodes.count(replace(pod("big", cpu=0.8), owner="other"), 0, 1)
    for number in range(3):
        nodes.count(pod(str(number)), 1, 1)
    best = {
        spreads: [*Scheduler(nodes, 1).scores(replace(pod(), spreads=spreads), np.arange(2))]
        for spreads in (True, False)
    }
    assert best[True][0] > best[True][1]
    assert best[False][0] < best[False][1]


def test_a_deployment_is_scaled_and_another_is_rolled_out() -> None:
    scenario = replace(SMALL, warm=600.0, hours=0.5)
    scaled = [*Scaled(every=1500.0, lasts=300.0).pods(scenario, random.Random(1))]

    def running(pods: list[Pod], at: float) -> int:
        return sum(each.arrives <= at < each.arrives + each.lives for each in pods)

    assert [running(scaled, at) for at in (1099, 1103, 1399, 1403)] == [10, 200, 200, 10]
    assert len({each.uses for each in scaled}) == 1
    rolled = [*RolledOut(deployments=1, every=900.0).pods(scenario, random.Random(1))]
    new = [sum(900 <= each.arrives < at for each in rolled) for at in (900, 903, 923, 963, 983)]
    assert new == [0, 15, 30, 60, 60]
    assert {running(rolled, at) for at in (100, 899, 1000, 1799)} == {60}
    assert all(60 <= running(rolled, at) <= 75 for at in range(900, 1000))


def test_the_pods_of_a_drained_node_come_again_elsewhere_and_it_is_empty_until_it_is_back() -> None:
    here: dict[int, list[float]] = {0: [], 1: []}
    cordoned: list[tuple[float, int]] = []

    class Watched(Default):
        def bound(self, pod: Pod, node: int) -> None:
            here[node].append(self.world.clock.now)

        def cordoned(self, node: int) -> None:
            cordoned.append((self.world.clock.now, node))

    scenario = replace(TWO, drained_every=1800.0)
    simulate(scenario, 1, Watched)
    assert cordoned == [(100, 0), (400, 0), (1900, 1), (2200, 1)]
    assert not [at for at in here[0] if 100 <= at < 400]
    assert not [at for at in here[1] if 1900 <= at < 2200]
    again = sum(100 <= at < 104 for at in here[1])
    before = sum(at < 100 for at in here[0])
    assert 0.8 * before < again <= before + 2


def test_the_same_seed_is_the_same_run_and_another_chance_places_the_same_pods_otherwise() -> None:
    player = MODES["extender+taint"].player(faster(read_rules(SHIPPED), 5))
    first, again, chance = (simulate(SMALL, 1, player, chance) for chance in (0, 0, 1))
    assert first == again != chance
    assert (first.placed, first.used) == (chance.placed, pytest.approx(chance.used, rel=0.2))
    assert simulate(SMALL, 2, player) != first


def test_the_oracle_is_best_and_the_share_removed_is_of_what_it_avoids() -> None:
    found = simulated_loop.measure([ALL["20 nodes"]], ["hot nodes, taint"], range(1, 2))
    default, way, oracle = (
        found["20 nodes", name, 1].hot
        for name in ("default scheduler", "hot nodes, taint", "oracle")
    )
    assert default > way > oracle
    share = simulated_loop.removed(found, "20 nodes", "hot nodes, taint", 1)
    assert share == pytest.approx((default - way) / (default - oracle))


def test_a_mark_is_in_force_for_the_scheduler_and_counted() -> None:
    seen: list[Dynsched] = []

    def player(world: World) -> Player:
        content = simulated_loop.shipped()
        low = {**content["rules"][0], "threshold": 5, "clear_threshold": 1}
        seen.append(Dynsched(world, content={**content, "rules": [low]}))
        return seen[0]

    outcome = simulate(SMALL, 1, player)
    taints = seen[0].world.ledger.taints
    # All nodes are over 5 %; guard.max_marked lets half of them be marked.
    assert (taints.sum(), taints.max()) == (6, 1)
    assert 6 <= seen[0].writes > outcome.writes  # those of the first minutes are not counted


def trace(folder: Path, first: Iterable[int]) -> list[Scenario]:
    """A day in PlanetLab's form and one in Bitbrains'; both have a mean of 20 per cent."""
    (folder / "day").mkdir()
    (folder / "day" / "a").write_text("\n".join(map(str, first)))
    rows = ("Timestamp [ms];\tCPU usage [MHZ];\tCPU usage [%]", *["0;\t7;\t20"] * 288)
    (folder / "b.csv").write_text("\n".join(rows))
    return list(of_trace(folder).values())


def test_a_pod_uses_the_values_of_its_series_over_the_mean_of_all_each_for_5m(tmp_path) -> None:
    # Two hours, 0.5 cores on average.
    after = {0.25: 0.75, 0.75: 0.25, 0.5: 0.5}
    pods = draw(trace(tmp_path, [10, 30] * 144)[2], 1)
    for each in pods:
        ages, uses = zip(*each.course, strict=True)
        assert ages == tuple(300.0 * place for place in range(int(each.lives // 300) + 1))
        assert uses[1:] == tuple(after[use] for use in uses[:-1])
    firsts = Counter(each.course[0][1] for each in pods)
    assert {use: firsts[use] / len(pods) for use in after} == pytest.approx(
        {0.25: 0.25, 0.75: 0.25, 0.5: 0.5}, abs=0.05
    )


def test_services_of_a_trace_have_their_nights_at_one_time(tmp_path) -> None:
    for each in draw(trace(tmp_path, [10] * 144 + [30] * 144)[4], 1):
        for age, uses in each.course:
            hour = (each.arrives + age) / 3600 % 24
            if uses != 0.5 and min(hour % 12, 12 - hour % 12) > 1 / 12:
                assert uses == (0.25 if hour < 12 else 0.75)


def test_the_demand_of_a_node_is_what_its_pods_use_by_their_age(tmp_path, monkeypatch) -> None:
    scenario = replace(trace(tmp_path, [10, 30] * 144)[0], nodes=1, tick=1.0, warm=2000.0)
    rising = replace(pod(), course=((0.0, 0.3), (450.0, 1.0)), lives=900.5)
    pods = [rising, *(replace(p, lives=min(p.lives, 1500.0)) for p in draw(scenario, 1)[:8])]
    monkeypatch.setattr("closedloop.world.draw", lambda *_: pods)
    found: list[float] = []

    class Watching(Default):
        async def tick(self) -> None:
            found.append(float(self.world.demand[0]))

    simulate(scenario, 1, Watching)
    expected = np.zeros(scenario.seconds)
    for each in pods:
        born = math.ceil(each.arrives)
        for now in range(born, math.ceil(born + each.lives)):
            ages, uses = zip(*each.course, strict=True)
            expected[now] += uses[bisect(ages, now - born) - 1]
    assert found == pytest.approx(expected)
    assert (max(found) > 2, found[-1]) == (True, pytest.approx(0, abs=1e-9))


@pytest.mark.parametrize(("cadvisor", "gaps"), [(False, {10}), (True, set(range(10, 21)))])
def test_cadvisor_measures_when_it_likes_and_prometheus_keeps_its_times(cadvisor, gaps) -> None:
    meters = Meters(20, scrape=10, window=200, seed=1, cadvisor=cadvisor)
    for now in range(600):
        meters.scrape(now, np.full(20, 0.5 * now), np.zeros(20))
    assert set(np.diff(np.sort(meters._times, axis=0), axis=0).ravel()) == gaps
    assert meters.values(600) == pytest.approx([0.5] * 20)


@pytest.mark.parametrize(("most", "known"), [(1, {"a": 0.5}), (0, {})])
def test_of_many_pods_only_the_means_of_workloads_are_known(most, known, monkeypatch) -> None:
    monkeypatch.setattr(pod_use, "MOST_PODS", most)
    world = make_world(SMALL, 1)
    world.clock.now = 300.0
    world.given = [np.full(len(world.names), float(second)) for second in range(300)]
    uses = PodUses(world)
    uses.ask({"a": (pod("a"), 0, 0.0)}, {}, ())
    assert uses.of_pods == pytest.approx(known, abs=1e-5)
    assert uses.of_workloads == pytest.approx({"o": 0.5}, abs=1e-5)


def test_what_a_pod_used_is_known_by_its_counter_as_prometheus_tells_it(monkeypatch) -> None:
    """It uses 1 core for 60 s and 0.25 later; its node gives it half of that at first."""
    monkeypatch.setattr(kubelets, "start_factor", lambda *_: 2.0)
    world = make_world(SMALL, 1)
    given = np.minimum(np.arange(601.0) / 2, 15) + np.maximum(np.arange(601.0) - 30, 0)
    world.given = [np.full(len(world.names), each) for each in given]
    slow, uses = replace(pod(), course=((0.0, 1.0), (60.0, 0.25))), PodUses(world)
    for world.clock.now in range(0, 121, 10):
        ages = {"a": world.clock.now}
        uses.ask({"a": (slow, 0, 0.0)}, ages, ())
    counts = uses.by_age["a"]
    assert counts[-1].cpu == pytest.approx(15 + 30 + 0.25 * (counts[-1].age - 60), rel=0.15)
    assert uses.of_pods["a"] == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize(("content", "message"), [("a\n", "day/b is no .*'a'"), ("", "is empty")])
def test_a_file_that_is_no_series_is_named(tmp_path, content: str, message: str) -> None:
    with pytest.raises(ValueError, match="has no series"):
        read(tmp_path)
    (tmp_path / "a" / "day").mkdir(parents=True)
    (tmp_path / "a" / "day" / "b").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a")


def running(*placed: tuple[str, int]) -> dict[str, Running]:
    return {name: Running(pod(name), node, 100.0, 0.5) for name, node in placed}


@pytest.mark.parametrize(
    ("verdicts", "now", "evicted"),
    [
        ({0: HOT, 1: HOT, 2: UNDECIDED, 3: COOL, 4: COOL}, 1e6, "ac"),  # one of each hot node
        (dict.fromkeys(range(4), HOT) | {5: COOL, 6: COOL}, 1e6, "acd"),  # at most three
        ({0: HOT, 1: UNDECIDED, 2: UNDECIDED}, 1e6, ""),  # not without two clean nodes
        ({0: HOT, 1: COOL}, 1e6, ""),
        ({}, 1e6, ""),
        ({0: HOT, 3: COOL, 4: COOL}, 1899.0, ""),  # a young pod stays
        ({0: HOT, 3: COOL, 4: COOL}, 1900.0, "a"),
    ],
)
def test_who_is_evicted(verdicts: dict[int, float], now: float, evicted: str) -> None:
    here = running(("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3))
    assert "".join(each.pod.uid for each in evictions(verdicts, here, now)) == evicted


def test_an_evicted_pod_goes_on_elsewhere_and_ends_when_it_would_have() -> None:
    seen: list[tuple[float, str, int]] = []

    class Moving(Default):
        def choose(self, pod: Pod) -> int | None:
            return 1 if any(uid == pod.uid for _, uid, _ in seen) else 0

        def bound(self, pod: Pod, node: int) -> None:
            seen.append((self.world.clock.now, pod.uid, node))

        def gone(self, pod: Pod, node: int) -> None:
            seen.append((self.world.clock.now, pod.uid, -node))

        def evicts(self, running: dict[str, Running]) -> list[Running]:
            return list(running.values())[:1] if self.world.clock.now == 100 else []

    scenario = replace(SMALL, nodes=2, warm=50.0, kinds=(Kind(lives=300.0, mean=0.2),))
    assert simulate(scenario, 1, Moving).evicted == 1
    moved = next(uid for at, uid, node in seen if node == 1 and at == 100)
    assert [node for _, uid, node in seen if uid == moved] == [0, 0, 1, -1]
    lived = next(each for each in draw(scenario, 1) if each.uid == moved)
    ended = max(at for at, uid, _ in seen if uid == moved)
    assert ended == pytest.approx(lived.arrives + lived.lives, abs=2)


def counters(account: Account, now: float, metric: str, **labels: str) -> list[float]:
    """The values of a metric's series that carry these labels."""
    lines = (line for line in account.page(now).splitlines() if line.startswith(metric + "{"))
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [float(line.split()[-1]) for line in lines if all(label in line for label in wanted)]


def test_time_over_the_line_and_placed_pods_count_from_the_end_of_the_warm_up() -> None:
    account = Account(make_world(TWO, 1))
    big = pod("big", 7.0)
    account.bound(big, 0, 90.0)
    account.bound(pod("on hot", 0.0), 0, 101.0)
    account.node_written()
    account.ended(big, 110.0)
    account.advance(200.0)
    found = account.result()
    assert found.hot == pytest.approx(10 / 200)  # 10 s of one of two nodes, in 100 s
    assert (found.beyond, found.on_hot, found.placed) == (0, 1, 1)
    assert found.used == pytest.approx(10 * 7 / (100 * 16))


def test_demand_beyond_capacity_is_overload_and_is_not_used() -> None:
    account = Account(make_world(TWO, 1))
    small, large = pod("small", 2.0), pod("large", 14.0)
    account.bound(small, 0, 100.0)
    account.bound(large, 0, 110.0)  # twice the node from here on: each gets half
    cpu, node = "container_cpu_usage_seconds_total", "node_cpu_seconds_total"
    assert counters(account, 120.0, cpu, pod="app-small") == pytest.approx([20.0 + 10.0])
    # of each of eight cores
    user, idle = (
        counters(account, 120.0, node, instance="node-0", mode=mode) for mode in ("user", "idle")
    )
    assert (user, idle) == (pytest.approx([100 / 8] * 8), pytest.approx([120 - 100 / 8] * 8))
    assert counters(account, 120.0, "node_pressure_cpu_waiting_seconds_total") == [10, 0]
    found = account.result()
    assert (found.beyond, found.used) == (pytest.approx(80 / 320), pytest.approx(100 / 320))
    account.ended(small, 120.0)
    assert counters(account, 130.0, cpu, pod="app-small") == []
    account.ended(large, 130.0)
    assert (account.world.demand.tolist(), account.world.ledger.pods.tolist()) == ([0, 0], [0, 0])


def test_rules_are_shortened_by_ten_and_ranges_replaced() -> None:
    content = faster(read_rules(SHIPPED), 5)
    (rule,) = content["rules"]
    assert (rule["for"], rule["keep_firing_for"]) == ("6s", "3s")
    assert rule["expr"].count("[5s]") == rule["expr"].count("[") == 2
    assert (rule["threshold"], content["guard"]["max_marked"]) == (80, "90%")
    content = {"any_key": "1m30s", "list": ["2m", "m5.2xlarge", "50%"], "number": 60}
    shortened = {"any_key": "9s", "list": ["12s", "m5.2xlarge", "50%"], "number": 60}
    assert faster(content, 5) == shortened


def test_the_files_of_a_peer_are_read_where_they_are(tmp_path, monkeypatch) -> None:
    mode, usual = Mode(beside=("descheduler",)), MODES["default"]
    monkeypatch.setenv("SOFT_TAINTER_SOURCE", str(tmp_path))
    monkeypatch.setenv("DESCHEDULER", sys.executable)
    files = missing(mode)
    assert (missing(usual), recorded([usual], tmp_path)) == ([], [])
    recording = "spec: {groups: [{interval: 30s, rules: [{record: r, expr: 'rate(cpu[1m])'}]}]}"
    config = """
        nodeSelector: x=y
        metricsProviders: [{prometheus: {url: https://elsewhere}}]
        profiles:
          - pluginConfig: [{name: LowNodeUtilization}, {name: KubevirtMigrationAware}]
            plugins: {filter: {enabled: [Some, KubevirtMigrationAware]}, sort: {enabled: null}}
        """
    for name, content in zip(files, ("", recording, config), strict=True):
        file = tmp_path / name.removeprefix("SOFT_TAINTER_SOURCE/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (path,) = recorded([mode], tmp_path)
    shorter = {"interval": "3s", "rules": [{"record": "r", "expr": "rate(cpu[6s])"}]}
    assert json.loads(path.read_text()) == {"groups": [shorter]}
    left = str(policy("http://here"))
    assert (missing(mode), "Kubevirt" in left, "http://here" in left) == ([], False, True)


@pytest.mark.parametrize("name", MODES)
def test_every_mode_has_valid_rules_and_a_counterpart_in_the_simulator(name: str) -> None:
    mode = MODES[name]
    content = None if mode.content is None else faster(mode.content, 5)
    if content is not None:
        parse_rules(content)
    short = scenario(nodes=4, used=0.5, seconds=20, warm=10, window=5)
    assert simulate(short, 1, mode.player(content)).placed > 0


def measured(hot: float, *simulated: float) -> Run:
    return Run(Result(Outcome(hot=hot)), [Outcome(hot=each) for each in simulated])


def test_what_is_removed_is_a_share_of_what_the_oracle_shows_as_avoidable() -> None:
    runs = {
        ("default", 1): measured(0.3, 0.2),
        ("oracle", 1): measured(0.1, 0.0),
        ("taint", 1): measured(0.15, 0.15),
        ("default", 2): measured(0.02, 0.2),
        ("oracle", 2): measured(0.01, 0.0),
        ("taint", 2): measured(0.03, 0.15),  # little is avoidable: minus 100 % weighs little
        ("taint", 3): measured(0.15, 0.15),  # its seed has no default to compare with
    }
    total, seeds = removed(runs, "taint", 0) or (0, [])
    assert total == pytest.approx((0.15 - 0.01) / 0.21)
    assert seeds == pytest.approx([0.75, -1.0])
    assert removed({("taint", 1): measured(0.15, 0.15)}, "taint", 0) is None


def test_another_order_in_the_simulator_is_told_and_so_are_runs_outside_its_span() -> None:
    runs = {
        ("a", 1): measured(0.10, 0.05, 0.10, 0.11),
        ("a", 2): measured(0.20, 0.15, 0.18, 0.19),
        ("b", 1): measured(0.30, 0.04, 0.05, 0.30),
        ("b", 2): measured(0.01, 0.04, 0.05, 0.06),
        ("c", 1): measured(0.90, 0.90, 0.90, 0.90),
    }
    order, spans = agreement(runs).splitlines()
    assert order.startswith("2 of 3 pairs")
    assert order.endswith("in another: a and b.")
    assert spans.endswith("outside, by mode and seed: a 2 (above), b 2 (below).")


def test_by_the_order_alone_less_is_hot_and_no_node_is_written() -> None:
    mode = MODES["order"]
    default, order = (simulate(SMALL, 2, by) for by in (Default, mode.player(mode.content)))
    assert (order.hot < default.hot / 2, order.writes) == (True, 0)


@pytest.mark.slow
async def test_a_pod_that_is_evicted_on_real_servers_is_placed_anew(envtest, tmp_path) -> None:
    long = scenario(nodes=2, used=0.3, seconds=4, warm=0, window=5)

    async def evict(cluster: EnvtestCluster) -> dict[str, str] | None:
        """One pod that runs: its metadata."""
        pods = (await cluster.get(PODS)).ok["items"]
        for pod in (it["metadata"] for it in pods if it["status"]["phase"] == "Running"):
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod["name"]},
            }
            _ = (await cluster.post(f"{PODS}/{pod['name']}/eviction", body)).ok
            return pod
        return None

    async with servers(envtest, tmp_path) as all_of_them:
        cluster = all_of_them.cluster
        found, old = await asyncio.gather(
            play(all_of_them, long, 1, MODES["default"], None),
            until(lambda: evict(cluster), "a pod is evicted"),
        )
        new = (await cluster.get(f"{PODS}/{old['name']}")).ok
        await clear(cluster)
    assert (found.outcome.evicted, found.outcome.unplaced) == (1, 0)
    assert (new["metadata"]["uid"] != old["uid"], new["status"]["phase"]) == (True, "Running")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extender+taint", "order"])
async def test_pods_come_are_bound_use_cpu_and_go_on_real_servers(envtest, tmp_path, name) -> None:
    short = scenario(nodes=3, used=0.5, seconds=2, warm=1, window=5)
    short = replace(short, kinds=(Kind(lives=2.0, owners=2),))
    mode = MODES[name]
    assert mode.content is not None
    async with servers(envtest, tmp_path) as all_of_them:
        found = await play(all_of_them, short, 1, mode, faster(mode.content, 5))
        await clear(all_of_them.cluster)
    assert found.outcome.placed > 0
    assert found.outcome.used > 0
    assert len(found.waits) in (found.outcome.placed, found.outcome.placed + 1)
