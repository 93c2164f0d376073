"""The scheduler's questions, answered from memory: `/filter`, `/prioritize`, `/preempt`, `/bind`.

Bytes in, bytes out; `web.extender.http` puts it on the wire. Nothing here waits for an API server
or for Prometheus, but `/bind`, whose very purpose is a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Raw

from dynsched.core.errors import ClusterError
from dynsched.core.extender import Refusal, missing_label, without_label
from dynsched.core.model import Node, Snapshot
from dynsched.core.pods import BoundPod
from dynsched.core.recent import RecentPods
from dynsched.core.score import BEST, NEUTRAL, break_ties
from dynsched.core.sections import ExtenderRules
from dynsched.web.extender import wire
from dynsched.web.extender.candidates import Answer, CandidateLists, Candidates
from dynsched.web.extender.scoring import ProfileLoads, ScoringSnapshot
from dynsched.web.extender.victims import preempt_answer, read_preemption
from dynsched.web.transport.quiet import quiet_logger

logger = quiet_logger(__name__)

Bind = Callable[[wire.Binding, Callable[[], bool]], Awaitable[None]]
"""Binds a pod to a node, while somebody waits for it (the second argument tells); raises
ClusterError with one line when that was not possible."""

Body = bytes | bytearray

MAX_NAMED_NODES: Final = 8
"""The most refused nodes whose messages contain the value. With more of them the messages are equal
per rule, so that the pod's event counts them."""

_FILTER: Final = "/filter"
"""The key of its answers, which no schedulerName can be."""

ROOM_FOR_NODES: Final = 10_000
"""Candidates that a question may name in any case: the nodes may not be listed yet."""

MAX_UID_LENGTH: Final = 64
"""Characters; a longer uid does not come from an API server and is not kept."""

_ENDS: Final = tuple(b"%d}" % score for score in range(BEST + 1))

_BIND_OFF: Final = (
    "/bind is off: start dynsched with --bind, or remove bindVerb from the scheduler's "
    "configuration"
)


class Extender:
    """Answers by the last Snapshot.

    ``nodes``: the nodes as they are now; the same object until something changed. ``synced``:
    whether they are all known. ``rules``: what holds before the first Snapshot. ``clock`` gives
    seconds and is never set; ``bound`` counts by the same clock. ``waits``: whether a pod of this
    uid is known to wait for a node; of others nothing is assumed, for there may be no such pod, and
    nobody would correct it. ``bind`` None: `/bind` is off. ``served``: whether the rules ask for an
    extender; else its paths answer 404.
    """

    def __init__(
        self,
        *,
        nodes: Callable[[], Mapping[str, Node]],
        synced: Callable[[], bool],
        rules: Callable[[], ExtenderRules],
        clock: Callable[[], float],
        bound: RecentPods | None = None,
        waits: Callable[[str], bool] = lambda _: True,
        bind: Bind | None = None,
        served: Callable[[], bool] = lambda: True,
    ) -> None:
        self._nodes = nodes
        self._synced = synced
        self._rules = rules
        self._clock = clock
        self._bound = RecentPods() if bound is None else bound
        self._counted = 0
        self._waits = waits
        self._bind = bind
        self.served = served
        self._lists = CandidateLists()
        self._readings: ScoringSnapshot | None = None
        self._published_at = 0.0
        self._preparing: asyncio.Task[None] | None = None
        self._waiting: Snapshot | None = None
        self._labelled: tuple[object, str | None, frozenset[str]] = (None, None, frozenset())

    def publish_soon(self, snapshot: Snapshot) -> asyncio.Task[None]:
        """Answer by ``snapshot`` when the task is done: it is made ready beside the event loop, for
        5,000 nodes are some 50 ms.
        """
        self._waiting = snapshot
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare(), name="the extender's readings")
        return self._preparing

    async def _prepare(self) -> None:
        while self._waiting is not None:
            snapshot, self._waiting = self._waiting, None
            try:
                self.take(await asyncio.to_thread(ScoringSnapshot, snapshot))
            except Exception:
                logger.exception("the extender continues with its previous readings")

    def take(self, readings: ScoringSnapshot) -> None:
        """Answer by ``readings`` from now on."""
        nodes = self._nodes()
        self._bound.follow(nodes)
        self._counted = readings.pod_changes
        self._bound.forget_changes(self._counted)
        self._count_pods(readings)
        self._readings = readings
        self._published_at = self._clock()

    def filter(self, body: Body) -> list[bytes | Raw]:
        """The answer to `/filter`, in parts. WireError where the body is not a question."""
        asked = wire.read_args(body)
        readings = self._fresh()
        key = (readings.rules if readings else self._rules()).require_label
        if key is not None and asked.nodes is None and not self._synced():
            return [wire.filter_error("dynsched does not know the nodes' labels yet")]
        try:
            if asked.nodes is None and asked.names is not None:
                return [self._filter_names(asked.names, readings, key)]
            return self._filter_nodes(body, asked, readings.refused if readings else {}, key)
        except wire.WireError:
            raise
        except Exception:
            logger.exception("/filter failed; every node passes")
            return _all_pass(asked)

    def prioritize(self, body: Body) -> bytes:
        """The answer to `/prioritize`. WireError where the body is not a question."""
        asked = wire.read_args(body)
        if asked.names is not None:
            candidates = self._lists.of(asked.names, self._most())
        elif asked.nodes is not None:
            heads = wire.read_heads(body, asked.nodes, self._most(), None)
            candidates = Candidates([head.name for head in heads])
        try:
            return self._scores(candidates, asked)
        except Exception:
            logger.exception("/prioritize failed; every node scores the same")
            return _same_score(candidates)

    def preempt(self, body: Body) -> bytes:
        """The answer to `/preempt`. WireError where the body is not a question."""
        victims = read_preemption(body, self._most())
        readings = self._fresh()
        key = (readings.rules if readings else self._rules()).require_label
        bare = self._without(key) if key is not None else frozenset()
        refused: Mapping[str, Refusal] = readings.refused if readings else {}
        return preempt_answer(
            {
                node: found
                for node, found in victims.items()
                if node not in refused and node not in bare
            }
        )

    async def bind(self, body: Body, wanted: Callable[[], bool] = lambda: True) -> bytes:
        """The answer to `/bind`. WireError where the body is not a question. ``wanted``: whether
        the caller still waits for the answer.
        """
        binding = wire.read_binding(body)
        if self._bind is None:
            return wire.error_answer(_BIND_OFF)
        try:
            await self._bind(binding, wanted)
        except ClusterError as error:
            return wire.error_answer(str(error))
        except Exception as error:
            logger.exception("/bind failed in an unexpected way")
            return wire.error_answer(f"unexpected {type(error).__name__}; dynsched's log has more")
        return wire.error_answer("")

    def _count_pods(self, readings: ScoringSnapshot) -> None:
        """Those that were bound or ended since the last time."""
        changes = self._bound.changes_after(self._counted)
        if changes:
            self._counted = self._bound.sequence
            readings.add(changes, self._nodes())

    def _most(self) -> int:
        """Candidates that a question may name: as many as there are nodes, with room."""
        return max(ROOM_FOR_NODES, 2 * len(self._nodes()))

    def _fresh(self) -> ScoringSnapshot | None:
        """The readings, unless they are so old that they say nothing any more."""
        readings = self._readings
        if readings is None or self._clock() - self._published_at > readings.stale_after:
            return None
        return readings

    def _without(self, key: str) -> frozenset[str]:
        """The nodes that do not carry this label, as the nodes are now."""
        nodes = self._nodes()
        if self._labelled[0] is not nodes or self._labelled[1] != key:
            self._labelled = (nodes, key, without_label(key, nodes))
        return self._labelled[2]

    def _filter_names(self, raw: Raw, readings: ScoringSnapshot | None, key: str | None) -> bytes:
        candidates = self._lists.of(raw, self._most())
        version = readings.version if readings else 0
        known = candidates.answers.get(_FILTER)
        if known is not None and known.version == version and key is None:
            return known.body
        names = candidates.names
        refused = readings.refused if readings else {}
        failed: dict[str, str] = {}
        unresolvable = _reasons([name for name in names if name in refused], refused)
        if key is not None:
            nodes, bare = self._nodes(), self._without(key)
            unresolvable.update((name, missing_label(key)) for name in names if name in bare)
            unknown = f"node is not known, nor whether it carries the label {key}"
            failed = {name: unknown for name in names if name not in nodes}
        if unresolvable or failed:
            passed = wire.names_answer(
                [name for name in names if name not in unresolvable and name not in failed]
            )
        else:
            passed = candidates.raw
        tail = wire.filter_tail(names=passed, failed=failed, unresolvable=unresolvable)
        answer = b'{"Nodes":null' + tail
        if key is None:  # else it also depends on the nodes, which change at any time
            candidates.answers[_FILTER] = Answer(version, answer)
        return answer

    def _filter_nodes(
        self, body: Body, asked: wire.Asked, refused: Mapping[str, Refusal], key: str | None
    ) -> list[bytes | Raw]:
        """Whole nodes: those that pass go back as they came; their own labels count."""
        assert asked.nodes is not None  # noqa: S101 (the caller looked)
        heads = wire.read_heads(body, asked.nodes, self._most(), key)
        head, items = wire.read_nodes(asked.nodes)
        passed: list[Raw] = []
        bare: list[str] = []
        stopped: list[str] = []
        for node, item in zip(heads, items, strict=True):
            if not node.labelled:
                bare.append(node.name)
            elif node.name in refused:
                stopped.append(node.name)
            else:
                passed.append(item)
        unresolvable = _reasons(stopped, refused)
        unresolvable.update((name, missing_label(key or "")) for name in bare)
        names = None
        if asked.names is not None:  # both forms were sent: both are answered
            given = self._lists.of(asked.names, self._most()).names
            names = wire.names_answer(
                [name for name in given if name not in unresolvable and name not in refused]
            )
        tail = wire.filter_tail(names=names, failed={}, unresolvable=unresolvable)
        return [b'{"Nodes":', head, b"[", *_separated(passed), b"]}", tail]

    def _scores(self, candidates: Candidates, asked: wire.Asked) -> bytes:
        readings = self._fresh()
        if readings is None:
            return _same_score(candidates)
        now = self._clock()
        self._count_pods(readings)
        profile = readings.profile(asked.scheduler)
        answer = candidates.answers.get(profile.name)
        if answer is None or answer.version != profile.version:
            answer = _scored(candidates, profile)
            candidates.answers[profile.name] = answer
        if answer.best and 0 < len(asked.uid) <= MAX_UID_LENGTH and self._waits(asked.uid):
            self._bound.add(BoundPod(asked.uid, answer.best, assumed=True), now)
        return answer.body


def _scored(candidates: Candidates, profile: ProfileLoads) -> Answer:
    loads = list(map(profile.loads.get, candidates.names))
    scores = profile.scorer.score(loads)
    best = break_ties(scores, loads)
    ends = {load: _ENDS[score] for load, score in scores.items()}
    body = _joined(candidates.fragments, list(map(ends.__getitem__, loads)))
    return Answer(profile.version, body, "" if best is None else candidates.names[best])


def _reasons(stopped: Sequence[str], refused: Mapping[str, Refusal]) -> dict[str, str]:
    if len(stopped) <= MAX_NAMED_NODES:
        return {name: refused[name].long for name in stopped}
    return {name: refused[name].short for name in stopped}


def _joined(fragments: list[bytes], ends: list[bytes]) -> bytes:
    if not fragments:
        return b"[]"
    parts = [b""] * (2 * len(fragments))
    parts[::2] = fragments
    parts[1::2] = ends
    return b"[" + b"".join(parts)[1:] + b"]"


def _same_score(candidates: Candidates) -> bytes:
    return _joined(candidates.fragments, [_ENDS[NEUTRAL]] * len(candidates.names))


def _separated(items: Iterable[Raw]) -> Iterable[bytes | Raw]:
    first = True
    for item in items:
        if not first:
            yield b","
        first = False
        yield item


def _all_pass(asked: wire.Asked) -> list[bytes | Raw]:
    nodes: bytes | Raw = b"null" if asked.nodes is None else asked.nodes
    return [b'{"Nodes":', nodes, wire.filter_tail(names=asked.names, failed={}, unresolvable={})]
