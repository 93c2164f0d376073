"""A replay over a made-up history, step by step, and its summary."""

from collections.abc import Mapping, Sequence

import pytest
from builders import NOON, named, rule, rule_set

from dynsched.core.nodes import Node
from dynsched.core.samples import Series
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import RangeResult
from dynsched.tools.backtest.history import Past, Query, Window
from dynsched.tools.backtest.replay import Record, Runs, Times, replay
from dynsched.tools.backtest.summary import tally

STEP = 30.0


def played(
    rules: RuleSet,
    *parts: Mapping[str, Sequence[float]],
    steps: int | None = None,
    nodes: Mapping[str, Node] | None = None,
) -> Record:
    """``parts``: values by node, the same for all rules; after them unknown, up to ``steps``."""
    counts = [len(next(iter(values.values()))) for values in parts]
    window = Window(NOON, STEP, steps or sum(counts))
    past, first = Past(Query("load:cpu", ("node",), higher_is_worse=True), window), 0
    for values, count in zip(parts, counts, strict=True):
        part = range(first, first + count)
        found = {
            name: tuple((window.at(step), value) for step, value in zip(part, each, strict=True))
            for name, each in values.items()
        }
        past.take(part, RangeResult([Series({"node": n}, each) for n, each in found.items()]))
        first += count
    found_nodes = nodes or named(*sorted({name for part in parts for name in part}))
    return replay(rules, {Query.of(each): past for each in rules.rules}, found_nodes, window)


def marks(record: Record) -> dict[str, list[list[int]]]:
    return {name: node.marked.active.runs for name, node in record.nodes.items()}


def test_a_release_that_had_to_wait_comes_in_the_next_step() -> None:
    rules = rule_set(rule(threshold=30), guard={"max_releases": "25%"})
    hot, cool = [40.0, 0, 0, 0], [0.0] * 4
    values = {"a": cool, "b": hot, "c": cool, "d": cool, "e": cool, "f": hot}
    record = played(rules, values)
    assert marks(record) == {**{name: [] for name in "acde"}, "b": [[0, 1]], "f": [[0, 2]]}
    assert (record.writes, record.peak) == (4, 2)


def test_a_replay_ignores_the_current_marks() -> None:
    """It begins without marks; a node on which somebody else set the label is never marked."""
    labels = {"a": "presure", "b": "broken"}
    nodes = {name: Node(name, labels={"status": labels[name]}) for name in labels}
    rules = rule_set(guard={"max_marked": "100%"})
    record = played(rules, {"a": [10.0, 90], "b": [90.0, 90]}, nodes=nodes)
    assert marks(record) == {"a": [[1, 2]]}


@pytest.mark.parametrize(("stale_after", "ends"), [("30s", 3), ("5m", 7)])
def test_missing_values_are_unknown_and_a_mark_stays_until_they_are_stale(
    stale_after: str, ends: int
) -> None:
    rules = rule_set(rule(), stale_after=stale_after, guard={"max_marked": "100%"})
    record = played(rules, {"a": [90.0]}, {"a": [90.0]}, steps=7)
    assert marks(record) == {"a": [[0, ends]]}
    assert record.nodes["a"].marked.known == 2


def test_the_cap_applies_per_pool() -> None:
    rules = rule_set(rule(), guard={"max_marked": "50%", "pool_label": "pool"})
    nodes = {name: Node(name, labels={"pool": name[0]}) for name in ("a1", "a2", "b1", "b2")}
    values = {"a1": [90.0, 90], "a2": [95.0, 10], "b1": [10.0, 10], "b2": [90.0, 90]}
    record = played(rules, values, nodes=nodes)
    assert marks(record) == {"a1": [], "a2": [[0, 1]], "b1": [], "b2": [[0, 2]]}
    assert (record.peak, record.capped) == (2, 2)


def test_a_rule_that_marks_nothing_is_active_while_it_fires() -> None:
    shadow = rule_set(rule(), rule("trial", expr="load:cpu", threshold=5, shadow=True))
    nodes = {"a": Node("a"), "b": Node("b", labels={"dynsched.io/ignore": "true"})}
    values = {"a": [10.0, 90], "b": [10.0, 90]}
    record = played(shadow, values, nodes=nodes)
    active = {
        n: {r: each.active.runs for r, each in node.rules.items()}
        for n, node in record.nodes.items()
    }
    assert active == {
        "a": {"cpu": [], "trial": [[0, 2]]},
    }
    none = played(rule_set(rule(), mark="none", order={"score": {"cpu": 1}}), values)
    assert none.nodes["a"].rules["cpu"].active.runs == [[1, 2]]
    assert (none.writes, none.peak, none.capped) == (0, 0, 0)


def times(text: str) -> Times:
    """One character per step: ``#`` if active, ``?`` if unknown."""
    found = Runs()
    for step, mark in enumerate(text):
        if mark == "#":
            found.add(step)
    return Times(len(text) - text.count("?"), found)


def test_marks_and_times_are_counted() -> None:
    numbers = tally([times(text) for text in ("##..#", "..???", "..###")], Window(NOON, 60.0, 5))
    assert (numbers["marks"], numbers["median_mark_seconds"]) == (3, 120)
    assert (numbers["node_time_marked"], numbers["coverage"]) == (0.4, 0.8)


@pytest.mark.parametrize(
    ("nodes", "flaps"),
    [
        (["#" + "." * 10 + "#."], 1),  # within ten minutes of the previous mark on the same node
        (["#" + "." * 11 + "#"], 0),
        (["#............", "..#.........."], 0),
    ],
)
def test_a_flap_is_a_mark_soon_after_another_on_the_same_node(nodes: list[str], flaps: int) -> None:
    assert tally([times(each) for each in nodes], Window(NOON, 60.0, 13))["flaps"] == flaps
