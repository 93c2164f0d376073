"""The synthetic load: pure, inside its limits, and hot on some nodes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dynsched.sim.load import Kind, node_load

indexes = st.integers(0, 5_000)
seeds = st.integers(-1_000, 1_000)
times = st.floats(0, 10_000)


def test_the_same_index_and_seed_give_the_same_load() -> None:
    assert node_load(3, seed=7) == node_load(3, seed=7)
    assert len({node_load(index, seed) for index in range(20) for seed in range(20)}) == 400


@given(indexes, seeds, times)
def test_it_stays_between_0_and_100_percent(index, seed, time) -> None:
    load = node_load(index, seed)
    assert 5 < load.cpu(time) < 100
    assert 5 < load.memory(time) < 100


def test_of_twelve_nodes_about_half_heat_and_of_very_many_few() -> None:
    for seed in range(100):
        kinds = Counter(node_load(index, seed).kind for index in range(12))
        assert 5 <= kinds[Kind.CPU] + kinds[Kind.MEMORY] <= 7
        assert min(kinds[Kind.CPU], kinds[Kind.MEMORY]) >= 1
    kinds = Counter(node_load(index).kind for index in range(5_000))
    assert 480 < kinds[Kind.CPU] + kinds[Kind.MEMORY] < 560
