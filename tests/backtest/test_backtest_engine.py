"""The vectorised replay against the core itself, tick by tick, on random histories."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from builders import NOON, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.backtest.engine import Engine, Played
from dynsched.backtest.world import Span, make_world
from dynsched.core import keys
from dynsched.core.alerts import Alerts
from dynsched.core.decide import decide
from dynsched.core.decision import Decision
from dynsched.core.model import Node, QueryResult, Sample
from dynsched.core.rehearse import Rehearsal
from dynsched.core.rules import RuleSet
from dynsched.core.transitions import Setting

STEP = 30.0
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
DURATIONS = st.sampled_from(["0s", "30s", "1m", "100s"])
# Multiples of 8 on 1, 2 or 4 cores: the mean of a pool is then the same in whatever order it is
# added up.
VALUES = st.sampled_from([0.0, 8.0, 40.0, 72.0, 80.0, 80.0, 88.0, 96.0, 104.0, math.nan, math.inf])


@st.composite
def rules(draw: st.DrawFn, name: str) -> dict[str, Any]:
    op = draw(st.sampled_from([">", ">=", "<", "<="]))
    band = draw(st.sampled_from([0, 8, 24]))
    raw = rule(
        name,
        op=op,
        threshold=80,
        clear_threshold=80 - band if op in (">", ">=") else 80 + band,
        for_=draw(DURATIONS),
        keep_firing_for=draw(DURATIONS),
        stale_after=draw(st.sampled_from(["1m", "2m"])),
        on_stale=draw(st.sampled_from(["release", "hold"])),
        selector=draw(st.sampled_from(["", "", "", "pool=a"])),
        shadow=draw(st.sampled_from([False, False, False, True])),
    )
    if op in (">", ">=") and draw(st.booleans()):
        raw["early"] = {"above_mean": 0, "clear_above_mean": -8, "mean_at_least": 16}
        raw["resource"] = draw(st.sampled_from(["cpu", "memory"]))
    return raw


GUARDS = st.fixed_dictionaries(
    {
        "max_marked": st.sampled_from(["100%", "50%", "30%", 1, 0]),
        "max_releases": st.sampled_from(["100%", "25%", 1, 0]),
        "pool_label": st.sampled_from([None, "pool"]),
    }
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "pool": st.sampled_from(["a", "b"]),
            "kind": st.sampled_from(["plain"] * 6 + ["ignored", "conflict", "marked", "cordoned"]),
            "cpu": st.sampled_from([1.0, 2.0, 4.0]),
            "from": st.sampled_from([0, 0, 0, 3]),
        }
    ),
    min_size=1,
    max_size=6,
)


def make_node(number: int, told: dict[str, Any]) -> Node:
    labels = {"pool": told["pool"]}
    if told["kind"] == "ignored":
        labels[keys.IGNORE_LABEL] = "true"
    if told["kind"] in ("conflict", "marked"):
        labels["status"] = "presure" if told["kind"] == "marked" else "broken"
    return Node(
        f"n{number}",
        uid=str(number),
        labels=labels,
        taints=(CORDON,) if told["kind"] == "cordoned" else (),
        allocatable={"cpu": told["cpu"], "memory": 1.0},
        created=NOON + told["from"] * STEP,
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[RuleSet, dict[str, Node], np.ndarray]:
    raw = [draw(rules(name)) for name in ("cpu", "mem")[: draw(st.integers(1, 2))]]
    made = rule_set(*raw, guard=draw(GUARDS))
    nodes = [make_node(number, told) for number, told in enumerate(draw(NODES))]
    steps = draw(st.integers(2, 14))
    size = steps * len(nodes) * len(raw)
    values = draw(st.lists(VALUES, min_size=size, max_size=size))
    return (
        made,
        {node.name: node for node in nodes},
        np.array(values).reshape(len(raw), steps, len(nodes)),
    )


def by_the_core(made: RuleSet, nodes: dict[str, Node], values: np.ndarray) -> list[Decision]:
    """One tick of `decide` for each step, each on what the one before would have written."""
    world, rehearsal = make_world(nodes, made), Rehearsal()
    bare = {node.name: node for node in world.nodes}
    alerts: Alerts = {}
    found = []
    for number in range(values.shape[1]):
        now = NOON + number * STEP
        there = {name: node for name, node in bare.items() if now >= node.created}
        results = {
            one.name: QueryResult(
                tuple(
                    Sample({"node": name}, float(values[row, number, column]), now)
                    for column, name in enumerate(nodes)
                    if not math.isnan(values[row, number, column]) or column % 2
                )
            )
            for row, one in enumerate(made.file_rules)
        }
        decision = decide(made, results, rehearsal.nodes(there), alerts, now)
        rehearsal.write(decision.patches)
        alerts = decision.evaluation.alerts
        found.append(decision)
    return found


def by_the_engine(
    made: RuleSet, nodes: dict[str, Node], values: np.ndarray, cut: int
) -> list[Played]:
    world = make_world(nodes, made)
    engine = Engine(made, world)
    finite = np.where(np.isfinite(values), values, np.nan)
    times = NOON + np.arange(values.shape[1]) * STEP
    return [
        engine.play(
            times[part], {one.name: finite[row][part] for row, one in enumerate(made.file_rules)}
        )
        for part in (slice(None, cut), slice(cut, None))
    ]


def joined(parts: list[Played], of: str, rule_name: str | None = None) -> np.ndarray:
    found = [getattr(part, of) for part in parts]
    return np.concatenate([each[rule_name] for each in found] if rule_name else found)


@steady(100)
@given(drawn=worlds(), cut=st.integers(1, 13))
def test_the_engine_decides_as_the_core_does_at_every_step(
    drawn: tuple[RuleSet, dict[str, Node], np.ndarray], cut: int
) -> None:
    made, nodes, values = drawn
    played = by_the_engine(made, nodes, values, cut)
    world = make_world(nodes, made)
    rehearsal, there = Rehearsal(), {node.name: node for node in world.nodes}

    def lanes(of: str, rule_name: str | None = None) -> set[Any]:
        row = joined(played, of, rule_name)[number]
        return {
            (world.pools if of == "withheld" else list(nodes))[at] for at in np.flatnonzero(row)
        }

    for number, decision in enumerate(by_the_core(made, nodes, values)):
        for one in made.rules:
            alerts = decision.evaluation.alerts[one.name]
            fires = {name for name, alert in alerts.items() if alert.firing}
            assert lanes("firing", one.name) == fires, (number, one.name)
        assert lanes("marked") == decision.selection.marked, number
        assert joined(played, "writes")[number] == len(decision.patches), number
        short = {
            decision.nodes[name].labels["pool"] if made.guard.pool_label else ""
            for name, why in decision.selection.withheld.items()
            if why.startswith("not marked")
        }
        assert lanes("withheld") == short, number
        # An early mark is told apart as the evidence on the node tells it.
        now = {name: there[name] for name in decision.nodes}
        rehearsal.nodes(now)
        rehearsal.write(decision.patches)
        said = {
            name
            for name, node in rehearsal.nodes(now).items()
            if '"early":true' in node.annotations.get(keys.EVIDENCE_ANNOTATION, "")
        }
        assert lanes("early") == said, number


def test_a_node_that_is_gone_has_no_mark_and_no_past_when_it_comes_back() -> None:
    early = {"above_mean": 0, "clear_above_mean": -8, "mean_at_least": 16}
    made = rule_set(
        rule("cpu", on_stale="hold", early=early, resource="cpu"), guard={"max_marked": "100%"}
    )
    nodes = {name: Node(name, allocatable={"cpu": 1.0}) for name in "ab"}
    world = make_world(nodes, made, {"a": Span(NOON, NOON + STEP), "b": Span()})
    for load in (90.0, 75.0):  # the latter marks it early
        values = np.array([[load, 65.0 if load < 80 else 90.0]] * 4)
        played = Engine(made, world).play(NOON + np.arange(4) * STEP, {"cpu": values})
        assert played.marked[:, 0].tolist() == [True, True, False, False]
        assert played.early[:, 0].tolist() == [load < 80, load < 80, False, False]
        assert played.caps[:, 0].tolist() == [2, 2, 1, 1]


def test_several_settings_side_by_side_decide_as_each_alone() -> None:
    made = rule_set(rule("cpu", for_="30s", keep_firing_for="1m"))
    nodes = {f"n{number}": Node(f"n{number}") for number in range(5)}
    world = make_world(nodes, made)
    values = np.random.default_rng(7).integers(50, 100, (60, 5)).astype(float)
    times = NOON + np.arange(60) * STEP
    one = Setting.of(made.rules[0], made)
    thresholds = [60.0, 80.0, 90.0]
    lanes = np.repeat(thresholds, 5)
    together = Engine(
        made,
        world,
        settings={"cpu": replace(one, threshold=lanes, clear_threshold=lanes - 5)},
        groups=3,
    ).play(times, {"cpu": values})
    for number, threshold in enumerate(thresholds):
        alone = Engine(
            made,
            world,
            settings={"cpu": replace(one, threshold=threshold, clear_threshold=threshold - 5)},
        ).play(times, {"cpu": values})
        part = slice(number * 5, number * 5 + 5)
        assert (together.marked[:, part] == alone.marked).all()
        assert (together.withheld[:, number] == alone.withheld[:, 0]).all()
