"""`/metrics`: names, values, and promtool's check of them."""

from dataclasses import replace

import pytest
from programs import need, run
from prometheus_client.parser import text_string_to_metric_families
from scenes import (
    CPU,
    EXAMPLE_RULES,
    MEMORY,
    NOON,
    Scene,
    example,
    expected_example,
    expected_scene,
    known_pods,
)
from store_support import Clock, make_store

from dynsched import __version__
from dynsched.core.guard import WriteFailure
from dynsched.core.nodes import Node
from dynsched.core.tick import Leadership, RulesStatus, WriteResult
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import LastOrder, OrderStatus
from dynsched.web.metrics import Metrics
from dynsched.web.node_series import FAMILIES, node_series


def series(metrics):
    """(name, labels as text) -> value."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def check(metrics, expected) -> None:
    """Assert values, keyed by name without `dynsched_` and by labels: `ticks_total result=ok`."""
    found = series(metrics)
    keys = {text: text.partition(" ") for text in expected}
    assert {
        t: found[f"dynsched_{name}", labels] for t, (name, _, labels) in keys.items()
    } == expected


@pytest.fixture
def metrics():
    return Metrics()


def test_the_last_tick_is_exposed_as_gauges(metrics) -> None:
    counters = {name for name, _ in series(metrics)}
    assert {"dynsched_ticks_total", "dynsched_patches_total", "dynsched_build_info"} <= counters
    assert not counters & {"dynsched_nodes", "dynsched_marked_nodes", "dynsched_pressured_nodes"}
    metrics.observe(example())
    check(
        metrics,
        {
            "nodes eligible=true": 7,
            "nodes eligible=false": 1,
            "marked_nodes state=hot": 2,
            "marked_nodes state=other": 0,
            "pressured_nodes": 4,
            "withheld_nodes": 1,
            "conflicts": 1,
            "disputed_nodes": 0,
            "capped_pools": 1,
            "last_tick_timestamp_seconds": NOON + 120,
            "rule_firing_nodes rule=node-cpu": 4,
            "rule_pending_nodes rule=node-cpu": 1,
            "pool_nodes pool=": 7,
            "pool_pressured_nodes pool=": 4,
            "rule_threshold_load rule=node-cpu": 80,
            "rule_unmatched_samples rule=node-cpu": 1,
            "rule_readings quality=ok,rule=node-cpu": 7,
            "rule_readings quality=missing,rule=node-cpu": 1,
            "rule_readings quality=failed,rule=node-cpu": 0,
        },
    )
    found = series(metrics)
    assert not [name for name, _ in found if name.startswith("dynsched_pods")]
    assert "process_resident_memory_bytes" in {name for name, _ in found}
    text = metrics.exposition().decode()
    assert f'version="{__version__}"' in text
    assert "worker-" not in text  # no series carries a node's name
    assert "_created" not in text  # prometheus_client's default


def test_knowledge_of_pods_is_exposed_as_gauges(metrics) -> None:
    tick = expected_example()
    metrics.observe(tick)
    metrics.observe(replace(tick, queried=False))  # a re-evaluation of the last results is no tick
    check(
        metrics,
        {
            "marked_nodes state=hot": 2,
            "marked_nodes state=other": 0,
            "pressured_nodes": 2,
            "pods_running": 100,
            "workloads_of_known_use resource=cpu": 2,
            "rule_firing_nodes rule=node-cpu": 2,
            "ticks_total result=ok": 1,
            "tick_duration_seconds_count": 1,
            "rule_query_duration_seconds_count rule=node-cpu": 1,
        },
    )
    broken = known_pods(running=None)
    metrics.observe(expected_scene().tick(NOON, node_cpu={}, node_mem={}, pods=broken))
    assert ("dynsched_pods_running", "") not in series(metrics)


def test_a_mark_that_is_due_for_release_does_not_count_as_hot(metrics) -> None:
    marked = expected_scene(worker_2={"status": "presure"}, worker_4={"status": "presure"})
    before = dict(marked.nodes)
    tick = marked.tick(NOON, node_cpu=CPU, node_mem=MEMORY, pods=known_pods())
    metrics.observe(replace(tick, evaluation=tick.evaluation.after_writes(before)))
    states = {"hot": 1, "other": 1}
    check(metrics, {f"marked_nodes state={state}": count for state, count in states.items()})


def test_hot_nodes_are_counted_per_pool_if_they_are_eligible(metrics) -> None:
    pools = {"a": "web", "b": "web", "c": "batch", "d": None}
    nodes = [Node(name, labels={"pool": pool} if pool else {}) for name, pool in pools.items()]
    nodes.append(Node("e", labels={"pool": "web", "dynsched.io/ignore": "true"}))
    rules = [{"name": "cpu", "expr": "cpu", "threshold": 80}]
    scene = Scene({"guard": {"pool_label": "pool"}, "rules": rules}, nodes)
    metrics.observe(scene.tick(NOON, cpu={"a": 90.0, "b": 10.0, "c": 90.0, "d": 10.0, "e": 90.0}))
    found = {key: value for key, value in series(metrics).items() if "_pool_" in key[0]}
    expected = {"web": (2, 1), "batch": (1, 1), "": (1, 0)}
    assert found == {
        (f"dynsched_pool_{name}", f"pool={pool}"): counts[at]
        for at, name in enumerate(("nodes", "pressured_nodes"))
        for pool, counts in expected.items()
    }


def test_if_pods_are_watched_placements_are_counted_by_the_nodes_state() -> None:
    """Pods that were placed before the first tick do not count."""
    ticks, late = make_store(Clock()), make_store(Clock())

    def placed(store) -> list[float]:
        found = series(store.metrics).items()
        counts = {labels: n for (name, labels), n in found if name == "dynsched_pods_placed_total"}
        return [counts[f"node_state={state}"] for state in ("hot", "marked", "clean") if counts]

    ticks.publish(example())
    assert placed(ticks) == []
    for names, counts in (
        ([], [0, 0, 0]),  # for rate(): the series begin at 0
        (["worker-2", "worker-1"], [1, 0, 1]),
        (["worker-5", "new-1"], [2, 0, 2]),
    ):
        ticks.publish(example(), placed=names)
        assert placed(ticks) == counts
    late.publish(example(), placed=["worker-2"])
    assert placed(late) == [0, 0, 0]


def test_ticks_patches_and_queries_are_counted(metrics) -> None:
    first = Scene(EXAMPLE_RULES, [Node("a"), Node("b")])
    hot = {"a": 99.0, "b": 99.0}
    for seconds in (0, 60):
        metrics.observe(first.tick(NOON + seconds, node_cpu=hot, node_mem_usage="refused"))
    failures = (*(WriteFailure(name, "500") for name in "ab"), WriteFailure("c", "500", again=True))
    odd = replace(example(), error="down", writes=WriteResult(failures=failures))
    metrics.observe(replace(odd, rules_status=RulesStatus(reloaded=True, refused=True)))
    late = first.tick(NOON + 120, node_cpu=hot, node_mem_usage="refused")
    again = tuple(replace(health, is_new=False) for health in late.rules)  # no new response yet
    metrics.observe(replace(late, rules=again))
    check(
        metrics,
        {
            "ticks_total result=ok": 3,
            "ticks_total result=failed": 1,
            "tick_duration_seconds_count": 4,
            "tick_duration_seconds_sum": 1.0,
            "patches_total action=mark": 2,
            "dry_run_patches_total action=mark": 0,
            "patches_total action=release": 0,
            "patches_total action=repair": 0,
            "patch_failures_total": 2,
            "rules_reloads_total result=success": 1,
            "rules_reloads_total result=refused": 1,
            "rule_query_failures_total rule=node-cpu": 0,
            "rule_query_failures_total rule=node-mem-usage": 2,
            "rule_query_duration_seconds_count rule=node-cpu": 3,
        },
    )


def test_the_order_has_series_once_the_rules_have_an_order(metrics) -> None:
    pods = known_pods(with_order=7)
    order = compute_order(example().evaluation, pods)
    status = OrderStatus(order, pods)
    metrics.order = status
    check(metrics, {"order_nodes pool=": 5, "order_pods": 7, "order_writes_total result=ok": 0})
    assert ("dynsched_order_last_write_timestamp_seconds", "") not in series(metrics)
    status.in_force, status.calls["failed"] = LastOrder(order, NOON, NOON + 28), 2
    check(
        metrics, {"order_last_write_timestamp_seconds": NOON, "order_writes_total result=failed": 2}
    )
    status.order = None
    assert ("dynsched_order_nodes", "pool=") not in series(metrics)


def test_the_writes_of_a_dry_run_are_counted_and_a_removed_rule_has_no_series(
    metrics,
) -> None:
    metrics.observe(example(writes=False))
    scene = Scene({"rules": EXAMPLE_RULES["rules"][1:]}, [Node("a"), Node("b")])
    for at in (0, 30):
        metrics.observe(scene.tick(NOON + at, node_mem_usage={"a": 99.0}, dry_run=True))
    would, did = "dry_run_patches_total action=", "patches_total action=mark"
    check(metrics, {f"{would}mark": 1, f"{would}release": 0, did: 0})
    of_rules = {labels for _, labels in series(metrics) if "rule=" in labels}
    assert any("rule=node-mem-usage" in labels for labels in of_rules)
    assert not any("rule=node-cpu" in labels for labels in of_rules)


def test_promtool_has_no_complaints(metrics) -> None:
    metrics.observe(example())
    lines = metrics.exposition().decode().splitlines(keepends=True)
    text = "".join(line for line in lines if "dynsched_" in line)
    done = run(need("promtool", "prometheus"), "check", "metrics", stdin=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


async def test_node_series_are_absent_if_switched_off_or_while_ticks_are_overdue() -> None:
    clock = Clock()
    ticks, silent = make_store(clock), make_store(clock, node_series=False)

    async def has_nodes(store) -> bool:
        text = (await store.exposition()).decode()
        return any(f"\n{name}{{" in text for name in FAMILIES)

    assert not await has_nodes(ticks)
    for store in (ticks, silent):
        store.publish(example())
    for now, shown in ((30.0, True), (30.1, False)):
        clock.now = now
        assert await has_nodes(ticks) is shown
    ticks.publish(example())
    assert await has_nodes(ticks)
    assert b"dynsched_nodes" in await silent.exposition()
    assert not await has_nodes(silent)


def of_nodes(tick, name):
    """Values of one family of node series, keyed by the label values."""
    families = text_string_to_metric_families(node_series(tick))
    found = [each for each in families if each.name == f"dynsched_node_{name}"]
    return {tuple(one.labels.values()): one.value for each in found for one in each.samples}


def test_node_series_have_the_state_of_each_node() -> None:
    found = of_nodes(example(), "verdict")
    undecided = ["control-plane-1", *(f"worker-{number}" for number in range(3, 8))]
    expected = dict.fromkeys(undecided, 0.5) | {"worker-1": 0.0, "worker-2": 1.0}
    assert found == {(name,): value for name, value in expected.items()}
    loads = of_nodes(example(), "measured_load")
    assert {node: load for (node, rule), load in loads.items() if rule == "node-cpu"} == {
        **dict.fromkeys(("control-plane-1", "worker-1"), 31.5),
        "worker-2": 91.25,
        "worker-3": 66.0,
        "worker-4": 90.0,
        "worker-5": 83.5,
        "worker-6": 81.0,  # worker-7 has no current value, so no series
    }
    # After a dry run no node has a mark, so the descheduler is to move no pods: the verdict is 0.5.
    assert of_nodes(example(dry_run=True), "verdict")["worker-2",] == 0.5
    unmarked = {("worker-4", "conflict"), ("worker-5", "withheld")}
    assert of_nodes(example(), "hot_unmarked").keys() == unmarked
    assert of_nodes(example(), "expected_load") == {}  # pods are not watched
    expected_loads = of_nodes(expected_example(), "expected_load")
    assert (expected_loads["worker-1", "node-cpu"], expected_loads["worker-2", "node-cpu"]) == (
        64.9,
        44.0,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"leadership": Leadership(leading=False)}, "following"),
        ({"writes": WriteResult(failures=(WriteFailure("worker-2", "500"),))}, "failed"),
        ({}, "next_tick"),
    ],
)
def test_a_hot_node_without_a_mark_has_the_reason(changes, reason) -> None:
    tick = replace(example(writes=False), **changes)
    assert ("worker-2", reason) in of_nodes(tick, "hot_unmarked")


def test_load_above_mean_is_relative_to_the_nodes_that_take_the_same_pods() -> None:
    taint = {"key": "example.com/team", "value": "red", "effect": "NoSchedule"}
    loads = {"a": 90.0, "b": 60.0, "c": 30.0, "r": 2.0, "s": 4.0}
    nodes = [Node(name, taints=(taint,) if name in "rs" else ()) for name in [*loads, "unknown"]]
    rules = [
        {"name": "cpu", "expr": "x", "resource": "cpu", "threshold": 95},
        {"name": "disk", "expr": "x", "threshold": 95},
    ]
    tick = Scene({"rules": rules}, nodes).tick(NOON, cpu=loads, disk=loads)
    above = {"a": 30.0, "b": 0.0, "c": -30.0, "r": -1.0, "s": 1.0}
    assert of_nodes(tick, "load_above_mean") == {
        (node, "cpu"): value for node, value in above.items()
    }
