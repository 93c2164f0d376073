"""The closed loop on real servers: its accounts, its shortened rules, and one short run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from closedloop.account import Account
from closedloop.comparison import Run, agreement, removed, spread, table
from closedloop.faster import faster, scenario
from closedloop.modes import SHIPPED, modes, read_rules
from closedloop.real import Result, play
from closedloop.servers import PODS, servers
from closedloop.workload import Kind, Pod, Scenario, draw
from closedloop.world import Outcome, make_world, simulate
from envtest import Envtest
from scheduling_support import clear

from dynsched.core.parsing import parse_rules

pytestmark = pytest.mark.thorough

TWO = Scenario("two nodes", nodes=2, warm=100.0, hours=1.0)
MODES = modes(read_rules(SHIPPED))


def pod(uid: str, uses: float) -> Pod:
    return Pod(uid, "o", arrives=0.0, lives=900.0, cpu=0.2, memory=1.0, uses=uses)


def counters(page: str, metric: str, **labels: str) -> list[float]:
    """The values of a metric's series that carry these labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = (line for line in page.splitlines() if line.startswith(metric + "{"))
    return [float(line.split()[-1]) for line in lines if all(label in line for label in wanted)]


# --- the account ---


def test_time_over_the_line_counts_from_the_end_of_the_warm_up() -> None:
    account = Account(make_world(TWO, 1))
    big = pod("big", 7.0)
    account.bound(big, 0, 90.0)
    account.ended(big, 110.0)
    account.advance(200.0)
    found = account.result()
    assert found.hot == pytest.approx(10 / 200)  # 10 s of one of two nodes, in 100 s
    assert found.beyond == 0
    assert found.used == pytest.approx(10 * 7 / (100 * 16))


def test_demand_beyond_capacity_is_overload_and_is_not_used() -> None:
    account = Account(make_world(TWO, 1))
    for name in ("a", "b"):
        account.bound(pod(name, 6.0), 1, 100.0)
    account.advance(110.0)
    found = account.result()
    assert found.beyond == pytest.approx(4 / 16)
    assert found.used == pytest.approx(8 / 16)


def test_pods_placed_on_a_hot_node_are_counted_before_their_own_load_is() -> None:
    account = Account(make_world(TWO, 1))
    account.bound(pod("early", 1.0), 0, 50.0)
    account.bound(pod("first", 7.0), 0, 101.0)
    account.bound(pod("second", 0.1), 0, 102.0)
    account.bound(pod("elsewhere", 0.1), 1, 103.0)
    assert (account.outcome.on_hot, account.outcome.placed) == (1, 3)


def test_node_writes_are_counted_an_hour_and_node_after_the_warm_up() -> None:
    account = Account(make_world(TWO, 1))
    account.node_written()
    account.advance(150.0)
    account.node_written()
    account.advance(100.0 + 1800.0)
    assert account.result().writes == pytest.approx(1 / 2 / 0.5)


def test_the_counters_of_a_node_rise_by_its_cores_and_never_beyond() -> None:
    account = Account(make_world(TWO, 1))
    for name in ("a", "b"):
        account.bound(pod(name, 6.0), 0, 10.0)
    page = account.page(20.0)
    busy = counters(page, "node_cpu_seconds_total", instance="node-0", mode="user")
    idle = counters(page, "node_cpu_seconds_total", instance="node-0", mode="idle")
    assert busy == pytest.approx([80.0])
    assert idle == pytest.approx([80.0])
    assert counters(page, "node_cpu_seconds_total", instance="node-1", mode="user") == [0.0]


def test_the_counters_of_pods_sum_up_to_their_node_s_and_end_with_them() -> None:
    account = Account(make_world(TWO, 1))
    small = pod("small", 2.0)
    account.bound(small, 0, 0.0)
    account.bound(pod("large", 14.0), 0, 10.0)  # twice the node from here on: each gets half
    page = account.page(20.0)
    metric = "container_cpu_usage_seconds_total"
    assert counters(page, metric, pod="app-small") == pytest.approx([20.0 + 10.0])
    assert counters(page, metric, pod="app-large") == pytest.approx([70.0])
    account.ended(small, 20.0)
    page = account.page(30.0)
    assert counters(page, metric, pod="app-small") == []
    assert counters(page, metric, pod="app-large") == pytest.approx([70.0 + 80.0])


def test_a_node_that_all_pods_have_left_wants_exactly_nothing() -> None:
    account = Account(make_world(TWO, 1))
    pods = [pod(str(number), 0.1 * number) for number in range(1, 20)]
    for each in pods:
        account.bound(each, 0, 1.0)
    for each in pods:
        account.ended(each, 2.0)
    assert account.world.demand.tolist() == [0.0, 0.0]
    assert account.world.ledger.pods.tolist() == [0, 0]


# --- rules and modes ---


def test_rules_are_shortened_by_ten_and_ranges_replaced() -> None:
    content = faster(read_rules(SHIPPED), 5)
    (rule,) = content["rules"]
    assert (rule["for"], rule["keep_firing_for"]) == ("6s", "12s")
    assert re.findall(r"\[\w+\]", rule["expr"]) == ["[5s]", "[5s]"]
    assert (rule["threshold"], content["guard"]["max_marked"]) == (80, "80%")


def test_durations_are_known_by_their_spelling_alone() -> None:
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


def test_as_many_pods_run_as_the_scenario_names_from_the_first_seconds_on() -> None:
    large = scenario(nodes=400, used=0.58, seconds=150, warm=60, window=5)
    pods = draw(large, 1)
    for now in (10, 30, 60, 150):
        running = sum(each.arrives <= now < each.arrives + each.lives for each in pods)
        assert running == pytest.approx(0.58 * 400 * 8 / 0.5, rel=0.06)


# --- beside the simulator ---


def test_with_another_chance_the_same_pods_are_placed_otherwise() -> None:
    short = scenario(nodes=4, used=0.5, seconds=60, warm=10, window=5)
    player = MODES["default"].player(None)
    first, again, other = (simulate(short, 1, player, chance) for chance in (0, 0, 1))
    assert first == again
    assert (first.placed, first.used) == (other.placed, pytest.approx(other.used, rel=0.2))
    assert first != other


def measured(hot: float, simulated: float) -> Run:
    return Run(Result(Outcome(hot=hot)), [Outcome(hot=simulated)])


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
    assert removed(runs, "taint", 1) == (pytest.approx(0.25), pytest.approx([0.25, 0.25]))
    assert removed({("taint", 1): measured(0.15, 0.15)}, "taint", 0) is None


def test_the_table_has_two_lines_a_mode() -> None:
    run = Run(Result(Outcome(hot=0.1, placed=7), [0.1, 0.2]), [Outcome(hot=0.2, placed=8)])
    shown = table({("taint", 1): run}, scenario(nodes=2, used=0.5, seconds=10, warm=5, window=5))
    lines = [[str(cell) for cell in column.cells] for column in shown.columns]
    assert lines[0] == ["taint", ""]
    assert lines[2] == ["2", "4"]  # of 20 node-seconds
    assert lines[3] == ["-", "-"]


def test_another_order_in_the_simulator_is_told_and_so_are_runs_outside_its_span() -> None:
    def both(real: float, *simulated: float) -> Run:
        return Run(Result(Outcome(hot=real)), [Outcome(hot=hot) for hot in simulated])

    runs = {
        ("a", 1): both(0.10, 0.05, 0.10, 0.11),
        ("a", 2): both(0.20, 0.15, 0.18, 0.19),
        ("b", 1): both(0.30, 0.04, 0.05, 0.30),
        ("b", 2): both(0.01, 0.04, 0.05, 0.06),
        ("c", 1): both(0.90, 0.90, 0.90, 0.90),
    }
    order, spans = agreement(runs).splitlines()
    assert order.startswith("2 of 3 pairs")
    assert order.endswith("in another: a and b.")
    assert spans.startswith("3 of 5 runs lie within what 3 runs of the simulator span")
    assert "50% would" in spans
    assert spans.endswith("outside, by mode and seed: a 2 (above), b 2 (below).")


def test_a_spread_shows_the_mean_and_where_they_differ_the_ends() -> None:
    assert spread([1, 2, 6], "{:.0f}".format) == "3 (1 to 6)"
    assert spread([2, 2], "{:.0f}".format) == "2"
    assert spread([], "{:.0f}".format) == "-"


# --- on real servers ---


@pytest.mark.slow
async def test_pods_come_are_bound_use_cpu_and_go_on_real_servers(
    envtest: Envtest, tmp_path: Path
) -> None:
    short = scenario(nodes=3, used=0.5, seconds=2, warm=1, window=5)
    short = replace(short, kinds=(Kind(lives=2.0, owners=2),))
    mode = MODES["extender+taint"]
    assert mode.content is not None
    async with servers(envtest, tmp_path) as all_of_them:
        found = await play(all_of_them, short, 1, mode, faster(mode.content, 5))
        cluster = all_of_them.cluster
        left = (await cluster.get(PODS)).ok["items"]
        await clear(cluster)
    assert found.outcome.placed > 0
    assert found.outcome.used > 0
    assert len(found.waits) in (found.outcome.placed, found.outcome.placed + 1)
    assert len(left) < len(draw(short, 1))
