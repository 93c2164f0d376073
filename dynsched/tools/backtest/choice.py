"""Which nodes are marked under the guard: `engine.guard.select` on arrays.

The lanes of one *group* are the nodes of one cluster; ``suggest`` replays several settings, each in
a group of its own. Where no limit binds, the marks are the wanted ones, for all groups at once.
Where one binds, the group is decided as the core does it: ranked, cut, and released in turn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.guard import EARLY_INCUMBENT_BONUS, INCUMBENT_BONUS, count_of, early_limit
from dynsched.rules.rule_set import GuardRules
from dynsched.tools.backtest.world import World


class Marks:
    """The marks on all lanes. Mutable. ``groups``: how many times the nodes of ``world``."""

    def __init__(self, world: World, guard: GuardRules, groups: int = 1) -> None:
        nodes, pools = len(world.nodes), len(world.pools)
        self._guard = guard
        self._nodes = nodes
        self._groups = groups
        self._pools = pools
        self._eligible = np.tile(world.eligible, groups)
        offsets = np.repeat(np.arange(groups), nodes)
        self.pool: Ints = np.tile(world.pool, groups) + offsets * max(1, pools)
        kinds = int(world.kind.max(initial=-1)) + 1
        self._kind: Ints = np.tile(world.kind, groups) + offsets * kinds
        self._limits: Ints = np.zeros(groups * kinds, np.int64)
        self._allowed: Ints = np.array(
            [max(1, count_of(guard.max_releases, number)) for number in range(nodes + 1)], np.int64
        )
        self.marked: Bools = np.zeros(nodes * groups, np.bool_)
        self._early = self.marked
        self.caps: Ints = np.zeros(groups * pools, np.int64)
        self._may: Bools = self._eligible
        self._may_differ = True

    def set_present(self, present: Bools) -> None:
        """Which lanes' nodes are there from now on; the marks of the others are gone."""
        self._may = self._eligible & present
        self.marked &= present
        count = np.bincount(self.pool[self._may], minlength=len(self.caps))
        self.caps = np.array(
            [count_of(self._guard.max_marked, int(number)) for number in count], np.int64
        )
        count = np.bincount(self._kind[self._may], minlength=len(self._limits))
        self._limits = np.array(
            [early_limit(self._guard.max_marked, int(number)) for number in count], np.int64
        )
        self._may_differ = True

    def choose(
        self, wants: Bools, hot: Bools, severity: Callable[[], Floats]
    ) -> tuple[Bools, Bools | None]:
        """Decide which lanes carry the mark from now on. Returns those, and the lanes that should
        carry it and do not, None where there are none. ``hot``: the wanted ones that are not
        early; ``severity``: asked for where nodes are ranked, as in `engine.model.Verdict`.
        """
        wanted = wants & self._may
        changed, early = wanted ^ self.marked, wanted & ~hot
        # A mark that stays may have to go: its node is no longer hot, and its kind has no room.
        is_same = not changed.any() and not (early & ~self._early).any()
        self._early = early
        if is_same and not self._may_differ:
            return self.marked, None
        bound = self._bound(wanted, early, changed)
        new, short = wanted, None
        if bound.any():
            excess = severity()
            new = wanted.copy()
            settled = bound & self._settled(wanted, hot, excess)
            if settled.any():
                stays = np.repeat(settled, self._nodes)
                new[stays] = self.marked[stays]
            for group in np.flatnonzero(bound & ~settled):
                part = slice(group * self._nodes, (group + 1) * self._nodes)
                new[part] = self._ranked(part, wanted, hot, excess)
            short = wanted & ~new
        # What a limit kept from changing is looked at again in the next step.
        self._may_differ = bool(bound.any())
        self.marked = new
        return new, short

    def _bound(self, wanted: Bools, early: Bools, changed: Bools) -> Bools:
        """In which groups the marks cannot simply be the wanted ones."""
        size = len(self.caps)
        arriving = np.bincount(self.pool[changed & wanted], minlength=size)
        leaving = np.bincount(self.pool[changed & self.marked], minlength=size)
        here = np.bincount(self.pool[self.marked], minlength=size)
        over_cap = (here + arriving > self.caps) | (here + arriving - leaving > self.caps)
        shape = (self._groups, self._pools)
        allowed = self._allowed[here.reshape(shape).sum(axis=1)]
        too_many = leaving.reshape(shape).sum(axis=1) > allowed
        # A mark that leaves holds its place until the next step, but that only matters to a pool
        # in which something arrives.
        over = (over_cap & ((arriving > 0) | (here + arriving - leaving > self.caps))).reshape(
            shape
        )
        limits = len(self._limits)
        marked = np.bincount(self._kind[wanted | self.marked], minlength=limits)
        crowded = (marked > self._limits) & (np.bincount(self._kind[early], minlength=limits) > 0)
        too_early = crowded.reshape(self._groups, -1).any(axis=1)
        found: Bools = over.any(axis=1) | too_many | too_early
        return found

    def _settled(self, wanted: Bools, hot: Bools, severity: Floats) -> Bools:
        """In which groups no mark changes hands: all places under the cap are taken, by hot nodes,
        and no other node is hotter than one of these. Most often so while the cap binds. Where
        there are pools, that is not looked for.
        """
        if self._pools != 1:
            return np.zeros(self._groups, np.bool_)
        shape = (self._groups, self._nodes)
        marked, rank = self.marked, -severity
        waiting = wanted & hot & ~marked
        # As in `_ranked`: the lowest comes first, and of two alike the one that has the mark.
        last = np.where(marked, rank - INCUMBENT_BONUS, -np.inf).reshape(shape).max(axis=1)
        first = np.where(waiting, rank, np.inf).reshape(shape).min(axis=1)
        leaves = (marked & ~(wanted & hot)).reshape(shape).any(axis=1)
        full = marked.reshape(shape).sum(axis=1) == self.caps
        found: Bools = full & ~leaves & (first >= last)
        return found

    def _ranked(self, part: slice, wanted: Bools, hot: Bools, severity: Floats) -> Bools:
        """The marks of one group, as `engine.guard.select` chooses them."""
        wants, is_hot, excess = wanted[part], hot[part], severity[part]
        marked, pool = self.marked[part], self.pool[part]
        granted = np.zeros(len(wants), np.bool_)
        order: dict[int, Ints] = {}
        none = np.zeros_like(self._limits)
        numbers = np.unique(pool[wants]).tolist() if self._pools > 1 else [int(pool[0])]
        for number in numbers:
            names = np.flatnonzero(wants & (pool == number))
            bonus = np.where(is_hot[names], INCUMBENT_BONUS, EARLY_INCUMBENT_BONUS)
            is_new = ~marked[names]
            rank = -excess[names] - np.where(is_new, 0.0, bonus)
            sorted_names = names[np.lexsort((names, is_new, rank, ~is_hot[names]))]
            order[number] = self._fitting(part, sorted_names, is_hot, self.caps[number], none)
            granted[order[number]] = True
        leaving = np.flatnonzero(marked & ~granted)
        leaving = leaving[np.lexsort((leaving, excess[leaving], wants[leaving]))]
        result: Bools = marked & granted
        result[leaving[self._allowed[int(marked.sum())] :]] = True
        here = np.bincount(pool[marked], minlength=len(self.caps))
        used = np.bincount(self._kind[part][marked], minlength=len(self._limits))
        for number, names in order.items():
            arriving = names[~marked[names]]
            free = self.caps[number] - here[number]
            result[self._fitting(part, arriving, is_hot, free, used)] = True
        return result

    def _fitting(self, part: slice, ranked: Ints, hot: Bools, free: int, used: Ints) -> Ints:
        """Of ranked nodes of one pool, as many as are ``free`` there, and early ones only below the
        limit of their kind, of which ``used`` are marked.
        """
        kind = self._kind[part][ranked]
        before = np.zeros(len(ranked), np.int64)
        for number in np.unique(kind):
            of_kind = kind == number
            before[of_kind] = used[number] + np.arange(np.count_nonzero(of_kind))
        fits = ranked[hot[ranked] | (before < self._limits[kind])]
        return fits[: max(0, int(free))]
