"""The series of `/metrics` that there are for each node."""

from __future__ import annotations

from dataclasses import replace

from builders import body, project
from early_scene import early_example
from plain_answers import series_text
from prometheus_client.parser import text_string_to_metric_families
from snapshots import NOON, Scene, example
from store_support import Clock, make_store

from dynsched.core.keys import IGNORE_LABEL
from dynsched.core.model import Node, Snapshot, WriteFailure
from dynsched.web.node_series import FAMILIES


def series(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Name -> values of the labels -> value, of the metrics for each node."""
    ours = {name for name, _ in FAMILIES}
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(text.decode())
        if family.name in ours
    }


async def test_one_verdict_for_every_node() -> None:
    snapshots = make_store(Clock())
    snapshot = example()
    snapshots.publish(snapshot)
    found = series(b"".join(await snapshots.exposition()))
    assert {labels[0] for labels in found["dynsched_node_verdict"]} == set(snapshot.nodes)
    assert set(found["dynsched_node_verdict"].values()) == {0.0, 0.5, 1.0}


def test_measured_and_expected_load_by_rule() -> None:
    snapshot = early_example()
    found = series(series_text(snapshot))
    name, view = next((name, view) for name, view in snapshot.nodes.items() if view.added)
    [rule] = view.added
    measured = found["dynsched_node_measured_load"][name, rule]
    bound, ended = view.added[rule]
    assert bound > ended
    assert found["dynsched_node_expected_load"][name, rule] == measured + bound - ended
    assert not {rule for _, rule in found["dynsched_node_measured_load"]} & {"node-cpu-early"}


def unmarked(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    """The series of hot nodes without the mark, by node and reason."""
    return series(series_text(snapshot)).get("dynsched_node_hot_unmarked", {})


def test_hot_nodes_without_the_mark_are_named_with_the_reason() -> None:
    snapshot = example()
    conflict, capped = "worker-4", "worker-5"
    assert unmarked(snapshot) == {(conflict, "conflict"): 1.0, (capped, "withheld"): 1.0}
    hot = {name for name, view in snapshot.nodes.items() if view.pressured}
    assert hot > {conflict, capped}  # the others are marked


def test_a_mark_that_is_due_says_why_it_is_not_written() -> None:
    rules = [{"name": "cpu", "expr": "cpu", "threshold": 80}]
    ignored = Node("b", labels={IGNORE_LABEL: "true"})
    scene = Scene({"rules": rules}, [Node("a"), Node("c"), ignored])
    due = scene.tick(NOON, cpu={"a": 90.0, "b": 90.0}, dry_run=True)
    refused = (WriteFailure("a", "500"),)
    for reason, changed in {
        "dry_run": {},
        "following": {"dry_run": False, "leading": False},
        "failed": {"dry_run": False, "failures": refused},
        "next_tick": {"dry_run": False},
    }.items():
        found = unmarked(replace(due, **changed))
        assert found == {("a", reason): 1.0, ("b", "ineligible"): 1.0}


async def test_while_ticks_are_overdue_the_series_are_gone() -> None:
    clock = Clock()
    snapshots = make_store(clock)
    assert series(b"".join(await snapshots.exposition())) == {}
    snapshots.publish(example())
    clock.now = 30.0
    assert series(b"".join(await snapshots.exposition()))
    clock.now = 30.1
    assert series(b"".join(await snapshots.exposition())) == {}
    snapshots.publish(example())
    assert series(b"".join(await snapshots.exposition()))


async def test_they_can_be_turned_off() -> None:
    snapshots = make_store(Clock(), node_series=False)
    snapshots.publish(example())
    text = b"".join(await snapshots.exposition())
    assert b"dynsched_nodes" in text
    assert series(text) == {}


def test_a_rules_name_may_have_quotes_in_it() -> None:
    name = 'a "quoted" \\ name'
    scene = Scene(
        {"rules": [{"name": name, "expr": "load", "threshold": 80}]}, [project(body("n1"))]
    )
    snapshot = scene.tick(NOON, **{name: {"n1": 40.0}})
    assert series(series_text(snapshot))["dynsched_node_measured_load"] == {("n1", name): 40.0}
