"""What ``guard`` allows: which nodes may be marked, how many marks may go at once, and how fast
nodes are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from msgspec import Struct

from dynsched.core.marks import Action, MarkDecision, NodePatch
from dynsched.core.wording import Reason
from dynsched.rules.fields import IntOrPercent
from dynsched.rules.sections import GuardRules

INCUMBENT_BONUS: Final = 0.1
"""A marked node counts as this share of its threshold hotter than it is, so that two nodes of about
the same load do not swap the last place under the cap at every tick."""
MINUTE: Final = 60.0
CARRIED_OVER: Final = 10.0
"""Burst size, in seconds of the write rate. The first pass may use a full minute."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a write that was refused is tried again: twice as long after each refusal."""


class MarkCandidate(Struct, frozen=True, gc=False):
    """A node that carries the mark or should. ``may_mark``: its mark may stay or be set; else it is
    only counted under the cap until it is gone.
    """

    name: str
    pool: str
    hot: bool
    marked: bool
    may_mark: bool
    severity: float

    @property
    def rank(self) -> tuple[float, bool, str]:
        """The hottest first; names decide among equals, whatever the order of the nodes."""
        return (-self.severity - INCUMBENT_BONUS * self.marked, not self.marked, self.name)


def count_of(limit: IntOrPercent, total: int) -> int:
    """How many of ``total`` nodes a limit allows; a share is rounded down."""
    # The epsilon keeps 0.29 * 100 from being 28.
    return int(total * limit.amount + 1e-9) if limit.is_share else min(int(limit.amount), total)


def decide_marks(
    guard: GuardRules,
    candidates: Iterable[MarkCandidate],
    pool_sizes: Mapping[str, int],
    open_sizes: Mapping[str, int],
    released: int = 0,
) -> MarkDecision:
    """Which nodes carry the mark from now on: ``max_releases`` over all, then ``max_marked`` in
    each pool, the hottest first.

    ``pool_sizes``: how many nodes may be marked in each pool; ``open_sizes``: how many of them take
    pods now. ``released``: how many marks went in this tick before. A mark that is to go counts
    under the cap until it is seen to be gone, because a write may fail.
    """
    candidates = tuple(candidates)
    cap = {pool: count_of(guard.max_marked, open_sizes.get(pool, 0)) for pool in pool_sizes}
    concerned = sorted((c for c in candidates if c.may_mark), key=lambda each: each.rank)
    hot = [each for each in concerned if each.hot]
    granted = _within(cap, hot)
    granted |= _kept(guard, hot, granted, pool_sizes)
    # The coolest go first; nodes that are hot but over the cap go last.
    leaving = [each for each in concerned if each.marked and each.name not in granted]
    leaving.sort(key=lambda each: (each.hot, each.severity, each.name))
    allowed = count_of(guard.max_releases, sum(each.marked for each in concerned) + released)
    leaving = leaving[: max(0, max(1, allowed) - released)]
    used = Counter(each.pool for each in candidates if each.marked)
    free = {pool: limit - used[pool] for pool, limit in cap.items()}
    arriving = _within(free, [each for each in hot if not each.marked and each.name in granted])
    chosen = {each.name for each in concerned if each.marked} | arriving
    chosen -= {each.name for each in leaving}
    return MarkDecision(
        marked=frozenset(chosen),
        limited={
            each.name: _why_limited(guard, hot=each.hot)
            for each in concerned
            if each.hot is not (each.name in chosen)
        },
        capped=frozenset(each.pool for each in hot if each.name not in granted),
    )


def _kept(
    guard: GuardRules,
    hot: Sequence[MarkCandidate],
    granted: Collection[str],
    pool_sizes: Mapping[str, int],
) -> set[str]:
    """Marks above the cap that stay all the same: nodes that are closed for a moment lower the cap,
    and release no mark, unless a hotter node waits for its place.
    """
    most = {pool: count_of(guard.max_marked, size) for pool, size in pool_sizes.items()}
    waiting = {each.pool for each in hot if each.name in granted and not each.marked}
    return _within(most, [each for each in hot if each.marked and each.pool not in waiting])


def _why_limited(guard: GuardRules, *, hot: bool) -> str:
    if hot:
        return Reason("max_marked", str(guard.max_marked))
    return Reason("max_releases", str(guard.max_releases))


def _within(free: Mapping[str, int], ranked: Sequence[MarkCandidate]) -> set[str]:
    """The first of the ``ranked`` ones, as many as are ``free`` in their pool."""
    taken: Counter[str] = Counter()
    found = set()
    for each in ranked:
        if taken[each.pool] < free[each.pool]:
            taken[each.pool] += 1
            found.add(each.name)
    return found


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
        self._left: float | None = None
        """Writes that are allowed now; it may be overdrawn."""
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
        left = self._refilled(per_minute, now)
        room = max(0, int(left - len(marks)))
        sent = (*marks, *others[:room])
        self._left, self._at = left - len(sent), now
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

    def _refilled(self, per_minute: int, now: float) -> float:
        if self._left is None:
            return float(per_minute)  # what a single pass would write
        passed = now - self._at
        # A tick that comes late has all that it missed, up to a minute.
        most = per_minute * min(max(CARRIED_OVER, passed), MINUTE) / MINUTE
        return min(max(1.0, most), self._left + passed * per_minute / MINUTE)
