"""What ``guard`` allows: which nodes may be marked, and how many marks may go at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dynsched.core.marks import MarkDecision
from dynsched.core.wording import Reason
from dynsched.rules.fields import IntOrPercent
from dynsched.rules.sections import GuardRules

INCUMBENT_BONUS: Final = 0.1
"""A marked node counts as this share of its threshold hotter than it is, so that two nodes of about
the same load do not swap the last place under the cap at every tick."""


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
