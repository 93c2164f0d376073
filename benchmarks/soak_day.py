"""The day of the soak: the faults and changes that the world and the process go through.

In the first hour every kind of fault occurs in turn, in addition to random ones. The resources of
the process after that hour, peaks included, are what later hours are compared with.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from soak_process import Process, elector
from soak_prometheus import FIRST_RULE, HOUR, INTERVAL
from soak_world import OTHER_LABEL, TAINT, World

from dynsched.controller.node_writer import write_all
from dynsched.core.marks import plan_prune
from dynsched.core.tick import Tick
from dynsched.kube.cluster import NodeCluster
from dynsched.rules import keys
from dynsched.rules.file import RulesFile
from dynsched.rules.labels import Mark, parse_label, parse_taint
from dynsched_sim.apiserver.faults import Fault, Faults

Kind = TypeVar("Kind")

REST = 60
"""Ticks without a fault at the end; in the last third of them nothing may be due."""

TICKS_AN_HOUR = round(HOUR / INTERVAL)


def rules(number: int, draw: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> dict[str, Any]:
    """The content of the rules file with this number; its second rule has a new name each time.

    ``draw`` chooses one of several changes.
    """
    first = {"name": FIRST_RULE, "expr": "cpu", "threshold": 80, "clear_threshold": 70}
    first |= {"for": "1m", "keep_firing_for": "2m"}
    second = {"name": f"hotter-{number}", "expr": "cpu", "threshold": 90}
    change = draw(
        [
            {},
            {"guard": {"max_marked": "2%", "max_releases": 3}},
            {"mark": {"label": keys.DEFAULT_LABEL, "taint": TAINT}},
            {"mark": {"label": OTHER_LABEL}},
            {"rules": [first, second]},
        ]
    )
    guard = {"max_marked": "20%", "max_releases": "25%"}
    return {"guard": guard, "stale_after": "5m", "rules": [first]} | change


class Day:
    """Runs the simulated time, with the events that happen in it."""

    def __init__(self, world: World, folder: Path, hours: float, seed: int) -> None:
        self.world = world
        self.hours = hours
        self._chance = random.Random(seed + 1)
        self._not_yet: dict[str, list[int]] = {}
        self._path = folder / "rules.yaml"
        self._kubeconfig = world.server.kubeconfig(folder / "config")
        self._contents = 0
        self._write_rules()
        self._rules = RulesFile(self._path)
        self._undo: list[tuple[int, Callable[[], Awaitable[None]]]] = []
        self._outage: asyncio.Task[None] | None = None
        self._is_rivals_turn = False
        self._tick = 0
        world.rules = lambda: self._rules.in_force
        self._happening = {  # mean number of ticks between two occurrences
            self._nodes_change: 7,
            self._many_get_hot: 240,
            self._marked_are_ignored: 60,
            self._prometheus_fails: 12,
            self._api_fails: 7,
            self._api_is_down: 50,
            self._watch_is_cut: 10,
            self._older_state_is_put_back: 80,
            self._rules_change: 18,
            self._leader_changes: 24,
            self._clock_is_set: 24,
            self._process_restarts: 18,
        }

    async def live(self, measure: Callable[[], Awaitable[None]]) -> None:
        """Run everything. ``measure`` is called while calm: after an hour and each quarter."""
        self._process = Process(self.world, self._kubeconfig, self._rules)
        await self._process.start()
        self._rivals_api, self._rival = await elector(str(self._kubeconfig), "rival")
        self.world.is_led = lambda: self._rival.may_write
        total = round(self.hours * HOUR / INTERVAL) - REST
        points = {min(TICKS_AN_HOUR, total // 4), total // 4, total // 2, total * 3 // 4, total}
        while self._tick < total:
            self._tick += 1
            await self._apply_events()
            await self._do_tick()
            if self._tick % TICKS_AN_HOUR == 0:
                self.world.forget_events()
            if self._tick in points:
                await self._calm_down()
                await measure()
                # A restart would hide growth in the old process.
                self._happening.pop(self._process_restarts, None)
        await self._rest()
        await self._prune()

    async def close(self) -> None:
        """Stop the process, and close the rival's client."""
        if self._outage is not None:
            await self._outage
        await self._process.stop()
        await self._rivals_api.close()

    async def _do_tick(self, *, still: bool = False) -> Tick:
        if not still:
            self.world.heat()
            self.world.beat()
        tick = await self._process.tick()
        counts = self.world.happened
        counts["ticks"] += 1
        counts["ticks that failed"] += tick.error is not None
        counts["ticks as a follower"] += not tick.leadership.leading
        counts["ticks under the cap"] += bool(tick.evaluation.decision.capped)
        counts["writes that failed"] += len(tick.writes.failures)
        counts["rules reloaded"] += tick.rules_status.reloaded
        counts["rules refused"] += tick.rules_status.refused
        counts["queries that failed"] += sum(health.error is not None for health in tick.rules)
        return tick

    # --- events ---

    async def _apply_events(self) -> None:
        self.world.is_known = self.world.is_known or self._process.knows_all()
        self.world.judge_the_sight()
        due = [undo for at, undo in self._undo if at <= self._tick]
        self._undo = [(at, undo) for at, undo in self._undo if at > self._tick]
        for undo in due:
            await undo()
        for number, (what, every) in enumerate(self._happening.items()):
            if what in {self._leader_changes, self._process_restarts} and self._is_rivals_turn:
                continue
            is_its_turn = (
                self._tick <= TICKS_AN_HOUR and self._tick % len(self._happening) == number
            )
            if self._chance.random() < 1 / every or is_its_turn:
                self.world.happened[what.__name__.strip("_").replace("_", " ")] += 1
                await what()

    def _draw(self, what: str, kinds: list[Kind]) -> Kind:
        """Choose one of ``kinds``: at first each of them once, in order, then at random."""
        not_yet = self._not_yet.setdefault(what, list(range(len(kinds))))
        return kinds[not_yet.pop(0)] if not_yet else self._chance.choice(kinds)

    def _later(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Undo it soon; sometimes later than ``stale_after``."""
        self._undo.append((self._tick + self._chance.choice([1, 1, 2, 3, 20]), undo))

    async def _nodes_change(self) -> None:
        self.world.come_and_go()

    async def _many_get_hot(self) -> None:
        """Make many nodes hot; while the cap on marks binds, exclude some marked nodes."""
        self.world.heat_many()
        self._undo += [(self._tick + soon, self._marked_are_ignored) for soon in (3, 5, 7)]

    async def _marked_are_ignored(self) -> None:
        names = self.world.ignore_marked()

        async def again() -> None:
            self.world.ignore_no_more(names)

        self._later(again)

    async def _prometheus_fails(self) -> None:
        async def again() -> None:
            self.world.prometheus.mode = "ok"

        modes = ["error", "page", "reset", "slow", "partial", "stale", "nan"]
        self.world.prometheus.mode = self._draw("prometheus", modes)
        self._later(again)

    async def _api_fails(self) -> None:
        faults, times = self.world.server.faults, self._chance.randint(1, 12)
        patches = partial(faults.answer, verb="patch", resource="nodes", times=times)
        reset = partial(faults.reset, verb="patch", resource="nodes", times=times)
        faulty: list[Callable[[], Fault]] = [
            partial(patches, 500),
            partial(patches, 409),
            partial(patches, 403),
            partial(patches, 504, after=True),
            reset,
            partial(reset, after=True),
            partial(faults.answer, 429, times=2, retry_after=0),
            partial(faults.answer, 500, times=3, resource="leases"),
            partial(faults.delay, 0.02, times=times),
        ]
        self._draw("api", faulty)()

    async def _api_is_down(self) -> None:
        """Stop the API server for some ticks, which are minutes of simulated time."""

        async def outage() -> None:
            await self.world.server.down()
            await asyncio.sleep(self._chance.uniform(0.02, 0.2))
            await self.world.server.up()

        if self._outage is None or self._outage.done():
            self._outage = asyncio.create_task(outage())

    async def _watch_is_cut(self) -> None:
        if self._draw("compaction", [True] + 9 * [False]):
            self.world.server.store.compact()
        how = self._draw("watch", ["end", "cut", "gone", "end", "cut"])
        self.world.server.drop_watches(how)

    async def _older_state_is_put_back(self) -> None:
        """Restore etcd to its state of some minutes ago."""
        backup = self.world.back_up()

        async def restore() -> None:
            if self._outage is not None:
                await self._outage
            await self.world.restore(backup)

        self._later(restore)

    async def _rules_change(self) -> None:
        async def again() -> None:
            self._write_rules()

        if self._draw("rules file", [True, False, True, True]):
            self._write_rules()
        else:
            self._path.write_text("rules:\n- name: broken\n  for: soon\n", encoding="utf-8")
            self._later(again)

    async def _leader_changes(self) -> None:
        """Let a rival lead for a while; it has no evaluator, so nobody writes."""
        await self._process.resign()
        self._is_rivals_turn, done = True, asyncio.Event()
        running = asyncio.create_task(self._rival.run(done))

        async def again() -> None:
            done.set()
            await running
            self._is_rivals_turn = False
            self._process.lead()

        self._later(again)

    async def _clock_is_set(self) -> None:
        self.world.clock.set_by += self._draw("clock", [-HOUR, -60.0, -3.0, 3.0, 60.0, HOUR])

    async def _process_restarts(self) -> None:
        if self._outage is not None:
            await self._outage
        self.world.server.faults = Faults()
        await self._process.stop()
        self._process = Process(self.world, self._kubeconfig, self._rules)
        await self._process.start()

    def _write_rules(self) -> None:
        content = rules(self._contents, partial(self._draw, "rules"))
        new = self._path.with_suffix(".new")
        new.write_text(yaml.safe_dump(content), encoding="utf-8")
        new.replace(self._path)
        self._contents += 1

    # --- calm ---

    async def _calm_down(self) -> None:
        """End all faults, and wait until dynsched has recovered."""
        if self._outage is not None:
            await self._outage
        self.world.server.faults = Faults()
        self.world.server.store.compact()  # so that the simulator's memory is not measured
        undo, self._undo = self._undo, []
        for _, each in undo:
            await each()
        async with asyncio.timeout(60):
            while True:
                while not self._process.is_calm():  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.05)
                tick = await self._do_tick(still=True)
                if not tick.writes.failures:  # else it does not know what was stored
                    break
        if odd := sorted(tick.evaluation.table.marked ^ self.world.marked()):
            self.world.violations.append(f"the tick's marks differ from the cluster's: {odd[:5]}")

    async def _rest(self) -> None:
        """Nothing changes any more, so soon nothing may be written."""
        for number in range(REST):
            tick = await self._do_tick(still=True)
            if number >= REST * 2 // 3 and tick.planned:
                self.world.violations.append(f"at rest, {tick.planned[0]} is due")

    async def _prune(self) -> None:
        """Prune with the rules in force, then with older rules, as docs/operate.md says."""
        self.world.is_pruned = True
        older = Mark(parse_label(keys.DEFAULT_LABEL), parse_taint(TAINT))
        for mark in (self.world.rules().mark, older, Mark(parse_label(OTHER_LABEL))):
            expected = self.world.left_by_prune(mark)
            cluster = await NodeCluster.listed(self._process.client)
            await write_all(
                cluster,
                plan_prune(cluster.nodes().values(), mark),
                replan=lambda node, mark=mark: next(iter(plan_prune([node], mark)), None),
                on_written=lambda _node, _patch: None,
            )
            self.world.judge_the_prune(expected)
        self.world.judge_the_prune({})
