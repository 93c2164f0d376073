"""The formulas of other schedulers, against the tables in their own tests (at the commits that the
formulas name), and what a pod suffers and a user gains.
"""

from dataclasses import replace

import numpy as np
import pytest
import simulated_loop
from closedloop import peers
from closedloop.descheduler import Running
from closedloop.peers import formulas as by
from closedloop.peers.low_node_utilization import Descheduling, low_node_utilization, rests
from closedloop.players import Default
from closedloop.workload import MIB, Pod, Scenario
from closedloop.world import World, simulate

pytestmark = pytest.mark.thorough

GIB = 1024 * MIB
SMALL = Scenario("small", nodes=12, warm=600.0, hours=0.25)


def of(*values: float) -> by.Floats:
    return np.array(values, dtype=float)


def test_target_load_packing() -> None:  # TestTargetLoadPackingScoring
    assert by.target_load_packing(of(0, 50, 130)).tolist() == [40, 33, 0]


def test_risk_balancing() -> None:  # TestComputeScore: capacity 100, the pod requests 10
    one = {(40, 36): 57, (40, -36): 75}
    two = {(-40, 36): 65, (200, 36): 20, (40, -36): 75, (40, 120): 25}
    for sensitivity, rows in ((1, one), (-1, one), (2, two), (0, {(40, 36): 75})):
        used, deviation = np.array(list(rows), dtype=float).T / 100
        found = by.risk_balancing(np.clip(used, 0, 1) + 0.1, deviation, 1, sensitivity)
        assert np.rint(found).tolist() == list(rows.values())
    assert by.risk_balancing(of(0.5), of(0.36), -1).tolist() == [75]


def test_over_commitment() -> None:  # TestLowRiskOverCommitment_computeRisk
    def risks(mean: float, requests: float, limits: float, pod: tuple[float, float]) -> float:
        them = {"requests": of(requests), "limits": of(limits), "of_pod": pod}
        return by.over_commitment_risk(of(mean), of(0), of(4), **them)[0]

    assert [risks(0.8, 1, 2, (1, 1)), risks(0.8, 3, 4, (1, 1))] == [0.5, 1]
    assert [risks(0.25, 0, 0, (2, 6)), risks(0.25, 0.5, 6, (0.5, 1))] == [0.25, 0.75]


def test_the_beta_distribution() -> None:  # the last three: 1 - (1 - x)^b, x^a, and 1 - 0.2^3 * 2.2
    a, b, x = of(2, 2, 2, 1, 0.5, 2), of(2, 2, 2, 5, 1, 2.0), of(0.5, 0, 1, 0.3, 0.49, 0.8)
    known = [0.5, 0, 1, 1 - 0.7**5, 0.7, 3 * 0.8**2 - 2 * 0.8**3]
    assert by.beta_below(a, b, x) == pytest.approx(known)


def test_koordinator() -> None:  # default_estimator_test.go, TestScore and TestFilterUsage
    gib = by.koordinator_estimate(8 * GIB, 8 * GIB, 70, 0)
    cpus = [(4, 4, 85), (4, 8, 85), (4, 4, 110), (4, 0, 80), (0, 0, 85)]
    assert [by.koordinator_estimate(*each, 0.25) for each in cpus] == [3.4, 6.8, 4, 3.2, 0.25]
    assert round(gib) == 6012954214
    pod, memory = 0.85 * 16, 0.7 * 32
    used = of(pod, 32 + pod, 32 + 2 * pod, 0.25) / 96
    memories = of(memory, 10 + memory, 10 + 2 * memory, 200 / 1024) / 512
    assert by.koordinator_score(used, memories).tolist() == [90, 72, 63, 99]
    assert by.koordinator_score(used[:1], memories[:1], dominant=10).tolist() == [85]
    passed = by.koordinator_passes(of(60, 70, 30) / 96, of(256, 256, 500) / 512, (65, 95))
    assert passed.tolist() == [True, False, False]


def test_volcano() -> None:  # estimator_test.go
    pods = [
        (500, 2000, 1, 0, 1),
        (500, 2000, 0.5, 0.2, 1),
        (500, 600, 1, 0, 1.2),
        (500, 0, 1, 1, 1.2),
    ]
    assert [by.volcano_estimate(*each) for each in pods] == [500, 550, 600, 500]
    shares = by.volcano_composite(of(50, 50, 80, 100), of(0, 2000, 5000, 0), of(*[8000] * 4))
    assert shares.tolist() == [0.5, 0.75, 1, 1]
    scores = by.volcano_score(of(0, 1, 0.5, 0.3), of(0, 1, 0.5, 0.5))
    assert scores == pytest.approx([500, 0, 250, 300])
    assert by.volcano_score(of(0.6), of(0.5), (2, 8)) == pytest.approx([240])


def test_crane() -> None:  # it has no tests of these: by hand from its policy.yaml
    shares = np.array([[0.5, 0.9, np.nan], [0.1, 0.1, 0.1]])
    hot = by.crane_hot_value({300: of(12, 4, 0), 60: of(3, 1, 0)}, {300: 5, 60: 2})
    assert hot.tolist() == [3, 0, 0]
    assert by.crane_score(shares, of(3, 1), hot).tolist() == [60 - 30, 30, 22]


def test_the_soft_tainter() -> None:  # softtainter_test.go: 10:10 around the mean
    def taints(*load: float) -> list[int]:
        return by.soft_taints(*by.bands(of(*load), 10, 10, relative=True)).tolist()

    assert [taints(10, 50, 90), taints(50, 50, 50)] == [[0, 1, 2], [0, 0, 0]]
    above = by.soft_tainter_deviations(of(0.2, 0.5, 0.8), of(0.3, 0.6, 0.6), of(0.1, 0.1, 0.1))
    assert by.soft_tainter_load(above).tolist() == [0, 0, 100]  # 0.3 of CPU, and 0.4 of pressure
    cooldown = by.soft_tainter_cooldown(of(0, 12, 3))
    assert by.soft_tainter_load(above, cooldown).tolist() == [0, 0, 70]


def pod(name: str) -> Pod:
    return Pod(name, "o", arrives=0.0, lives=900.0, cpu=0.2, memory=256 * MIB, uses=0.5)


@pytest.mark.parametrize(
    ("load", "how", "evicted"),
    [
        ((90, 20, 100), Descheduling(30, 60, relative=False), "deabc"),  # the most used first
        ((90, 20, 100), Descheduling(30, 60, relative=False, per_node=1), "da"),
        ((90, 59, 100), Descheduling(59, 60, relative=False), "d"),  # no more room elsewhere
        ((90, 40, 100), Descheduling(30, 60, relative=False), ""),  # none is under-used
    ],
)
def test_low_node_utilization(load, how, evicted) -> None:
    at = {"a": 0, "b": 0, "c": 0, "d": 2, "e": 2}
    here = {name: Running(pod(name), node, 0.0, 0.5) for name, node in at.items()}
    found = low_node_utilization(of(*load), of(8, 8, 8), here, how)
    assert "".join(each.pod.uid for each in found) == evicted


def test_a_virtual_machine_rests_after_each_move_for_longer() -> None:
    how = Descheduling(0, 10, rest=900)
    assert rests([100], 999, how)
    assert not rests([100], 1000, how)
    assert rests([100, 1000], 2799, how)
    assert not rests([0] * 9, 6 * 3600, how)
    assert not rests([100], 101, Descheduling(0, 10))


@pytest.mark.parametrize("name", peers.ways())
def test_every_peer_plays_and_differs_from_the_default_where_it_acts(name: str) -> None:
    found, default = (simulate(SMALL, 1, it) for it in (peers.ways()[name], Default))
    assert found.placed > 100
    # As shipped, only a node below 20 % would be under-used.
    assert (found.hot == default.hot) == (name == "LowNodeUtilization")


def test_by_load_pods_move_beside_the_order_without_a_mark() -> None:
    both = simulate(SMALL, 1, simulated_loop.ways()["order, and descheduler by load"])
    assert both.evicted > 0
    assert both.writes == 0


def test_a_pod_that_finds_no_node_waits_and_one_short_of_cpu_is_counted() -> None:
    class Late(Default):
        def choose(self, pod: Pod) -> int | None:
            return 0 if self.world.clock.now >= pod.arrives + 20 else None

    one = replace(SMALL, nodes=1, used=0.5)
    late = simulate(one, 1, Late)
    assert late.unplaced > 0
    assert late.waited == pytest.approx(25, abs=6)  # tried again every ten seconds
    assert late.starved == 0

    def small(world: World) -> Default:
        world.capacity = of(0.01)  # each pod has less than it wants all its life
        return Default(world)

    short = simulate(one, 1, small)
    assert short.starved == short.starved_p99 == 1
