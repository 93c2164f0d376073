"""The series of `/metrics` for each node; their values are compared with a plain form in
`test_answers_from_columns`.
"""

from __future__ import annotations

from dataclasses import replace

from early_scene import early_example
from plain_answers import series_text
from prometheus_client.parser import text_string_to_metric_families
from snapshots import NOON, Scene, example
from store_support import Clock, make_store

from dynsched.core.keys import IGNORE_LABEL
from dynsched.core.model import Node, WriteFailure
from dynsched.web.node_series import FAMILIES


def series(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Name -> values of the labels -> value, of the metrics for each node."""
    ours = {name for name, _ in FAMILIES}
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(text.decode())
        if family.name in ours
    }


def test_verdicts_loads_by_rule_and_why_a_hot_node_has_no_mark() -> None:
    snapshot = example()
    found = series(series_text(snapshot))
    verdicts = found["dynsched_node_verdict"]
    assert {labels[0] for labels in verdicts} == set(snapshot.nodes)
    assert set(verdicts.values()) == {0.0, 0.5, 1.0}
    unmarked = {("worker-4", "conflict"): 1.0, ("worker-5", "withheld"): 1.0}
    assert found["dynsched_node_hot_unmarked"] == unmarked
    early = early_example()
    found = series(series_text(early))
    (rule, (bound, ended)) = next((*view.added.items(),)[0] for view in early.nodes.values())
    measured = found["dynsched_node_measured_load"]["worker-1", rule]
    assert (measured, rule, bound > ended) == (61.0, "node-cpu", True)
    expected = found["dynsched_node_expected_load"]["worker-1", rule]
    assert expected == measured + bound - ended
    assert not {rule for _, rule in found["dynsched_node_measured_load"]} & {"node-cpu-early"}


def test_a_mark_that_is_due_says_why_it_is_not_written() -> None:
    rules = [{"name": "cpu", "expr": "cpu", "threshold": 80}]
    ignored = {IGNORE_LABEL: "true"}
    scene = Scene({"rules": rules}, [Node("a"), Node("b", labels=ignored), Node("c")])
    due = scene.tick(NOON, cpu={"a": 90.0, "b": 90.0}, dry_run=True)
    for reason, changes in {
        "dry_run": {"dry_run": True},
        "following": {"leading": False},
        "failed": {"failures": (WriteFailure("a", "500"),)},
        "next_tick": {},
    }.items():
        found = series(series_text(replace(due, **{"dry_run": False, **changes})))
        expected = {("a", reason): 1.0, ("b", "ineligible"): 1.0}
        assert found["dynsched_node_hot_unmarked"] == expected


async def test_while_ticks_are_overdue_or_where_they_are_turned_off_there_are_none() -> None:
    clock = Clock()
    snapshots, silent = make_store(clock), make_store(clock, node_series=False)
    assert series(b"".join(await snapshots.exposition())) == {}
    for store in (snapshots, silent):
        store.publish(example())
    for now, shown in ((30.0, True), (30.1, False)):
        clock.now = now
        assert bool(series(b"".join(await snapshots.exposition()))) is shown
    snapshots.publish(example())
    assert series(b"".join(await snapshots.exposition()))
    text = b"".join(await silent.exposition())
    assert b"dynsched_nodes" in text
    assert series(text) == {}


def test_a_rules_name_may_have_quotes_in_it() -> None:
    name = 'a "quoted" \\ name'
    scene = Scene({"rules": [{"name": name, "expr": "load", "threshold": 80}]}, [Node("n1")])
    found = series(series_text(scene.tick(NOON, **{name: {"n1": 40.0}})))
    assert found["dynsched_node_measured_load"] == {("n1", name): 40.0}
