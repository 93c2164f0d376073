"""CPU use of new pods by age, and the part of it that a node's metric still includes."""

from collections.abc import Mapping

import pytest
from builders import NOON, rule, rule_set

from dynsched.core.load.expected import KnownPods, expected_load
from dynsched.core.load.pods import Added, BoundPod, RecentPod
from dynsched.core.load.use_by_age import LATE, Counts, counted, start_factor, uses_of
from dynsched.core.nodes import Node, group_of
from dynsched.core.samples import Quality, Reading

WEB = "shop/web-1"


def followed(*answers: tuple[float, float | None]) -> Counts:
    """The counts of a pod after queries, each given as the pod's age and its mean use since its
    start.
    """
    found: Mapping[str, Counts] = {}
    for age, mean in answers:
        means = {} if mean is None else {WEB: mean}
        found = counted(found, means, {WEB: age + LATE})
    return found.get(WEB, ())


def test_the_use_between_two_scrapes_is_the_increase_of_the_counter() -> None:
    known = followed((5, None), (20, 4.0), (30, 4.0), (50, 4.0), (80, 3.25), (110, 2.5))
    assert uses_of(known) == pytest.approx([4.0, 3.0, 0.5])  # 80, 260 and 275 CPU seconds
    assert uses_of(followed((20, 4.0), (50, 1.0))) == [4.0, 0.0]  # a container restarted
    assert followed((5, None)) == ()
    assert uses_of(followed((50, 1.0), (20, 3.0))) == [3.0]  # another pod of the same name


def expected(
    age: float, known: Counts, *, measured: float = 50.0, ended: float | None = None
) -> Added | None:
    """What the pod adds to node a. Both nodes have 8 cores, and the rule lags 100 s."""
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "ab"}
    readings = dict.fromkeys(nodes, Reading(measured, NOON, Quality.OK))
    (found,) = rule_set(rule(resource="cpu", lag="100s")).rules
    pods = KnownPods(
        (RecentPod(BoundPod("1", "a", name=WEB), age, ended),),
        use_of_pods={"cpu": {WEB: uses_of(known)[-1]}},
        cpu_by_age={WEB: known},
    )
    groups = {name: group_of(node, rule_set().guard) for name, node in nodes.items()}
    return expected_load(found, readings, nodes, groups, pods=pods, now=NOON).added.get("a")


STARTED = followed((50, 4.0), (100, 2.4))
"""A pod that uses 4 of 8 cores for 50 s, and 0.8 cores after that."""


@pytest.mark.parametrize(
    ("age", "added"),
    [
        (100, 10 - 50 + 20),  # the metric includes 50 s of the start and 50 s of the rest: 30 %
        (150, None),  # the metric no longer includes the start
    ],
)
def test_the_part_of_a_finished_start_that_is_still_measured_is_subtracted(age, added) -> None:
    found = expected(age, STARTED)
    if added is None:
        assert found is None
    else:
        assert found is not None
        assert found.bound - found.ended == pytest.approx(added)


def test_a_pod_that_ends_subtracts_the_measured_part_of_its_start() -> None:
    """The metric includes 50 s of its start and 25 s of the rest."""
    found = expected(75, STARTED, ended=0)
    assert found is not None
    assert found.ended == pytest.approx(0.5 * 50 + 0.25 * 10)


@pytest.mark.parametrize(
    ("pods", "first", "factor"),
    [(30, 3.0, 3.0), (30, 1.2, 1.0), (29, 3.0, 1.0), (30, 0.2, 1.0), (30, 90.0, 5.0)],
)
def test_the_start_factor_needs_many_pods_that_use_much_more_at_first(pods, first, factor) -> None:
    names = [f"shop/web-{number}" for number in range(pods)]
    ages = dict.fromkeys([*names, "shop/other-1"], 20 + LATE)
    known = counted({}, dict.fromkeys(ages, 0.5 * first), ages)
    workloads = {**dict.fromkeys(names, "shop/web"), "shop/other-1": "shop/other"}
    assert start_factor(known, workloads, {"shop/web": 0.5}) == pytest.approx(factor)
    assert start_factor(known, workloads, {"shop/web": 0.0}) == 1.0
