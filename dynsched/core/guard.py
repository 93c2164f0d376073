"""The limits of ``guard``: which nodes may be marked, how many marks may be released at once, and
how fast nodes are written.
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
"""Added to the severity of a marked node, as a share of its threshold. Without it, two nodes with
similar load would swap the last place under the cap at every tick."""
MINUTE: Final = 60.0
CARRIED_OVER: Final = 10.0
"""Burst size, in seconds of the write rate. The first pass may use a full minute."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Backoff in seconds before a failed write is retried. It starts at FIRST_PAUSE and doubles with
each failure, up to LONGEST_PAUSE."""


class MarkCandidate(Struct, frozen=True, gc=False):
    """A node that is hot or marked. ``may_mark`` means that its mark may be set or kept. Otherwise
    its mark only counts toward the cap until it is gone.
    """

    name: str
    pool: str
    hot: bool
    marked: bool
    may_mark: bool
    severity: float

    @property
    def rank(self) -> tuple[float, bool, str]:
        """Sort key: hottest first (a mark adds INCUMBENT_BONUS), then marked, then by name."""
        return (-self.severity - INCUMBENT_BONUS * self.marked, not self.marked, self.name)


def count_of(limit: IntOrPercent, total: int) -> int:
    """The number of nodes that a limit allows out of ``total``; a share is rounded down."""
    # The epsilon keeps 0.29 * 100 from being 28.
    return int(total * limit.amount + 1e-9) if limit.is_share else min(int(limit.amount), total)


def decide_marks(
    guard: GuardRules,
    candidates: Iterable[MarkCandidate],
    pool_sizes: Mapping[str, int],
    open_sizes: Mapping[str, int],
    released: int = 0,
) -> MarkDecision:
    """Decide which nodes carry the mark from now on. ``max_releases`` applies to all nodes, and
    ``max_marked`` to each pool, the hottest nodes first.

    ``pool_sizes`` is the number of nodes per pool that may be marked, ``open_sizes`` the number of
    those that accept pods now, and ``released`` the number of marks released earlier in this tick.
    A mark to be removed counts toward the cap until it is seen to be gone, because the write may
    fail.
    """
    candidates = tuple(candidates)
    cap = {pool: count_of(guard.max_marked, open_sizes.get(pool, 0)) for pool in pool_sizes}
    markable = sorted((c for c in candidates if c.may_mark), key=lambda each: each.rank)
    hot = [each for each in markable if each.hot]
    granted = _within(cap, hot)
    granted |= _marks_to_keep(guard, hot, granted, pool_sizes)
    # Release the coolest nodes first, and hot nodes over the cap last.
    leaving = [each for each in markable if each.marked and each.name not in granted]
    leaving.sort(key=lambda each: (each.hot, each.severity, each.name))
    allowed = count_of(guard.max_releases, sum(each.marked for each in markable) + released)
    leaving = leaving[: max(0, max(1, allowed) - released)]
    used = Counter(each.pool for each in candidates if each.marked)
    free = {pool: limit - used[pool] for pool, limit in cap.items()}
    arriving = _within(free, [each for each in hot if not each.marked and each.name in granted])
    chosen = {each.name for each in markable if each.marked} | arriving
    chosen -= {each.name for each in leaving}
    return MarkDecision(
        marked=frozenset(chosen),
        limited={
            each.name: _why_limited(guard, hot=each.hot)
            for each in markable
            if each.hot is not (each.name in chosen)
        },
        capped=frozenset(each.pool for each in hot if each.name not in granted),
    )


def _marks_to_keep(
    guard: GuardRules,
    hot: Sequence[MarkCandidate],
    granted: Collection[str],
    pool_sizes: Mapping[str, int],
) -> set[str]:
    """Marked nodes above the cap that keep their mark.

    Nodes that are closed for a short time lower the cap. This alone must not release a mark, unless
    a hotter node waits for the place.
    """
    most = {pool: count_of(guard.max_marked, size) for pool, size in pool_sizes.items()}
    waiting = {each.pool for each in hot if each.name in granted and not each.marked}
    return _within(most, [each for each in hot if each.marked and each.pool not in waiting])


def _why_limited(guard: GuardRules, *, hot: bool) -> str:
    if hot:
        return Reason("max_marked", str(guard.max_marked))
    return Reason("max_releases", str(guard.max_releases))


def _within(free: Mapping[str, int], ranked: Sequence[MarkCandidate]) -> set[str]:
    """Names of the first ``ranked`` candidates, as many as are ``free`` in each pool."""
    taken: Counter[str] = Counter()
    found = set()
    for each in ranked:
        if taken[each.pool] < free[each.pool]:
            taken[each.pool] += 1
            found.add(each.name)
    return found


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A failed write of a node and its cause; as text ``node: cause``."""

    node: str
    cause: str
    again: bool = False
    """Whether the write failed in an earlier tick and waits for its retry."""

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """The due patches that are sent now, and those that wait."""

    patches: tuple[NodePatch, ...] = ()
    delayed: Mapping[str, str] = field(default_factory=dict)
    """Per node, why the write rate delays its patch."""
    refused: tuple[WriteFailure, ...] = ()
    """Earlier failures of the patches that wait for a retry."""


NO_WRITES: Final = WriteBatch()


class _Pause(NamedTuple):
    """A backoff of ``seconds``, until ``end``; ``failure`` is None if the write was not tried."""

    seconds: float
    end: float
    failure: WriteFailure | None


class WritePace:
    """The rate limit of node writes, and the backoff of failed ones. ``now`` is in seconds of a
    monotonic clock.
    """

    def __init__(self) -> None:
        self._left: float | None = None
        """Number of writes allowed now; negative if overdrawn."""
        self._at = 0.0
        self._pauses: dict[str, _Pause] = {}

    def choose(self, patches: Sequence[NodePatch], per_minute: int, now: float) -> WriteBatch:
        """Choose which of the due ``patches`` are sent now. New marks never wait for the rate, but
        count toward it: other patches wait longer when marks exceed it.
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
        """Start a backoff for the failed patches of the batch chosen at ``now``, and for those that
        were left ``untried`` because of them.
        """
        found: dict[str, WriteFailure | None] = {patch.node: None for patch in untried}
        found |= {failure.node: failure for failure in failures}
        for name, failure in found.items():
            before = self._pauses.get(name)
            seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, LONGEST_PAUSE)
            self._pauses[name] = _Pause(seconds, now + seconds, failure)

    def _refilled(self, per_minute: int, now: float) -> float:
        if self._left is None:
            return float(per_minute)  # the first pass may use a full minute
        passed = now - self._at
        # A late tick may use the rate that it missed, up to a minute.
        most = per_minute * min(max(CARRIED_OVER, passed), MINUTE) / MINUTE
        return min(max(1.0, most), self._left + passed * per_minute / MINUTE)
