"""The demo's pods: pure, inside their limits, and better placed where marks are avoided."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched_sim.load import HOT, DemoLoad


@given(st.integers(3, 20), st.integers(-9, 9), st.lists(st.floats(0, 9), max_size=9))
def test_the_same_seed_gives_the_same_pods_and_loads_stay_between_0_and_100(n, seed, steps) -> None:
    one, other = DemoLoad(n, seed), DemoLoad(n, seed)
    for now in accumulate([0.0, *steps]):
        one.step(now, {0})
        other.step(now, {0})
        assert one.at(now) == other.at(now) is not None
        assert all(5 < value <= 100 for values in one.at(now).values() for value in values)
    assert one.pods == other.pods
    assert one.at(-1) is None


def test_pods_avoid_marked_nodes_and_those_of_the_job_do_not() -> None:
    load, marked = DemoLoad(12), {0, 1, 2}
    new = [pod for second in range(1, 300) for pod in load.step(second, marked)[1]]
    assert {pod.node for pod in new if pod.workload != "report"} == set(range(3, 12))
    assert marked & {pod.node for pod in new if pod.workload == "report"}
    assert marked < {pod.otherwise for pod in new}


@pytest.mark.parametrize("seed", range(3))
def test_to_avoid_the_busiest_nodes_prevents_overload(seed: int) -> None:
    """In ten minutes; and requests alone leave nodes over the line."""
    load = DemoLoad(12, seed)
    for second in range(1, 600):
        cpu = load.at(second - 1)["node-cpu"]
        load.step(second, {node for node, used in enumerate(cpu) if used > HOT - 20})
    avoided, otherwise = load.hot
    assert 0.02 < otherwise < 0.3
    assert avoided < 0.7 * otherwise
