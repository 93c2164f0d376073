"""The demo's load is deterministic, bounded, equal on both clusters, and compared fairly."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from dynsched_sim.load import BLOCK, DemoLoad, DemoPod

Wants = Callable[[DemoLoad], Sequence[float]]


def nothing(load: DemoLoad) -> Sequence[float]:
    return [0.0] * len(load.ordered.cpu)


def coolest(load: DemoLoad) -> Sequence[float]:
    return [max(0.0, 80 - used) for used in load.ordered.cpu]


def go_on(load: DemoLoad, times: Sequence[float], wants: Wants = nothing) -> list[DemoPod]:
    """All pods that arrive at these times, placed according to ``wants``."""
    found = []
    for now in times:
        for pod in load.go_on(now)[1]:
            load.place(pod, wants(load))
            found.append(pod)
    return found


@given(st.integers(3, 50), st.integers(-9, 9), st.lists(st.floats(0, 9), max_size=9))
def test_the_same_seed_gives_the_same_pods_and_loads_stay_between_0_and_100(n, seed, steps) -> None:
    one, other = DemoLoad(n, seed), DemoLoad(n, seed)
    assert one.at(0) is None
    times = [*accumulate([0.0, *steps, 1.0])]
    assert go_on(one, times) == go_on(other, times)
    assert one.at(times[-2]) == other.at(times[-2]) is not None
    assert all(5 < value <= 100 for values in one.at(times[-2]).values() for value in values)
    assert one.at(-1) is None


@given(st.integers(3, 20), st.integers(-9, 9))
def test_without_preferences_both_clusters_stay_equal(n, seed) -> None:
    load = DemoLoad(n, seed)
    go_on(load, range(200))
    assert load.ordered.cpu == load.alone.cpu
    assert load.hot(load.ordered) == load.hot(load.alone)
    assert load.saved() == (0, 0)


def test_pods_go_to_preferred_nodes() -> None:
    """Not all of them: spreading over nodes counts as much as a preference."""
    load = DemoLoad(12)
    go_on(load, range(200), lambda load: [node > 2 for node in range(12)])
    few, others = load.ordered.cpu[:3], load.ordered.cpu[3:]
    assert max(few) < min(others)
    assert min(load.alone.cpu[:3]) > max(few)


def test_the_measurement_has_a_confidence_interval() -> None:
    """The order helps for each of these seeds; three blocks are too few for an interval."""
    for seed in range(5):
        load = DemoLoad(12, seed)
        go_on(load, range(int(3 * BLOCK)), coolest)
        assert load.saved() is None
        go_on(load, range(int(3 * BLOCK), 1200), coolest)
        least, most = load.saved()
        assert 0 < least < load.hot(load.alone) - load.hot(load.ordered) < most < 0.3
        assert load.ordered.placed_on_hot < load.alone.placed_on_hot


def test_the_initial_pods_are_not_in_the_figures() -> None:
    """Some of them meet a hot node, before any order can exist."""
    for seed in range(5):
        load = DemoLoad(40, seed)
        go_on(load, [0.0])
        assert (load.placed, load.ordered.placed_on_hot, load.alone.placed_on_hot) == (0, 0, 0)
