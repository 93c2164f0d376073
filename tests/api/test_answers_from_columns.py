"""The page's data and the series of nodes: from the columns the same bytes as from the views."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import rule
from expected_scene import expected_example
from hypothesis import given
from hypothesis import strategies as st
from plain_answers import plain_page, plain_series, series_text
from properties import steady
from snapshots import NOON, Scene, example

from dynsched.api.page.data import page_data
from dynsched.engine.load.expected import NO_PODS, KnownPods
from dynsched.engine.model import Node, WriteFailure
from dynsched.engine.pod_values import BoundPod, RecentPod
from dynsched.engine.snapshot import COOL, HOT, UNDECIDED, Snapshot
from dynsched.rules.keys import IGNORE_LABEL

NAMES = [f"n{number}" for number in (10, 2, 7, 1, 5, 3)]
ABOUT = {"leader": None}


def check(snapshot: Snapshot, at_once: int = 3) -> None:
    assert series_text(snapshot, at_once) == plain_series(snapshot)
    plain = msgspec.json.encode(plain_page(snapshot))
    made = asyncio.run(page_data(snapshot, ABOUT, at_once))
    # The nodes are its last keys.
    assert made.endswith(b"," + plain[1:]), (msgspec.json.decode(made), msgspec.json.decode(plain))


LABELS = st.fixed_dictionaries(
    {},
    optional={
        "pool": st.sampled_from("ab"),
        "gpu": st.just("true"),
        IGNORE_LABEL: st.just("true"),
        "status": st.sampled_from(["presure", "maintenance"]),
    },
)
NODES = st.builds(
    Node,
    st.just(""),
    uid=st.sampled_from(["", "1"]),
    labels=LABELS,
    allocatable=st.sampled_from([{}, {"cpu": 8.0, "memory": 2.0**34}]),
)
RULES = st.fixed_dictionaries(
    {
        "expr": st.just("x"),
        "threshold": st.sampled_from([80, 0, 0.8, 75, 4e9]),
        "for": st.sampled_from(["0s", "20s"]),
        "keep_firing_for": st.sampled_from(["0s", "1m"]),
        "stale_after": st.sampled_from(["5m", "5m", "1s"]),
    },
    optional={
        "resource": st.sampled_from(["cpu", "memory"]),
        "selector": st.just("gpu=true"),
        "shadow": st.just(True),
        "full_at": st.sampled_from([3.0, 70.0]),
    },
)
KINDS = st.sampled_from(
    [{"op": ">="}, {"op": "<"}, {"by": "expected", "full_at": 100.0, "lag": "1m"}]
)
NUMBERS = st.integers(-20, 120_000).map(lambda number: number / 1000)
VALUES = st.sampled_from([90.0, 20.0, 20.0, 0.5, -0.0, math.nan, math.inf, 1e308]) | NUMBERS
MOST = st.fixed_dictionaries(
    dict.fromkeys(NAMES[2:], VALUES), optional=dict.fromkeys(NAMES[:2], VALUES)
)
ANSWERS = MOST | MOST | st.just("refused")
PODS = st.builds(
    lambda node, bound, ended, number: RecentPod(
        BoundPod(str(number), node, workload="shop/web"), bound, ended
    ),
    st.sampled_from(NAMES),
    *(st.none() | st.floats(0, 60) for _ in range(2)),
    st.integers(0, 9),
)
KNOWN = st.just(NO_PODS) | st.builds(
    lambda recent: KnownPods(
        recent=tuple(recent), running=60, use_of_workloads={"cpu": {"shop/web": 0.9}}
    ),
    st.lists(PODS, max_size=6),
)


@st.composite
def snapshots(draw: Any) -> Snapshot:
    """After three ticks, of which anything may have failed; some nodes have changed since."""
    rules = [
        {"name": f"rule-{number}", **draw(RULES), **draw(KINDS)}
        for number in range(draw(st.integers(1, 3)))
    ]
    guard = draw(st.sampled_from([{}, {"pool_label": "pool", "max_marked": 1}]))
    nodes = {name: replace(draw(NODES), name=name) for name in draw(st.permutations(NAMES))}
    scene = Scene({"rules": rules, "guard": guard}, nodes.values())
    for seconds in (0, 30, 60):
        for name in draw(st.sets(st.sampled_from(NAMES), max_size=2)):
            scene.nodes[name] = replace(scene.nodes[name], labels=draw(LABELS))
        answers = {rule["name"].replace("-", "_"): draw(ANSWERS) for rule in rules}
        found = scene.tick(NOON + seconds, pods=draw(KNOWN), dry_run=draw(st.booleans()), **answers)
    now = dict(found.nodes.inventory.nodes)
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=2)):
        now[name] = replace(draw(NODES), name=name)  # changed, or another one of its name
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=1)):
        del now[name]
    return replace(
        found,
        nodes=found.nodes._decision.views(now),
        leading=draw(st.booleans()),
        failures=tuple(WriteFailure(name, "500") for name in draw(st.sets(st.sampled_from(NAMES)))),
    )


@steady(80)
@given(snapshots(), st.integers(1, 6))
def test_the_columns_tell_what_the_views_tell(snapshot, at_once) -> None:
    check(snapshot, at_once)


WRITTEN: dict[str, Any] = {"dry_run": False}
FAILED = tuple(WriteFailure(f"worker-{number}", "500") for number in range(1, 5))


@pytest.mark.parametrize("make", [example, expected_example])
@pytest.mark.parametrize("changes", [{}, WRITTEN, {"leading": False}, {"failures": FAILED}])
def test_so_they_do_of_each_kind_of_node(make, changes) -> None:
    snapshot = make()
    check(snapshot)
    check(replace(make(dry_run=True), **(changes and WRITTEN | changes)))


def test_so_they_do_without_nodes() -> None:
    rule = {"name": "cpu", "expr": "x", "resource": "cpu", "threshold": 80}
    check(Scene({"rules": [rule]}, []).tick(NOON, cpu={}))


def test_the_last_digit_of_a_load_is_that_of_one_value() -> None:
    rules = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80, "full_at": 3}]}
    names = [f"n{number:04d}" for number in range(2000)]
    values = {name: number * 0.0003 for number, name in enumerate(names)}
    check(Scene(rules, map(Node, names)).tick(NOON, cpu=values), at_once=500)


def test_so_they_do_of_a_node_that_a_rule_selects_no_longer() -> None:
    """What was known of it is still in the columns, and is not told."""
    cpu = {"name": "cpu", "expr": "x", "threshold": 80, "selector": "gpu=true"}
    memory = {"name": "memory", "expr": "y", "threshold": 80}
    nodes = [Node(name, labels={"gpu": "true"}) for name in "abcde"] + [Node("f"), Node("g")]
    scene = Scene({"rules": [cpu, memory], "guard": {"max_marked": "100%"}}, nodes)
    cool = dict.fromkeys(scene.nodes, 20.0)
    check(scene.tick(NOON, cpu=dict.fromkeys("abc", 90.0) | {"d": 20.0}, memory=cool))
    for name in "ad":
        kept = {key: value for key, value in scene.nodes[name].labels.items() if key != "gpu"}
        scene.nodes[name] = replace(scene.nodes[name], labels=kept)
    snapshot = scene.tick(NOON + 10, cpu=dict.fromkeys("bce", 20.0), memory=cool)
    assert snapshot.nodes.withheld  # they are cool, and still marked
    check(snapshot)


def test_so_they_do_where_rules_are_on_trial() -> None:
    rules = [rule("cpu"), rule("mem"), rule("trial", shadow=True)]
    theirs = Node("theirs", labels={"status": "other"})
    scene = Scene({"rules": rules}, [theirs, *map(Node, ("ours", "lost", "cool"))])
    plain, hot = dict.fromkeys(scene.nodes, 10.0), dict.fromkeys(scene.nodes, 99.0)
    cpu = plain | {"ours": 90.0}
    scene.tick(NOON, cpu=cpu, mem=plain, trial=hot)
    del plain["lost"]
    snapshot = scene.tick(NOON + 10, cpu=cpu, mem=plain, trial=hot)
    found = snapshot.nodes.verdict_values(["cool", "lost", "ours", "theirs"])
    assert found == [COOL, UNDECIDED, HOT, UNDECIDED]
    check(snapshot)
    check(scene.tick(NOON + 20, cpu=dict.fromkeys(cpu, 10.0), mem=plain, trial=hot, dry_run=True))
