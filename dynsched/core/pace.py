"""How fast nodes are written: ``max_writes_per_minute``, and nodes whose write was refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dynsched.core.marks import Action, NodePatch
from dynsched.core.wording import Reason
from dynsched.util.token_bucket import TokenBucket

MINUTE: Final = 60.0
CARRIED_OVER: Final = 10.0
"""Burst size, in seconds of the write rate. The first pass may use a full minute."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a write that was refused is tried again: twice as long after each refusal."""


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A node that the API server did not let us change, and why; as text ``node: cause``."""

    node: str
    cause: str
    again: bool = False
    """Whether it was refused in an earlier tick, and is not tried again yet."""

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Which of the patches that are due are sent now."""

    patches: tuple[NodePatch, ...] = ()
    delayed: Mapping[str, str] = field(default_factory=dict)
    """By node, why it waits."""
    refused: tuple[WriteFailure, ...] = ()
    """What the API server answered for those that wait because it refused them."""


NO_WRITES: Final = WriteBatch()


class _Pause(NamedTuple):
    """``seconds`` long, until ``end``; ``failure``: why, None where it was not even tried."""

    seconds: float
    end: float
    failure: WriteFailure | None


class WritePace:
    """What is left of the write rate, and the nodes that wait. ``now`` is in seconds of a clock
    that never steps.
    """

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._at = 0.0
        self._pauses: dict[str, _Pause] = {}

    def choose(self, patches: Sequence[NodePatch], per_minute: int, now: float) -> WriteBatch:
        """Choose from the ``patches`` that are due. A new mark never waits for the rate, but
        counts: the others make up for what is sent beyond it.
        """
        due = {patch.node for patch in patches}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in due}
        pausing = {name: pause for name, pause in self._pauses.items() if now < pause.end}
        ready = [patch for patch in patches if patch.node not in pausing]
        marks = [patch for patch in ready if patch.action is Action.MARK]
        others = [patch for patch in ready if patch.action is not Action.MARK]
        bucket = self._refill(per_minute, now)
        room = max(0, int(bucket.tokens - len(marks)))
        sent = (*marks, *others[:room])
        bucket.tokens -= len(sent)
        why = Reason("max_writes", str(per_minute))
        return WriteBatch(
            patches=sent,
            delayed={patch.node: why for patch in others[room:]},
            refused=tuple(replace(p.failure, again=True) for p in pausing.values() if p.failure),
        )

    def refused(
        self, failures: Iterable[WriteFailure], untried: Iterable[NodePatch], now: float
    ) -> None:
        """These were refused, and those were not tried for it, of the batch chosen at ``now``."""
        found: dict[str, WriteFailure | None] = {patch.node: None for patch in untried}
        found |= {failure.node: failure for failure in failures}
        for name, failure in found.items():
            before = self._pauses.get(name)
            seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, LONGEST_PAUSE)
            self._pauses[name] = _Pause(seconds, now + seconds, failure)

    def _refill(self, per_minute: int, now: float) -> TokenBucket:
        if self._bucket is None:
            self._bucket = TokenBucket(float(per_minute))  # what a single pass would write
        # A tick that comes late has all that it missed, up to a minute.
        seconds = min(max(CARRIED_OVER, now - self._at), MINUTE)
        self._bucket.refill(per_minute / MINUTE, max(1.0, per_minute * seconds / MINUTE), now)
        self._at = now
        return self._bucket
