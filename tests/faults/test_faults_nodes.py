"""Marks that are found, broken, changed by hand or contested by others: each has one outcome, which
`/nodes` shows and which an Event tells once. See docs/operate.md.
"""

import json

import pytest
from bench import Bench
from builders import rule, unlimited

from dynsched.core.samples import Quality

HOT, COOL = {"a": 91.0}, {"a": 12.0}
KEY = "dynsched.io/pressure"
OURS = {"key": KEY, "value": "true", "effect": "PreferNoSchedule"}
THEIRS = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
BOTH = {"taint": f"{KEY}=true:PreferNoSchedule"}


def rules(name="load", **options):
    return unlimited(rule(name, **options), mark=BOTH)


@pytest.fixture
def bench():
    """A node ``a``, on which others have put a taint, a label and an annotation."""
    found = Bench("a", rules=rules())
    found.change("a", taints=[THEIRS], labels={"team": "x"}, annotations={"owner.io/team": "blue"})
    return found


def on_node(bench):
    """What is on the node: labels, taints and annotations."""
    found = bench.objects.get("nodes", "a")
    metadata = found["metadata"]
    return metadata["labels"], found["spec"]["taints"], metadata["annotations"].keys()


NOTHING = ({"team": "x"}, [THEIRS], {"owner.io/team"})
WHOLE = ({"team": "x", "status": "presure"}, [THEIRS, OURS], {"owner.io/team", KEY})


@pytest.mark.parametrize("more", [{}, {"for_": "10m"}, {"name": "renamed"}], ids=str)
async def test_a_restart_takes_its_marks_over(bench, more) -> None:
    await bench.tick(load=HOT)
    since, marked = bench.node("a").since, bench.stored("a")
    bench.start(rules(**more))
    bench.now += 7 * 60
    name = more.get("name", "load")
    bench.history.points = {name: "HTTP 503"}
    await bench.evaluator.restore(10.0)
    for _ in range(3):
        await bench.tick(**{name: "HTTP 503"})
    assert bench.stored("a") == marked
    (found,) = bench.node("a").rules
    assert (bench.node("a").marked, found.adopted, found.quality) == (True, True, Quality.FAILED)
    assert bench.node("a").since == found.since == since  # and not when the process began
    await bench.tick(**{name: COOL})
    assert on_node(bench) == NOTHING
    assert bench.told("a") == {"Pressured": 1, "Relieved": 1}


LABEL = {"labels": {"status": "presure"}}
RECORD = json.dumps({"label": "status=presure", "rules": [{"rule": "load"}]})
HALVES = {
    "label without annotation": LABEL,
    "label from a person": LABEL | {"manager": "kubectl-label"},
    "label with an annotation that is no record": LABEL | {"annotations": {KEY: "?"}},
    "label without taint": LABEL | {"annotations": {KEY: RECORD}},
    "taint without label": {"taints": [THEIRS, OURS]},
    "all but the annotation": LABEL | {"taints": [THEIRS, OURS]},
    "annotation alone": {"annotations": {KEY: RECORD}},
}


@pytest.mark.parametrize("load", [HOT, COOL], ids=["hot", "cool"])
@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_half_a_mark_is_completed_on_a_hot_node_and_removed_from_a_cool_one(
    bench, half, load
) -> None:
    bench.change("a", **{"manager": "dynsched", **half})
    for _ in range(3):
        await bench.tick(load=load)
    if load == HOT:
        assert on_node(bench) == WHOLE
        told = "MarkRepaired" if "labels" in half or "taints" in half else "Pressured"
        assert (bench.node("a").marked, bench.told("a")) == (True, {told: 1})
        await bench.tick(load=COOL)
    else:
        assert (bench.node("a").marked, bench.told("a")) == (False, {"Relieved": 1})
    assert on_node(bench) == NOTHING


async def test_a_label_changed_by_hand_is_theirs_from_then_on(bench) -> None:
    await bench.tick(load=HOT)
    bench.change("a", labels={"status": "maintenance"})
    for _ in range(3):
        await bench.tick()
        assert on_node(bench) == ({"team": "x", "status": "maintenance"}, *NOTHING[1:])
    assert bench.node("a").conflict == "label status=maintenance was set by somebody else"
    assert not bench.node("a").marked
    assert bench.status()["conflicts"]["count"] == bench.metric("dynsched_conflicts") == 1
    assert bench.told("a") == {"Pressured": 1, "MarkConflict": 1, "Relieved": 1}
    bench.change("a", labels={"status": None})
    await bench.tick()
    assert on_node(bench) == WHOLE
    assert bench.node("a").conflict is None
