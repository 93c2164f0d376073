"""The scheduler's questions, bytes in and bytes out, answered from memory but for `/bind`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Raw

from dynsched.api.extender import wire
from dynsched.api.extender.names import Candidates, NodeNumbers
from dynsched.api.extender.scoring import ScoringSnapshot
from dynsched.engine.load.recent import RecentPods
from dynsched.engine.model import Node
from dynsched.engine.placing.score import (
    NEUTRAL,
    Refusal,
    break_ties,
    missing_label,
    scores_by_load,
)
from dynsched.engine.pod_values import BoundPod
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.sections import ExtenderRules
from dynsched.util.errors import ClusterError
from dynsched.util.logs import quiet_logger

logger = quiet_logger(__name__)

Bind = Callable[[wire.Binding], Awaitable[None]]
"""Binds a pod to a node; raises ClusterError with one line when that was not possible."""

Body = bytes | bytearray

MAX_NAMED_NODES: Final = 8
"""With more refused nodes their messages lack the value, so that the pod's event counts them."""
_NO_NODES: Final = NodeNumbers(())
_BIND_OFF: Final = (
    "/bind is off: start dynsched with --bind, or remove bindVerb from the scheduler's "
    "configuration"
)


@dataclass(kw_only=True)
class Extender:
    """``nodes``: the same object until something changed. ``rules``: what holds before the first
    Snapshot. ``bound`` counts by ``clock`` too. ``waits``: whether a pod of this uid is known to
    wait for a node; of others nothing is assumed, for nobody would correct it.
    """

    nodes: Callable[[], Mapping[str, Node]]
    synced: Callable[[], bool]
    rules: Callable[[], ExtenderRules]
    clock: Callable[[], float]
    bound: RecentPods = field(default_factory=RecentPods)
    waits: Callable[[str], bool] = lambda _: True
    bind_pod: Bind | None = None
    _counted: int = field(default=0, init=False)
    _last: Candidates | None = field(default=None, init=False)
    _readings: ScoringSnapshot | None = field(default=None, init=False)
    _published_at: float = field(default=0.0, init=False)
    _preparing: asyncio.Task[None] | None = field(default=None, init=False)
    _waiting: Snapshot | None = field(default=None, init=False)

    def publish_soon(self, snapshot: Snapshot) -> asyncio.Task[None]:
        """It is made ready beside the event loop: 5,000 nodes take some 50 ms."""
        self._waiting = snapshot
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare(), name="the extender's readings")
        return self._preparing

    async def _prepare(self) -> None:
        while self._waiting is not None:
            snapshot, self._waiting = self._waiting, None
            try:
                self.take(await asyncio.to_thread(ScoringSnapshot, snapshot, self._readings))
            except Exception:
                logger.exception("the extender continues with its previous readings")

    def take(self, readings: ScoringSnapshot) -> None:
        nodes = self.nodes()
        self.bound.follow(nodes)
        self._counted = readings.pod_changes
        self.bound.forget_changes(self._counted)
        self._count_pods(readings)
        self._readings = readings
        self._published_at = self.clock()

    def filter(self, body: Body) -> bytes:
        """WireError where the body is not a question; likewise those below."""
        asked, candidates = self._read(body)
        readings, key = self._fresh()
        if key is not None and asked.nodes is None and not self.synced():
            return wire.filter_error("dynsched does not know the nodes' labels yet")
        try:
            if candidates is not None:
                return self._filter_names(candidates, readings, key)
            return self._filter_nodes(asked, readings, key)
        except wire.WireError:
            raise
        except Exception:
            logger.exception("/filter failed; every node passes")
            return _all_pass(asked)

    def prioritize(self, body: Body) -> Body:
        asked, candidates = self._read(body)
        if candidates is None:
            heads = wire.read_heads(asked.nodes, None)
            candidates = Candidates([name for name, _ in heads], self._numbers)
        try:
            return self._scores(candidates, asked)
        except Exception:
            logger.exception("/prioritize failed; every node scores the same")
            return _same_score(candidates)

    def preempt(self, body: Body) -> bytes:
        victims = wire.read_preemption(body)
        readings, key = self._fresh()
        refused: Mapping[str, Refusal] = readings.refused if readings else {}
        nodes = self.nodes() if key is not None else {}
        return wire.preempt_answer(
            {
                name: found
                for name, found in victims.items()
                if name not in refused and (name not in nodes or key in nodes[name].labels)
            }
        )

    async def bind(self, body: Body) -> bytes:
        binding, said = wire.read_binding(body), ""
        if self.bind_pod is None:
            return wire.error_answer(_BIND_OFF)
        try:
            await self.bind_pod(binding)
        except ClusterError as error:
            said = str(error)
        except Exception as error:
            logger.exception("/bind failed in an unexpected way")
            said = f"unexpected {type(error).__name__}; dynsched's log has more"
        return wire.error_answer(said)

    def _count_pods(self, readings: ScoringSnapshot) -> None:
        changes = self.bound.changes_after(self._counted)
        if changes:
            self._counted = self.bound.sequence
            readings.add(changes, self.nodes())

    def _read(self, body: Body) -> tuple[wire.Asked, Candidates | None]:
        asked = wire.read_args(body)
        if asked.names is None:
            return asked, None
        return asked, self.candidates(asked.names)

    def candidates(self, names: wire.Buffer) -> Candidates:
        """The same list comes to `/filter` and then to `/prioritize`, so the last one is kept.
        WireError unless the JSON is a list of names.
        """
        raw, last = bytes(names), self._last
        if last is None or last.nodes is not self._numbers or last.raw != raw:
            self._last = last = Candidates(wire.read_names(raw), self._numbers, raw)
        return last

    @property
    def _numbers(self) -> NodeNumbers:
        return _NO_NODES if self._readings is None else self._readings.numbers

    def _fresh(self) -> tuple[ScoringSnapshot | None, str | None]:
        """The readings, unless they are too old; and the label that a node must carry."""
        readings = self._readings
        if readings is None or self.clock() - self._published_at > readings.stale_after:
            return None, self.rules().require_label
        return readings, readings.rules.require_label

    def _filter_names(
        self, candidates: Candidates, readings: ScoringSnapshot | None, key: str | None
    ) -> bytes:
        dropped = np.zeros(len(candidates), np.bool_)
        unresolvable: dict[str, str] = {}
        failed: dict[str, str] = {}
        if readings is not None:
            dropped = readings.is_refused[candidates.numbers]
            stopped = candidates.numbers[dropped].tolist()
            names = [candidates.nodes.names[number] for number in stopped]
            unresolvable = _reasons(names, readings.refused)
        if key is not None:
            nodes = self.nodes()
            for index, name in enumerate(candidates.names):
                if name not in nodes:
                    failed[name] = f"node is not known, nor whether it carries the label {key}"
                elif key not in nodes[name].labels:
                    unresolvable[name] = missing_label(key)
                else:
                    continue
                dropped[index] = True
        passed = candidates.without(dropped) if dropped.any() else candidates.raw
        tail = wire.filter_tail(failed, unresolvable)
        return b'{"Nodes":null,"NodeNames":' + passed + tail

    def _filter_nodes(
        self,
        asked: wire.Asked,
        readings: ScoringSnapshot | None,
        key: str | None,
    ) -> bytes:
        """Whole nodes: those that pass go back as they came; their own labels count."""
        refused: Mapping[str, Refusal] = readings.refused if readings else {}
        heads = wire.read_heads(asked.nodes, key)
        head, items = wire.read_nodes(asked.nodes)
        passed: list[Raw] = []
        bare: list[str] = []
        stopped: list[str] = []
        for (name, is_labelled), item in zip(heads, items, strict=True):
            if not is_labelled:
                bare.append(name)
            elif name in refused:
                stopped.append(name)
            else:
                passed.append(item)
        unresolvable = _reasons(stopped, refused)
        unresolvable |= dict.fromkeys(bare, missing_label(key or ""))
        tail = wire.filter_tail(unresolvable=unresolvable)
        head = b'{"Nodes":' + head + b"["
        # Joined once: it may be large.
        separated = [part for item in passed for part in (b",", item)][1:]
        return b"".join([head, *separated, b']},"NodeNames":null', tail])

    def _scores(self, candidates: Candidates, asked: wire.Asked) -> Body:
        readings, _ = self._fresh()
        if readings is None:
            return _same_score(candidates)
        now = self.clock()
        self._count_pods(readings)
        profile = readings.profile(asked.scheduler)
        loads = profile.of(candidates.numbers)
        scores = scores_by_load(loads, profile.method)
        best = break_ties(scores, loads)
        if best is not None and asked.uid and self.waits(asked.uid):
            self.bound.add(BoundPod(asked.uid, candidates.names[best], assumed=True), now)
        return candidates.scored(scores[loads])


def _reasons(stopped: Sequence[str], refused: Mapping[str, Refusal]) -> dict[str, str]:
    few = len(stopped) <= MAX_NAMED_NODES
    return {name: refused[name].long if few else refused[name].short for name in stopped}


def _same_score(candidates: Candidates) -> Body:
    return candidates.scored(np.full(len(candidates), NEUTRAL, np.uint8))


def _all_pass(asked: wire.Asked) -> bytes:
    nodes, names = (b"null" if each is None else each for each in (asked.nodes, asked.names))
    return b"".join([b'{"Nodes":', nodes, b',"NodeNames":', names, wire.filter_tail()])
