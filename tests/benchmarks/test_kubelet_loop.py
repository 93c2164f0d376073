"""The evaluation of the kubelet loop's readings. The loop itself needs a whole machine."""

from pathlib import Path

import kubelet_loop
import numpy as np
import pytest
from closedloop.on_kubelets import CPU, EXPR, QUANTILES, judge, latencies, scenario
from closedloop.workload import draw

pytestmark = pytest.mark.thorough

SHORT = scenario(used=0.6, warm=20, seconds=40)


def run(mode: str, seed: int, hot: float, **more: object) -> kubelet_loop.Run:
    zero = dict.fromkeys(("throttled", "stopped", "beyond", "writes", "used", "load"), 0.0)
    found = {"mode": mode, "seed": seed, "hot": hot, "on_hot": 1, "placed": 10, "requests": 1000}
    found["latency"] = dict.fromkeys(QUANTILES, hot)
    return {**zero, **found, "lags": {"bound to running": [2, 1.5, 1.0, 1.5, 2.0, 2.5]}, **more}


def test_use_throttling_and_pods_on_hot_nodes_are_judged_after_the_warm_up() -> None:
    """Two nodes for 10 s: the first uses all its CPU until second 6, the second none."""
    times = [float(second) for second in range(11)]
    readings = np.zeros((11, 2, 4))
    readings[:, 0, 0] = CPU * np.minimum(times, 6)
    readings[:, 0, 1] = np.multiply(times, 10)  # periods
    readings[:, 0, 2] = 5 * np.minimum(times, 6)
    readings[:, 0, 3] = 0.25 * np.minimum(times, 6)
    bound = [(1.5, 0), (4.5, 0), (4.5, 1), (6.5, 0), (7.5, 0)]
    found = judge(times, readings, bound, warm=2.0)
    assert (found.hot, found.used) == (pytest.approx(4 / 16), pytest.approx(4 / 16))
    assert (found.throttled, found.stopped) == (pytest.approx(20 / 80), pytest.approx(1.0))
    # At 6.5 s the last complete second, 5 to 6, was hot.
    assert (found.on_hot, found.placed) == (2, 4)


def test_a_mode_is_compared_with_the_default_scheduler_per_seed() -> None:
    runs = [run("default", seed, hot) for seed, hot in ((1, 0.3), (2, 0.5))]
    runs += [run("order", 1, 0.2, writes=12.0), run("order", 2, 0.2), run("taint", 3, 0.1)]
    _, _, default, order, taint = kubelet_loop.table(runs).splitlines()
    assert default.startswith("| default | 40.0% (30.0% to 50.0%) | - |")
    cells = order.split(" | ")
    assert cells[:3] == ["| order", "20.0%", "-20.0% (-30.0% to -10.0%)"]
    assert cells[9:14] == ["200", "-200 (-300 to -100)", "2 of 20", "2000", "6 (0 to 12)"]
    assert taint.startswith("| taint | 10.0% | - |")  # no seed in common


def test_only_requests_in_the_judged_time_are_read(tmp_path: Path) -> None:
    (tmp_path / "0-1").write_text("9.9 0.5\n10.0 0.002\n11.0 5.0\n")
    (tmp_path / "0-2").write_text("12.0 0.004\n20.0 0.1\n")
    assert sorted(latencies(tmp_path, 10.0, 20.0).tolist()) == [0.002, 0.004, 5.0]


def test_the_rules_are_the_shipped_ones_with_the_kubelets_series() -> None:
    shipped = kubelet_loop.read_rules(kubelet_loop.SHIPPED)
    (rule,), (theirs,) = kubelet_loop.rules(shipped)["rules"], shipped["rules"]
    assert (rule["expr"], theirs | rule) == (EXPR, rule)
    assert sum(pod.cpu for pod in draw(SHORT, 1)) < CPU * SHORT.nodes  # so every pod finds a node
