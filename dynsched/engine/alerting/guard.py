"""What ``guard`` of the rules allows: which of the nodes to be marked may be, how many marks may go
in one tick, and how many writes a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.model import Action, NodePatch, WriteFailure
from dynsched.engine.nodes.inventory import NodeColumns
from dynsched.engine.wording import Reason
from dynsched.rules.fields import Limit

INCUMBENT_BONUS: Final = 0.1
"""A marked node counts as this share of its threshold hotter than it is, so that two nodes of
about the same load do not swap the last place under the cap at every tick."""
BURST: Final = 10.0
"""Seconds: so much of ``max_writes_per_minute`` may be used at once; in the first pass, all."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a write that was refused is tried again: twice as long after each refusal."""
UNMARKED: Final = Reason("mark_none")
LEFT: Final = Reason("left")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which nodes carry the mark from now on, as far as the guard decides."""

    marked: frozenset[str]
    withheld: Mapping[str, str]
    """Why others, contrary to their verdict, are not marked yet or still marked."""
    capped: frozenset[str]
    """The pools in which ``max_marked`` binds."""


class MarkCandidates(NamedTuple):
    """Nodes that may be marked, and carry the mark or should; of equal ones the first is taken."""

    kind: Ints
    hot: Bools
    marked: Bools


def count_of(limit: Limit, total: int) -> int:
    """How many of ``total`` nodes a limit allows; a share is rounded down."""
    # The epsilon keeps 0.29 * 100 from being 28.
    return int(total * limit.amount + 1e-9) if limit.is_share else min(int(limit.amount), total)


class MarkCaps(NamedTuple):
    """How many nodes may carry marks."""

    pools: tuple[str, ...]
    pool: Ints
    """Of each kind, as its index in ``pools``."""
    by_pool: Ints

    @classmethod
    def of(cls, columns: NodeColumns, limit: Limit) -> MarkCaps:
        """Of all nodes that may be marked; ``limit`` is ``guard.max_marked``."""
        kinds = columns.kinds
        sizes = np.bincount(columns.kind[columns.may_mark], minlength=len(kinds))
        pools = {name: number for number, name in enumerate(sorted({each.pool for each in kinds}))}
        pool = np.array([pools[each.pool] for each in kinds], np.int64)
        totals = np.bincount(pool, sizes, len(pools)).astype(np.int64)
        by_pool = [count_of(limit, total) for total in totals.tolist()]
        return cls(tuple(pools), pool, np.array(by_pool, np.int64))

    def choose(
        self,
        candidates: MarkCandidates,
        severity: Callable[[], Floats],
        max_releases: Limit,
        outgoing: Ints | int = 0,
        released: int = 0,
    ) -> Bools:
        """Which candidates carry the mark from now on: ``max_releases`` over all, then
        ``max_marked`` in every pool, hottest first.

        ``severity``: of the candidates, for when not all fit. ``outgoing``: by pool, how many nodes
        carry the mark that may not (any more); ``released``: how many marks went in this tick
        before. Marks that are to go count under the cap until they are seen to be gone: a write may
        fail, and they are made in no order.
        """
        hot, marked, pool = candidates.hot, candidates.marked, self.pool[candidates.kind]
        allowed = count_of(max_releases, int(marked.sum()) + released)
        allowed = max(0, max(1, allowed) - released)
        crowded = np.bincount(pool, minlength=len(self.pools)) + outgoing > self.by_pool
        if not crowded.any() and np.count_nonzero(marked & ~hot) <= allowed:
            return hot
        degree = severity()
        ranked = np.lexsort((~marked, -degree - INCUMBENT_BONUS * marked))
        ranked = ranked[hot[ranked]]
        granted = _fitting(ranked, pool, self.by_pool)
        # The coolest go first; those that should be marked but are over the cap go last.
        leaving = np.lexsort((degree, hot))
        leaving = leaving[(marked & ~granted)[leaving]][:allowed]
        arriving = ranked[(granted & ~marked)[ranked]]
        free = self.by_pool - outgoing - np.bincount(pool[marked], minlength=len(self.pools))
        chosen = marked | _fitting(arriving, pool, free)
        chosen[leaving] = False
        return chosen


def _fitting(ranked: Ints, pool: Ints, free: Ints) -> Bools:
    """Of the candidates ``ranked``, as many as are ``free`` in their ``pool``."""
    found = np.zeros(len(pool), np.bool_)
    found[ranked[_count_before(pool[ranked]) < free[pool[ranked]]]] = True
    return found


def _count_before(groups: Ints) -> Ints:
    """For each element, how many equal ones stand before it."""
    order = np.argsort(groups, kind="stable")
    ordered, found = groups[order], np.empty_like(groups)
    found[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which of the patches that are due are sent now."""

    patches: tuple[NodePatch, ...]
    delayed: Mapping[str, str] = field(default_factory=dict)
    """Why others wait."""
    refused: tuple[WriteFailure, ...] = ()
    """What the API server said of those that wait because it refused them."""


class _Pause(NamedTuple):
    """``seconds`` long, until ``end``; ``failure``: why, None where it was not even tried."""

    seconds: float
    end: float
    failure: WriteFailure | None


class Allowance:
    """What is left of ``guard.max_writes_per_minute``. ``now`` is in seconds of a clock that never
    steps.
    """

    def __init__(self) -> None:
        self.left = 0.0
        self._at: float | None = None

    def refill(self, per_minute: int, now: float) -> None:
        """Add what the time since the last call allows."""
        burst = max(1.0, per_minute * BURST / 60)
        if self._at is None:
            self.left = float(per_minute)  # at the start: what a single pass would write
        else:
            self.left = min(burst, self.left + (now - self._at) * per_minute / 60)
        self._at = now


class WriteLimiter:
    """What is left of the bound, and the nodes whose writes were refused; ``now`` as there."""

    def __init__(self) -> None:
        self._allowance = Allowance()
        self._pauses: dict[str, _Pause] = {}

    def choose(self, patches: Sequence[NodePatch], per_minute: int, now: float) -> Chosen:
        """Of the ``patches`` that are due, in their order. A mark never waits for the bound, but
        counts: releases make up for what is sent beyond it.
        """
        due = {patch.node for patch in patches}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in due}
        pausing = {name: pause for name, pause in self._pauses.items() if now < pause.end}
        ready = [patch for patch in patches if patch.node not in pausing]
        urgent = [patch for patch in ready if patch.action is not Action.RELEASE]
        releases = [patch for patch in ready if patch.action is Action.RELEASE]
        self._allowance.refill(per_minute, now)
        self._allowance.left -= len(urgent)
        room = max(0, int(self._allowance.left))
        self._allowance.left -= len(releases[:room])
        why = Reason("max_writes", str(per_minute))
        return Chosen(
            patches=(*urgent, *releases[:room]),
            delayed={patch.node: why for patch in releases[room:]},
            refused=tuple(replace(p.failure, again=True) for p in pausing.values() if p.failure),
        )

    def refused(
        self, failures: Iterable[WriteFailure], untried: Iterable[NodePatch], now: float
    ) -> None:
        """Of what was chosen at ``now``, this was refused, and that was not tried for it."""
        found: dict[str, WriteFailure | None] = {patch.node: None for patch in untried}
        found |= {failure.node: failure for failure in failures}
        for name, failure in found.items():
            before = self._pauses.get(name)
            seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, LONGEST_PAUSE)
            self._pauses[name] = _Pause(seconds, now + seconds, failure)
