"""The vectorised replay against the core itself, tick by tick, on random histories."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from typing import Any

import numpy as np
from builders import NOON, rule, rule_set
from evaluating import alerts_of
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.dry_run import PretendedWrites
from dynsched.engine.alerting.guard import count_of
from dynsched.engine.decide import decide
from dynsched.engine.model import Node, QueryResult, Sample
from dynsched.engine.snapshot import Decision
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.backtest.engine import BacktestNodes, Engine, Record, make_world
from dynsched.tools.backtest.fetching import Window

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
    return rule(
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


GUARDS = st.fixed_dictionaries(
    {
        "max_marked": st.sampled_from(["100%", "50%", "30%", 1, 0]),
        "max_releases": st.sampled_from(["100%", "25%", 1, 0]),
        "pool_label": st.sampled_from([None, "pool"]),
    }
)
LABELS: list[dict[str, str]] = [{}] * 6 + [
    {keys.IGNORE_LABEL: "true"},
    {"status": "broken"},
    {"status": "presure"},
]
NODES = st.fixed_dictionaries(
    {
        "labels": st.builds(
            lambda pool, others: {"pool": pool, **others},
            st.sampled_from("ab"),
            st.sampled_from(LABELS),
        ),
        "taints": st.sampled_from([()] * 9 + [(CORDON,)]),
        "allocatable": st.sampled_from([{"cpu": cpu, "memory": 1.0} for cpu in (1.0, 2.0, 4.0)]),
        "created": st.sampled_from([NOON, NOON, NOON, NOON + 3 * STEP]),
    }
)
FOREVER = math.inf
LASTS = st.sampled_from([FOREVER, NOON + 2 * STEP, NOON + 5 * STEP])
Drawn = tuple[RuleSet, BacktestNodes, dict[str, float], np.ndarray]
"""Rules, nodes, when each was there last, and values by rule, step and node."""


@st.composite
def worlds(draw: st.DrawFn) -> Drawn:
    raw = [draw(rules(name)) for name in ("cpu", "mem")[: draw(st.integers(1, 2))]]
    made = rule_set(*raw, guard=draw(GUARDS))
    told = draw(st.lists(st.tuples(NODES, LASTS), min_size=1, max_size=6))
    nodes = {f"n{n}": Node(f"n{n}", str(n), **each) for n, (each, _) in enumerate(told)}
    lasts = {name: last for name, (_, last) in zip(nodes, told, strict=True)}
    spans = {name: (nodes[name].created, lasts[name]) for name in nodes if lasts[name] < FOREVER}
    shape = (len(raw), draw(st.integers(2, 14)), len(nodes))
    size = math.prod(shape)
    values = draw(st.lists(VALUES, min_size=size, max_size=size))
    return made, make_world(nodes, made, spans), lasts, np.array(values).reshape(shape)


def by_the_core(drawn: Drawn) -> Iterator[tuple[Decision, dict[str, Node]]]:
    """One tick of `decide` for each step, each on what the one before would have written; and the
    nodes after it.
    """
    made, world, lasts, values = drawn
    overlay = PretendedWrites()
    alerts = no_alerts()
    for number in range(values.shape[1]):
        now = NOON + number * STEP
        there = {node.name: node for node in world.nodes if node.created <= now <= lasts[node.name]}
        results = {
            one.name: QueryResult(
                tuple(
                    Sample({"node": name}, float(values[row, number, column]), now)
                    for column, name in enumerate(world.names)
                    if not math.isnan(values[row, number, column]) or column % 2
                )
            )
            for row, one in enumerate(made.rules)
        }
        decision = decide(made, results, overlay.nodes(there), alerts, now)
        overlay.write(decision.patches)
        alerts = decision.verdicts.alerts
        yield decision, overlay.nodes(there)


@steady(200)
@given(drawn=worlds(), cut=st.integers(1, 13))
def test_the_engine_decides_as_the_core_does_at_every_step(drawn: Drawn, cut: int) -> None:
    made, world, _, values = drawn
    engine = Engine(made, world)
    finite = np.where(np.isfinite(values), values, np.nan)
    columns = {
        one.name: np.where(world.selected(one), of_rule, np.nan)
        for one, of_rule in zip(made.rules, finite, strict=True)
    }
    steps = values.shape[1]
    played = Record(made, world, Window(NOON, STEP, steps))
    for first, last in ((0, min(cut, steps)), (min(cut, steps), steps)):
        chunk = {name: each[first:last] for name, each in columns.items()}
        engine.play(chunk, played, first, last)

    may = set(compress(world.names, world.eligible))
    pool = made.guard.pool_label
    pool_of = {node.name: node.labels["pool"] if pool else "" for node in world.nodes}

    def lanes(of: str, rule_place: int | None = None) -> set[str]:
        found = getattr(played, of) if rule_place is None else getattr(played, of)[rule_place]
        return set(compress(world.pools if of == "withheld" else world.names, found[number]))

    for number, (decision, after) in enumerate(by_the_core(drawn)):
        for place, one in enumerate(made.rules):
            alerts = alerts_of(decision.verdicts.alerts)[one.name]
            fires = {name for name, alert in alerts.items() if alert.firing}
            assert lanes("firing", place) == fires, (number, one.name)
        assert lanes("marked") == decision.selection.marked, number
        assert played.writes[number] == len(decision.patches), number
        withheld = decision.selection.withheld.items()
        short = {pool_of[name] for name, why in withheld if why.startswith("not marked")}
        assert lanes("withheld") == short, number
        sizes = Counter(pool_of[name] for name in after if name in may)
        most = [count_of(made.guard.max_marked, sizes[pool]) for pool in world.pools]
        assert played.caps[number].tolist() == most, number


def test_a_release_that_waited_comes_in_the_next_step() -> None:
    made = rule_set(rule("cpu", threshold=30), guard={"max_releases": "25%"})
    nodes = {name: Node(name) for name in (f"n{n}" for n in range(6))}
    world = make_world(nodes, made)
    values = np.array([[0, 40, 0, 0, 0, 40.0], *[[0, 0, 0, 0, 0, 0]] * 3])
    played = Record(made, world, Window(NOON + STEP, STEP, 4))
    Engine(made, world).play({"cpu": values}, played, 0, 4)
    marked = [list(compress(world.names, row)) for row in played.marked]
    assert [len(names) for names in marked] == [2, 1, 0, 0]
