"""One Snapshot, prepared for the scheduler's requests: refused nodes, and the load of every node.

Prepared once per tick, outside of the event loop; a request then costs a few look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from dynsched.core.bound import Bound
from dynsched.core.extender import load_refusals
from dynsched.core.model import Node, Snapshot
from dynsched.core.score import Scorer, WeightedProfile, node_loads, profile_name, weighted_profile

_NOTHING: Final[Mapping[str, float]] = {}
_versions: Final = count(1)


class ProfileLoads:
    """Every node's load for one profile; just-bound pods are added as they come.

    ``version`` is another one, of all that ever were, whenever a load changed.
    """

    def __init__(self, name: str, snapshot: Snapshot, weighed: WeightedProfile) -> None:
        self.name = name
        self.scorer = Scorer(weighed.method)
        self._weighing = weighed
        self._measured = node_loads(snapshot.nodes, weighed)
        self.loads: dict[str, int] = dict(self._measured)
        self.version = next(_versions)

    def add(self, changed: Mapping[str, Bound], nodes: Mapping[str, Node]) -> None:
        """Take over what is bound to these nodes now. A node of unknown load stays unknown."""
        self.version = next(_versions)
        for name, bound in changed.items():
            measured = self._measured.get(name)
            if measured is None:
                continue
            node = nodes.get(name)
            allocatable = node.allocatable if node is not None else _NOTHING
            self.loads[name] = measured + self._weighing.added(bound, allocatable)


class ScoringSnapshot:
    """What one Snapshot says. ``refused`` is by load alone; ``version`` as of ProfileLoads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = next(_versions)
        self.rules = snapshot.rule_set.extender
        self.stale_after = snapshot.rule_set.stale_after
        self.refused = load_refusals(snapshot)
        self._profiles = {
            name: ProfileLoads(name, snapshot, weighted_profile(snapshot.rule_set, name))
            for name in {"default", *self.rules.profiles}
        }

    def profile(self, scheduler: str) -> ProfileLoads:
        """The loads by which pods of this schedulerName are scored."""
        return self._profiles[profile_name(self.rules, scheduler)]

    def add(self, changed: Mapping[str, Bound], nodes: Mapping[str, Node]) -> None:
        """Take over what is bound to these nodes now, for every profile."""
        for profile in self._profiles.values():
            profile.add(changed, nodes)
