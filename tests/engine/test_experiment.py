"""Blocks of an experiment: which arm each has, and what is written in it."""

import os
import subprocess
import sys
from typing import Any

import pytest
from builders import NOON, Body, rule, unlimited
from early_scene import known_pods
from extender_support import NAMES, RULES, World, ask
from snapshots import Scene

from dynsched.engine.experiment import OFF, is_on, phase_at
from dynsched.engine.load.expected import NO_PODS
from dynsched.engine.model import Action, Node
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import RuleSet

BLOCK = 1800
UNTIL = "2023-11-30T00:00:00Z"
"""Two weeks after NOON."""


def experiment(**more: Any) -> Body:
    return {"until": UNTIL, **more}


def of(*, sections: Body | None = None, **more: Any) -> RuleSet:
    return unlimited(experiment=experiment(**more), **(sections or {}))


def moment(rules: RuleSet, *, on: bool) -> float:
    """The beginning of the first block after NOON in which marks and the order are on, or off."""
    assert rules.experiment is not None
    first = int(NOON // BLOCK) + 1
    return next(n * BLOCK for n in range(first, first + 3) if is_on(rules.experiment, n) is on)


def test_of_two_blocks_one_is_on_in_an_order_that_the_seed_gives() -> None:
    orders = []
    for seed in range(3):
        rules = of(seed=seed).experiment
        assert rules is not None
        first = [is_on(rules, block) for block in range(0, 2000, 2)]
        assert first == [not is_on(rules, block) for block in range(1, 2000, 2)]
        assert 450 < sum(first) < 550
        orders.append(first)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize(
    ("more", "pods", "wash_out"),
    [
        ({}, NO_PODS, 120.0),
        ({}, known_pods(median_life=300.0), 420.0),
        ({}, known_pods(median_life=30_000.0), float(BLOCK)),
        ({"wash_out": "10m"}, known_pods(median_life=300.0), 600.0),
    ],
)
def test_a_block_begins_with_a_wash_out_by_the_lag_and_the_life_of_pods(
    more: Body, pods: Any, wash_out: float
) -> None:
    rules = unlimited(rule(lag="2m"), experiment=experiment(**more))
    began = moment(rules, on=True)
    for since, washes_out in ((0, True), (wash_out - 1, True), (wash_out, wash_out == BLOCK)):
        phase = phase_at(rules, began + min(since, BLOCK - 1), pods)
        assert phase is not None
        assert (phase.on, phase.wash_out, phase.washes_out) == (True, wash_out, washes_out)
        assert (phase.began, phase.ends) == (began, began + BLOCK)


def test_nothing_is_off_without_an_experiment_or_after_it() -> None:
    rules = of()
    assert phase_at(unlimited(), NOON, NO_PODS) is None
    assert rules.experiment is not None
    assert phase_at(rules, rules.experiment.until - 1, NO_PODS) is not None
    assert phase_at(rules, rules.experiment.until, NO_PODS) is None


EARLY = rule("cpu", resource="cpu", early={"mean_at_least": 40, "above_mean": 10})
ORDER = {"order": {"score": {"cpu": 1}}}
LOADS = {"hot": 95.0, "early": 70.0, "n1": 10.0, "n2": 10.0, "n3": 10.0}


@pytest.mark.parametrize("keeps", [False, True])
def test_in_a_block_that_is_off_marks_go_and_everything_else_goes_on(keeps: bool) -> None:
    rules = {"rules": [EARLY], "experiment": experiment(keep_hot_marks=keeps)} | ORDER
    rules["guard"] = {"max_marked": "90%", "max_releases": 1}
    room = {"cpu": 8.0}
    scene = Scene(
        rules,
        [Node(name, labels={"kubernetes.io/hostname": name}, allocatable=room) for name in LOADS],
    )

    def tick(*, on: bool, after: float) -> Snapshot:
        return scene.tick(moment(scene.rule_set, on=on) + after, pods=known_pods(), cpu=LOADS)

    on = tick(on=True, after=5)
    assert on.nodes.marked == {"hot", "early"}
    off = tick(on=False, after=1e-3)
    kept = {"hot"} if keeps else set()
    assert off.nodes.marked == kept
    gone = {"hot", "early"} - kept  # at once, though one mark may go in a tick
    assert {(p.node, p.action, p.reason) for p in off.applied} == {
        (name, Action.RELEASE, OFF) for name in gone
    }
    assert off.nodes.withheld == dict.fromkeys(gone, OFF)
    assert (
        (off.nodes.hot, off.nodes.early) == (on.nodes.hot, on.nodes.early) == ({"hot"}, {"early"})
    )
    assert off.is_off
    assert off.order is not None
    assert on.order is not None
    assert off.order.lists == on.order.lists
    assert tick(on=False, after=30).applied == ()
    assert tick(on=True, after=30).nodes.marked == {"hot", "early"}


def test_the_digest_of_the_rules_is_that_of_what_is_compared() -> None:
    """In every process, and not of when the experiment ends."""
    rules = "unlimited(nodes={'selector': 'a in (b, c, d, e)'})"
    text = f"from builders import unlimited; print({rules}.fingerprint)"
    path = os.pathsep.join(sys.path)
    found = {
        subprocess.run(
            [sys.executable, "-c", text],
            env={"PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1
    one = of().fingerprint
    assert of(until="2024-01-01T00:00:00Z", wash_out="1m").fingerprint == one
    others = [
        of(seed=1),
        of(block="1h"),
        of(keep_hot_marks=True),
        of(sections={"on_stale": "hold"}),
        unlimited(),
    ]
    assert len({one, *(each.fingerprint for each in others)}) == 6


def test_the_extender_is_neutral_in_a_block_that_is_off() -> None:
    world = World({**RULES, "experiment": experiment()})
    for on in (True, False, True):
        world.tick(moment(world.scene.rule_set, on=on))
        assert (len(set(world.scores(ask()).values())) > 1) is on
        assert (world.filter(ask())["NodeNames"] == NAMES) is not on
        assert ("d" in world.preempt({"NodeNameToMetaVictims": {"d": {"Pods": []}}})) is not on
