"""Random histories of the whole control loop, in a small cluster with other writers.

A history is a few dozen steps: loads change, sources fail, time passes and clocks are set, nodes
come and go, others write to them, the API server fails, the lease moves, processes restart, rules
change; and between the steps there are ticks. `stateful_checks` checks the invariants after each
tick. At the end all faults are removed: the cluster must come to rest and be pruned clean.

`pytest --hypothesis-profile=random tests/faults/test_stateful.py` runs other histories each time.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from stateful_checks import check_prune, check_rest, check_tick
from stateful_model import CONTROL_PLANE, IGNORE, RECORD
from stateful_world import INTERVAL, NAMES, Fault, Moment, Replica, World
from virtual_loop import VirtualLoop

from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import RuleSet

STEPS = 25
QUIET = 5
"""Consecutive ticks without a write, an Event or a log line that count as rest."""

SOFT = "PreferNoSchedule"
MARKS = (
    {"label": "status=presure"},
    {"label": "status=presure", "taint": f"dynsched.io/pressure=true:{SOFT}"},
    {"label": None, "taint": f"dynsched.io/pressure=true:{SOFT}"},
    {"label": "status=hot"},
    {"label": "load=high", "taint": f"dynsched.io/pressure=yes:{SOFT}"},
)
RULE_NAMES = ("cpu", "mem", "free")


@st.composite
def rules_bodies(draw: st.DrawFn) -> str:
    """One rules file, as JSON."""
    guard = {
        "max_marked": draw(st.sampled_from(["50%", "100%", "100%", 1, 2])),
        "max_releases": draw(st.sampled_from(["25%", 1, "100%"])),
        "pool_label": draw(st.sampled_from([None, None, "pool"])),
    }
    rules = []
    for name in draw(st.lists(st.sampled_from(RULE_NAMES), min_size=1, max_size=3, unique=True)):
        low = name == "free"
        clear = draw(st.sampled_from([80, 70]))
        rules.append(
            {
                "name": name,
                "expr": name,
                "op": "<" if low else ">",
                "threshold": 20 if low else 80,
                "clear_threshold": 100 - clear if low else clear,
                "for": draw(st.sampled_from(["0s", "0s", "20s", "1m"])),
                "keep_firing_for": draw(st.sampled_from(["0s", "0s", "30s"])),
                **draw(st.sampled_from([{}, {}, {"on_stale": "hold"}])),
                **draw(st.sampled_from([{}, {"stale_after": "33s"}])),
            }
        )
    return json.dumps(
        {
            "mark": draw(st.sampled_from(MARKS)),
            "nodes": draw(
                st.sampled_from(
                    [{}, {}, {"selector": "pool!=web"}, {"include_control_plane": True}]
                )
            ),
            "guard": guard,
            "stale_after": "2m3s",
            "rules": rules,
        }
    )


@lru_cache(100)
def parsed(text: str) -> RuleSet:
    return parse_rules(json.loads(text))


LABELS = st.sampled_from(
    [
        *(("team", value) for value in ("blue", "red", None)),
        *(("pool", value) for value in ("web", None)),
        *(("status", value) for value in ("maintenance", "presure", "hot", None)),
        *(("load", value) for value in ("low", "high", None)),
        *((IGNORE, value) for value in ("true", "false", None)),
        *((CONTROL_PLANE, value) for value in ("", None)),
    ]
)
ANNOTATIONS = st.sampled_from(
    [
        *(("other.io/note", value) for value in ('{"a":"ü"}', "", None)),
        *(("dynsched.io/note", value) for value in ("kept", None)),
        *(
            (RECORD, value)
            for value in (None, "{", "[]", '{"label":5,"rules":[{}]}', "[" * 9999, "{}")
        ),
        *(
            (RECORD, json.dumps({"label": label, "rules": []}))
            for label in ("team=blue", "status=maintenance", "load=high")
        ),
    ]
)
_TAINTS = (
    {"key": "other.io/x", "effect": "NoSchedule"},
    {"key": "other.io/x", "value": "1", "effect": SOFT},
    {"key": "other.io/y", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    {"key": "dynsched.io/pressure", "value": "true", "effect": "NoSchedule"},
    {"key": "dynsched.io/pressure", "value": "theirs", "effect": SOFT},
    {"key": "dynsched.io/pressure", "value": "true", "effect": SOFT},
    {"key": "dynsched.io/pressure", "value": "yes", "effect": SOFT},
)
TAINTS = st.sampled_from(_TAINTS)
PLACES = st.sampled_from(sorted({(each["key"], each["effect"]) for each in _TAINTS}))
BIRTHS = st.sampled_from(
    [{}, {}, {"pool": "web"}, {"status": "presure"}, {"status": "maintenance"}]
)

NODES = st.sampled_from(NAMES)
VALUES = st.sampled_from([20.0, 75.0, 85.0, 90.0, 95.0, 20.0, 75.0, 85.0, math.nan, math.inf, None])
MODES = st.sampled_from(
    ["failed", "raises", "slow", "aged", "old", "ahead", "partial", "empty", "strange"]
)
FAULTS = st.lists(st.sampled_from(Fault), max_size=4)
TICKS = st.sampled_from([1, 0, 1, 0, 2, 3])
"""How many ticks follow a step."""


def step(**given: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule of the state machine that is followed by some ticks."""

    def made(do: Callable[..., None]) -> Any:
        def then_ticks(self: Histories, then: int, **drawn: Any) -> None:
            do(self, **drawn)
            self.go_on(then)

        then_ticks.__name__ = do.__name__
        return rule(**given, then=TICKS)(then_ticks)

    return made


class Histories(RuleBasedStateMachine):
    """One history."""

    loop: VirtualLoop
    log: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        rules=rules_bodies(),
        names=st.lists(NODES, min_size=2, max_size=6, unique=True),
        loads=st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=3, max_size=3),
        replicas=st.sampled_from([1, 1, 2]),
    )
    def begins(
        self, rules: str, names: list[str], loads: list[list[float | None]], replicas: int
    ) -> None:
        self.world = world = World(self.loop, parsed(rules))
        for name in sorted(names):
            taints = [{"key": key, "effect": "NoSchedule"} for key in ("other.io/z", "other.io/a")]
            world.somebody.creates(name, taints=taints if name in NAMES[:2] else [])
        world.replicas = [Replica(world) for _ in range(replicas)]
        world.lead(0)
        for which, values in zip(RULE_NAMES, loads, strict=True):
            world.load(which, dict(zip(NAMES, values, strict=True)))
        self.go_on(1)

    def go_on(self, ticks: int, interval: float = INTERVAL) -> list[Moment]:
        """Run ticks of all replicas; return the last one of each."""
        world, last = self.here, []
        for _ in range(ticks):
            world.loop.now += interval
            last = [world.run(self.tick(replica)) for replica in world.replicas]
        return last

    async def tick(self, replica: Replica) -> Moment:
        moment = await replica.tick()
        check_tick(self.here, moment)
        return moment

    @property
    def here(self) -> World:
        assert self.world is not None
        return self.world

    @step(which=st.sampled_from(RULE_NAMES), values=st.dictionaries(NODES, VALUES, min_size=1))
    def loads_change(self, which: str, values: dict[str, float | None]) -> None:
        self.here.load(which, values)

    @rule(values=st.lists(VALUES, min_size=6, max_size=6), faults=FAULTS, then=st.integers(1, 3))
    def all_loads_change(self, values: list[float | None], faults: list[Fault], then: int) -> None:
        """All rules get new values, and the writes that follow may fail."""
        for which in RULE_NAMES:
            self.here.load(which, dict(zip(NAMES, values, strict=True)))
        self.of(0).api.faults.extend(faults)
        self.go_on(then)

    @rule(
        which=st.sampled_from([*RULE_NAMES, None]),
        mode=MODES,
        then=st.integers(1, 5),
        stays=st.sampled_from([False, False, False, True]),
    )
    def a_source_is(self, which: str | None, mode: str, then: int, stays: bool) -> None:
        """``which``: one rule, None: all. It lasts ``then`` ticks, or for good if it ``stays``."""
        modes = self.here.modes
        modes |= dict.fromkeys(RULE_NAMES if which is None else [which], mode)
        self.go_on(then)
        if not stays:
            modes.clear()

    @rule(
        seconds=st.sampled_from([5, 30, 60, 125, 600, 7200]),
        ticks=st.integers(1, 6),
        interval=st.sampled_from([5.0, 10.0, 30.0]),
    )
    def time_passes(self, seconds: float, ticks: int, interval: float) -> None:
        """At first without a tick, like a long pass or a process that got no CPU."""
        self.here.loop.now += seconds
        self.go_on(ticks, interval)

    @step(minutes=st.sampled_from([-120, -60, -5, -1, 1, 5, 60, 120]))
    def the_clock_is_set(self, minutes: int) -> None:
        """A machine that was suspended sees the same."""
        self.here.set_clock(60.0 * minutes)

    @step(name=NODES, labels=BIRTHS, tainted=st.booleans())
    def a_node_joins(self, name: str, labels: dict[str, str], tainted: bool) -> None:
        taints = [{"key": key, "effect": "NoSchedule"} for key in ("other.io/z", "other.io/a")]
        self.here.somebody.creates(name, labels, taints if tainted else [])

    @step(name=NODES)
    def a_node_leaves(self, name: str) -> None:
        self.here.somebody.deletes(name)

    @step(name=NODES, late=st.booleans())
    def a_node_is_replaced(self, name: str, late: bool) -> None:
        """By a node of the same name. ``late``: its event comes before the old one's deletion."""
        watches = [replica.watch for replica in self.here.replicas if not replica.watch.held]
        for watch in watches:
            watch.held = late
        self.here.somebody.deletes(name)
        self.here.somebody.creates(name)
        for watch in watches:
            watch.deliver(-1)
            watch.catch_up()
            watch.held = False

    @step(name=NODES, label=LABELS)
    def somebody_labels(self, name: str, label: tuple[str, str | None]) -> None:
        self.here.somebody.labels(name, *label)

    @step(name=NODES, annotation=ANNOTATIONS)
    def somebody_annotates(self, name: str, annotation: tuple[str, str | None]) -> None:
        self.here.somebody.annotates(name, *annotation)

    @step(name=NODES, taint=TAINTS, first=st.booleans())
    def somebody_taints(self, name: str, taint: dict[str, Any], first: bool) -> None:
        self.here.somebody.taints(name, taint, first=first)

    @step(name=NODES, place=PLACES)
    def somebody_untaints(self, name: str, place: tuple[str, str]) -> None:
        self.here.somebody.untaints(name, *place)

    @step(name=NODES)
    def somebody_tidies_up(self, name: str) -> None:
        self.here.somebody.tidies(name)
        for key in (IGNORE, CONTROL_PLANE):
            self.here.somebody.labels(name, key, None)

    @step(number=st.integers(0, 1), faults=FAULTS, times=st.sampled_from([1, 1, 12]))
    def writes_will_fail(self, number: int, faults: list[Fault], times: int) -> None:
        self.of(number).api.faults.extend(faults * times)

    @rule(then=st.integers(1, 3))
    def the_api_server_is_away(self, then: int) -> None:
        self.here.away = True
        self.go_on(then)
        self.here.away = False

    @step(number=st.integers(0, 1), deaf=st.booleans())
    def a_watch_hangs(self, number: int, deaf: bool) -> None:
        watch = self.of(number).watch
        watch.held, watch.deaf = True, deaf

    @step(number=st.integers(0, 1), picks=st.lists(st.sampled_from([0, -1, 2]), max_size=6))
    def some_events_come(self, number: int, picks: list[int]) -> None:
        for pick in picks:
            self.of(number).watch.deliver(pick)

    @step(number=st.integers(0, 1))
    def a_watch_begins_again(self, number: int) -> None:
        self.of(number).watch.relist()

    def of(self, number: int) -> Replica:
        return self.here.replicas[number % len(self.here.replicas)]

    @step(number=st.sampled_from([None, 0, 1]))
    def the_lease_moves(self, number: int | None) -> None:
        world = self.here
        world.lead(None if number is None else number % len(world.replicas))

    @step(
        number=st.integers(0, 1),
        interval=st.sampled_from([None, 10.0, 30.0]),
        dry_run=st.sampled_from([False, False, True]),
    )
    def a_process_restarts(self, number: int, interval: float | None, dry_run: bool) -> None:
        """With ``interval`` it restores its alerts from the history, at this step."""
        world = self.here
        world.loop.now += 5.0
        replica = world.restart(number % len(world.replicas), dry_run=dry_run)
        if interval is not None:
            world.run(replica.evaluator.restore(interval))

    @step(rules=rules_bodies(), faults=FAULTS)
    def rules_change(self, rules: str, faults: list[Fault]) -> None:
        self.here.reload(parsed(rules))
        self.of(0).api.faults.extend(faults)

    @step()
    def rules_are_refused(self) -> None:
        self.here.reload("rules.yaml:3:5: rules[0].for: wrong")

    def teardown(self) -> None:
        if self.world is None or not self.world.sound:
            return
        self.come_to_rest()
        check_prune(self.world)
        for replica in self.world.replicas:
            replica.watch.close()

    def come_to_rest(self) -> None:
        """Remove all faults; soon nothing is written, posted or logged any more."""
        world = self.here
        for number, replica in enumerate(world.replicas):
            replica.api.faults.clear()
            replica.watch.relist()
            if replica.dry_run:
                world.restart(number)
        world.lead(0)
        # Longer than any waiting time; then each node may be released, and marked.
        self.go_on(3, 65.0)
        quiet = 0
        for _ in range(3 * len(NAMES) + QUIET):
            lines = len(self.log)
            moments = self.go_on(1, 65.0)
            wrote = any(each.replica.api.attempts or each.posted for each in moments)
            logged = self.log[lines:] if "raises" not in world.modes.values() else []
            quiet = 0 if wrote or logged else quiet + 1
            if quiet == QUIET:
                break
        assert quiet == QUIET, f"it does not come to rest: {logged}"
        check_rest(world, moments[0])


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The log lines, captured and not printed, because there are millions of them."""
    logger, handler, lines = logging.getLogger("dynsched"), logging.Handler(logging.INFO), []
    before = logger.level, logger.propagate
    handler.emit = lambda record: lines.append(record.msg)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
    logger.propagate = before[1]
    logger.setLevel(before[0])


@pytest.mark.slow
@pytest.mark.timeout(900)  # shrinking a failure takes minutes
def test_invariants_hold_in_random_histories(log: list[str]) -> None:
    Histories.log = log
    loop = Histories.loop = VirtualLoop()
    try:
        run_state_machine_as_test(
            Histories,
            settings=settings(
                max_examples=2 * settings().max_examples,
                stateful_step_count=STEPS,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.close()
