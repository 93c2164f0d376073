"""The simulator of the closed loop, and the accounting of the same loop on real servers.

The measurements are only as good as the properties that these tests show.
"""

from dataclasses import replace

import numpy as np
import pytest
import simulated_loop
from closedloop import peers
from closedloop.account import Account
from closedloop.comparison import Run, removed
from closedloop.descheduler import Running, evictions
from closedloop.faster import faster, scenario
from closedloop.modes import SHIPPED, modes, read_rules
from closedloop.players import Default, Dynsched
from closedloop.real import Result, play
from closedloop.scenarios import ALL
from closedloop.scheduler import Ledger, Scheduler
from closedloop.servers import servers
from closedloop.workload import MIB, Kind, Pod, Scenario, draw
from closedloop.world import Outcome, Player, World, make_world, simulate
from scheduling_support import clear

from dynsched.rules.parse import parse_rules
from dynsched.web.node_series import COOL, HOT, UNDECIDED

pytestmark = pytest.mark.thorough

GIB = 1024 * MIB
SMALL = Scenario("small", nodes=12, warm=600.0, hours=0.25)
TWO = Scenario("two nodes", nodes=2, warm=100.0, hours=1.0)
MODES = modes(read_rules(SHIPPED))


def ledger(*cores: float) -> Ledger:
    return Ledger(np.array(cores), np.full(len(cores), 32 * GIB))


def pod(name: str = "p", uses: float = 0.5, *, cpu: float = 0.2) -> Pod:
    return Pod(name, "o", arrives=0.0, lives=900.0, cpu=cpu, memory=256 * MIB, uses=uses)


def test_the_least_requested_node_is_best_and_a_full_node_is_no_candidate() -> None:
    nodes = ledger(8.0, 8.0, 8.0)
    for _ in range(20):
        nodes.count(replace(pod(), owner="other"), 0, 1)
    nodes.count(replace(pod(cpu=7.9), owner="other"), 2, 1)
    found = nodes.fits(pod())
    assert found.tolist() == [0, 1]
    scores = Scheduler(nodes, 1).scores(pod(), found)
    # 200m of 8 cores and 256 MiB of 32 GiB, after the pod: (97 + 99) / 2 = 98.
    # Balance: a distance of |0.025 - 0.0078| / 2, before it 0: (50 + 50 + (99 - 100) / 2).
    assert scores[1] - scores[0] == 98 - ((100 * (1 - 4.2 / 8) // 1) + 83) // 2
    assert Scheduler(nodes, 1).choose(pod()) == 1


def test_soft_taints_missed_preferences_and_pods_of_the_same_owner_lower_the_score() -> None:
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


def test_equal_seeds_give_equal_runs_and_another_chance_places_the_same_pods_differently() -> None:
    player = MODES["extender+taint"].player(faster(read_rules(SHIPPED), 5))
    first, again, chance = (simulate(SMALL, 1, player, chance) for chance in (0, 0, 1))
    assert first == again != chance
    assert (first.placed, first.used) == (chance.placed, pytest.approx(chance.used, rel=0.2))
    assert simulate(SMALL, 2, player) != first


def test_the_oracle_is_best_and_removed_shares_are_relative_to_it() -> None:
    found = simulated_loop.measure([ALL["20 nodes"]], ["hot nodes, taint"], range(1, 2))
    default, way, oracle = (
        found["20 nodes", name, 1].hot
        for name in ("default scheduler", "hot nodes, taint", "oracle")
    )
    assert default > way > oracle
    share = simulated_loop.removed(found, "20 nodes", "hot nodes, taint", 1)
    assert share == pytest.approx((default - way) / (default - oracle))


def test_a_pattern_selects_the_names_that_it_matches() -> None:
    names = ["60 % used", "packed, 30 % used", "packed, 40 % used"]
    assert simulated_loop.matching(["packed, *", "60 % used"], names) == [*names[1:], names[0]]
    assert simulated_loop.matching(None, names) == names
    with pytest.raises(ValueError, match="memory"):
        simulated_loop.matching(["60 % used", "memory"], names)


def test_a_mark_affects_the_scheduler_and_its_writes_are_counted() -> None:
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
    assert 6 <= seen[0].writes > outcome.writes  # writes of the first minutes are not counted


def running(*placed: tuple[str, int]) -> dict[str, Running]:
    return {name: Running(pod(name), node, 100.0, 0.5) for name, node in placed}


@pytest.mark.parametrize(
    ("verdicts", "now", "evicted"),
    [
        ({0: HOT, 1: HOT, 2: UNDECIDED, 3: COOL, 4: COOL}, 1e6, "ac"),  # one pod per hot node
        (dict.fromkeys(range(4), HOT) | {5: COOL, 6: COOL}, 1e6, "acd"),  # at most three
        ({0: HOT, 1: UNDECIDED, 2: UNDECIDED}, 1e6, ""),  # not without two clean nodes
        ({0: HOT, 1: COOL}, 1e6, ""),
        ({}, 1e6, ""),
        ({0: HOT, 3: COOL, 4: COOL}, 1899.0, ""),  # a young pod stays
        ({0: HOT, 3: COOL, 4: COOL}, 1900.0, "a"),
    ],
)
def test_one_old_pod_per_hot_node_is_evicted_if_enough_nodes_are_cool(
    verdicts: dict[int, float], now: float, evicted: str
) -> None:
    here = running(("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3))
    assert "".join(each.pod.uid for each in evictions(verdicts, here, now)) == evicted


def test_an_evicted_pod_continues_elsewhere_and_ends_on_time() -> None:
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
    """Values of the metric's series with these labels."""
    lines = (line for line in account.page(now).splitlines() if line.startswith(metric + "{"))
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [float(line.split()[-1]) for line in lines if all(label in line for label in wanted)]


def test_demand_above_capacity_counts_as_overload_and_not_as_use() -> None:
    account = Account(make_world(TWO, 1))
    small, large = pod("small", 2.0), pod("large", 14.0)
    account.bound(small, 0, 100.0)
    account.bound(large, 0, 110.0)  # demand is twice the node from now on: each pod gets half
    cpu, node = "container_cpu_usage_seconds_total", "node_cpu_seconds_total"
    assert counters(account, 120.0, cpu, pod="app-small") == pytest.approx([20.0 + 10.0])
    # per core, of eight
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


def test_durations_in_rules_are_divided_by_ten_and_ranges_replaced() -> None:
    content = faster(read_rules(SHIPPED), 5)
    (rule,) = content["rules"]
    assert (rule["for"], rule["keep_firing_for"]) == ("6s", "3s")
    assert rule["expr"].count("[5s]") == rule["expr"].count("[") == 1
    assert (rule["threshold"], content["guard"]["max_marked"]) == (80, "50%")
    content = {"any_key": "1m30s", "list": ["2m", "m5.2xlarge", "50%"], "number": 60}
    shortened = {"any_key": "9s", "list": ["12s", "m5.2xlarge", "50%"], "number": 60}
    assert faster(content, 5) == shortened


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


def test_the_removed_share_is_relative_to_what_the_oracle_avoids() -> None:
    runs = {
        ("default", 1): measured(0.3, 0.2),
        ("oracle", 1): measured(0.1, 0.0),
        ("taint", 1): measured(0.15, 0.15),
        ("default", 2): measured(0.02, 0.2),
        ("oracle", 2): measured(0.01, 0.0),
        # Little is avoidable, so its minus 100 % has little weight.
        ("taint", 2): measured(0.03, 0.15),
        ("taint", 3): measured(0.15, 0.15),  # its seed has no default to compare with
    }
    total, seeds = removed(runs, "taint", 0) or (0, [])
    assert total == pytest.approx((0.15 - 0.01) / 0.21)
    assert seeds == pytest.approx([0.75, -1.0])
    assert removed({("taint", 1): measured(0.15, 0.15)}, "taint", 0) is None


def test_the_order_alone_reduces_overload_and_writes_no_node() -> None:
    mode = MODES["order"]
    default, order = (simulate(SMALL, 2, by) for by in (Default, mode.player(mode.content)))
    assert (order.hot < default.hot / 2, order.writes) == (True, 0)


@pytest.mark.parametrize("name", peers.ways())
def test_every_peer_runs_and_differs_from_the_default_if_it_acts(name: str) -> None:
    found, default = (simulate(SMALL, 1, it) for it in (peers.ways()[name], Default))
    assert found.placed > 100
    # As shipped, only a node below 20 % would be under-used, so LowNodeUtilization does nothing.
    assert (found.hot == default.hot) == (name == "LowNodeUtilization")


def test_the_descheduler_by_load_moves_pods_without_marks_alongside_the_order() -> None:
    both = simulate(SMALL, 1, simulated_loop.ways()["order, and descheduler by load"])
    assert both.evicted > 0
    assert both.writes == 0


def test_a_pod_without_a_node_waits_and_a_pod_short_of_cpu_is_counted() -> None:
    class Late(Default):
        def choose(self, pod: Pod) -> int | None:
            return 0 if self.world.clock.now >= pod.arrives + 20 else None

    one = replace(SMALL, nodes=1, used=0.5)
    late = simulate(one, 1, Late)
    assert late.unplaced > 0
    assert late.waited == pytest.approx(25, abs=6)  # tried again every ten seconds
    assert late.starved == 0

    def small(world: World) -> Default:
        world.capacity = np.array([0.01])  # each pod always gets less than it wants
        return Default(world)

    short = simulate(one, 1, small)
    assert short.starved == short.starved_p99 == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extender+taint", "order"])
async def test_on_real_servers_pods_arrive_are_bound_use_cpu_and_end(
    envtest, tmp_path, name
) -> None:
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
