"""Which nodes are marked under the guard.

The lanes of one *group* are the nodes of one cluster; ``suggest`` replays several settings, each in
a group of its own. Where no limit binds, the marks are the wanted ones, which is found for all
groups at once. Where one binds, the guard decides about the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.guard import INCUMBENT_BONUS, count_of, early_limit, kind_of, select
from dynsched.engine.model import Verdict
from dynsched.rules.sections import GuardRules
from dynsched.tools.backtest.world import World


class Marks:
    """The marks on all lanes. Mutable. ``groups``: how many times the nodes of ``world``."""

    def __init__(self, world: World, guard: GuardRules, groups: int = 1) -> None:
        self._world = world
        self._guard = guard
        self._shape = groups, len(world.nodes)
        self._kinds = [kind_of(node, guard) for node in world.nodes]
        self._eligible = np.tile(world.eligible, groups)
        group = np.repeat(np.arange(groups), len(world.nodes))
        self.pool: Ints = np.tile(world.pool, groups) + group * len(world.pools)
        self._kind: Ints = np.tile(world.kind, groups) + group * len(set(self._kinds))
        self.marked: Bools = np.zeros(len(group), np.bool_)
        self._early = self.marked
        self.caps: Ints = np.zeros(groups * len(world.pools), np.int64)
        self._early_limits: Ints = np.zeros(groups * len(set(self._kinds)), np.int64)
        self._may: Bools = self._eligible
        self._may_bind = True

    def set_present(self, present: Bools) -> None:
        """Which lanes' nodes are there from now on; the marks of the others are gone."""
        limit = self._guard.max_marked
        self._may = self._eligible & present
        self.marked &= present
        here = np.bincount(self.pool[self._may], minlength=len(self.caps))
        self.caps = np.array([count_of(limit, each) for each in here.tolist()], np.int64)
        here = np.bincount(self._kind[self._may], minlength=len(self._early_limits))
        self._early_limits = np.array([early_limit(limit, n) for n in here.tolist()], np.int64)
        # The nodes of all groups are the same.
        first = np.flatnonzero(self._may[: self._shape[1]]).tolist()
        self._sizes = Counter(self._kinds[place] for place in first)
        self._may_bind = True

    def choose(
        self, wants: Bools, hot: Bools, severity: Callable[[], Floats]
    ) -> tuple[Bools, Bools | None]:
        """Decide which lanes carry the mark from now on. Returns those, and the lanes that should
        carry it and do not, None where there are none. ``hot``: the wanted ones that are not
        early; ``severity``: asked for where nodes are ranked, as in `core.model.Verdict`.
        """
        wanted = wants & self._may
        early = wanted & ~hot
        # A mark that stays may have to go: its node is no longer hot, and its kind has no room.
        no_more_early = not (early & ~self._early).any()
        self._early = early
        if not self._may_bind and no_more_early and np.array_equal(wanted, self.marked):
            return self.marked, None
        new, short = wanted, None
        bound = self._bound(wanted, hot)
        if bound.any():
            excess = severity()
            new = np.where(np.repeat(bound, self._shape[1]), self.marked, wanted)
            for group in np.flatnonzero(bound & ~self._settled(wanted, hot, excess)):
                part = slice(group * self._shape[1], (group + 1) * self._shape[1])
                new[part] = self._selected(self.marked[part], wanted[part], hot[part], excess[part])
            short = wanted & ~new
        self._may_bind = bool(bound.any())
        self.marked = new
        return new, short

    def _bound(self, wanted: Bools, hot: Bools) -> Bools:
        """In which groups the marks cannot simply be the wanted ones."""
        groups = self._shape[0]
        # A mark that leaves holds its place until the next step.
        held = wanted | self.marked
        full = np.bincount(self.pool[held], minlength=len(self.caps)) > self.caps
        kinds = len(self._early_limits)
        crowded = np.bincount(self._kind[held], minlength=kinds) > self._early_limits
        crowded &= np.bincount(self._kind[wanted & ~hot], minlength=kinds) > 0
        leaving = (self.marked & ~wanted).reshape(self._shape).sum(axis=1)
        marked = self.marked.reshape(self._shape).sum(axis=1).tolist()
        allowed = [max(1, count_of(self._guard.max_releases, number)) for number in marked]
        over = full.reshape(groups, -1).any(axis=1) | crowded.reshape(groups, -1).any(axis=1)
        found: Bools = over | (leaving > allowed)
        return found

    def _settled(self, wanted: Bools, hot: Bools, severity: Floats) -> Bools:
        """In which groups no mark changes hands: all places under the cap are taken, by hot nodes,
        and no other node is hotter than one of these. Most often so while the cap binds. Where
        there are pools, that is not looked for.
        """
        if len(self._world.pools) != 1:
            return np.zeros(self._shape[0], np.bool_)
        marked, rank = self.marked, -severity
        # As the guard ranks them: of two alike the one that has the mark comes first.
        last = np.where(marked, rank - INCUMBENT_BONUS, -np.inf).reshape(self._shape).max(axis=1)
        waiting = wanted & hot & ~marked
        first = np.where(waiting, rank, np.inf).reshape(self._shape).min(axis=1)
        leaves = (marked & ~(wanted & hot)).reshape(self._shape).any(axis=1)
        full = marked.reshape(self._shape).sum(axis=1) == self.caps
        found: Bools = full & ~leaves & (first >= last)
        return found

    def _selected(self, marked: Bools, wanted: Bools, hot: Bools, severity: Floats) -> Bools:
        """The marks of one group, as the guard chooses them."""
        places = np.flatnonzero(wanted | marked)
        nodes = [self._world.nodes[place] for place in places.tolist()]
        told = zip(nodes, hot[places], severity[places], (wanted & ~hot)[places], strict=True)
        verdicts = {
            node.name: Verdict(node.name, bool(is_hot), None, float(excess), (), bool(early))
            for node, is_hot, excess, early in told
        }
        incumbents = {node.name for node, has in zip(nodes, marked[places], strict=True) if has}
        chosen = select(nodes, verdicts, incumbents, self._guard, sizes=self._sizes).marked
        found = np.zeros(len(marked), np.bool_)
        found[places] = [node.name in chosen for node in nodes]
        return found
