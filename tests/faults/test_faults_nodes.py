"""Half a mark is completed or removed, and an outage of Prometheus.

test_stateful.py covers all other faults that affect marks. See docs/operate.md.
"""

import json

import pytest
from bench import Bench
from builders import rule, rule_set, unlimited

HOT, COOL = {"a": 91.0}, {"a": 12.0}
KEY = "dynsched.io/pressure"
OURS = {"key": KEY, "value": "true", "effect": "PreferNoSchedule"}
THEIRS = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
BOTH = {"taint": f"{KEY}=true:PreferNoSchedule"}


@pytest.fixture
def bench():
    """A node ``a`` with a taint, a label and an annotation of others."""
    found = Bench("a", rules=unlimited(rule("load"), mark=BOTH))
    found.change("a", taints=[THEIRS], labels={"team": "x"}, annotations={"owner.io/team": "blue"})
    return found


def on_node(bench):
    """Labels, taints and annotation keys of the node."""
    found = bench.objects.get("nodes", "a")
    metadata = found["metadata"]
    return metadata["labels"], found["spec"]["taints"], metadata["annotations"].keys()


NOTHING = ({"team": "x"}, [THEIRS], {"owner.io/team"})
WHOLE = ({"team": "x", "status": "presure"}, [THEIRS, OURS], {"owner.io/team", KEY})


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
        reason = "MarkRepaired" if "labels" in half or "taints" in half else "Pressured"
        assert (bench.node("a").marked, bench.told("a")) == (True, {reason: 1})
        await bench.tick(load=COOL)
    else:
        assert (bench.node("a").marked, bench.told("a")) == (False, {"Relieved": 1})
    assert on_node(bench) == NOTHING


async def test_an_outage_of_prometheus_releases_marks_slowly_and_restarts_for() -> None:
    guard = {"max_marked": "50%", "max_releases": "25%"}
    bench = Bench(*"abcdefgh", rules=rule_set(rule("load", for_="1m"), guard=guard))
    bench.leadership.steps_down = False  # nobody else takes the Lease
    await bench.tick(load=dict.fromkeys("abcd", 91.0) | dict.fromkeys("efgh", 12.0))
    await bench.tick(60.0)
    assert bench.marked == "a b c d"
    for _ in range(4):
        await bench.tick(60.0, load="connection refused")
        assert bench.marked == "a b c d"
    assert "no rule could be queried" in bench.status()["error"]
    assert bench.metric('dynsched_rule_readings{quality="failed",rule="load"}') == 8
    assert bench.metric('dynsched_rule_query_failures_total{rule="load"}') == 4

    await bench.tick(2 * 60.0)  # stale_after has passed: marks are released, but not all at once
    assert bench.node("d").withheld == "release delayed: guard.max_releases is 25%"
    left = [bench.marked]
    while left[-1]:
        await bench.tick()
        left.append(bench.marked)
    assert left == ["b c d", "c d", "d", ""]

    await bench.tick(3 * 3600.0)
    await bench.tick(load=dict.fromkeys("abcdefgh", 91.0))
    assert bench.status()["error"] is None
    assert bench.marked == ""  # `for` starts when values are known again
    await bench.tick(60.0)
    assert bench.marked == "a b c d"
    assert bench.metric("dynsched_capped_pools") == 1
