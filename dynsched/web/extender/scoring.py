"""One Snapshot, prepared for the scheduler's requests: refused nodes, and the load of every node.

Prepared once per tick, outside of the event loop; a request then costs a few look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from dynsched.core.extender import load_refusals
from dynsched.core.model import Node, Snapshot
from dynsched.core.pods import PodChange
from dynsched.core.score import (
    FreshPods,
    Scorer,
    WeightedProfile,
    node_loads,
    profile_name,
    weighted_profile,
)

_NOTHING: Final[Mapping[str, float]] = {}
_versions: Final = count(1)


class ProfileLoads:
    """Every node's expected load for one profile; pods that are bound or end since are counted as
    they come.

    ``version`` is another one, of all that ever were, whenever a load changed.
    """

    def __init__(self, name: str, snapshot: Snapshot, weighed: WeightedProfile) -> None:
        self.name = name
        self.scorer = Scorer(weighed.method)
        self._weighed = weighed
        self._uses = snapshot.uses
        self._known = node_loads(snapshot.nodes, weighed)
        self._fresh: dict[str, FreshPods] = {}
        self.loads: dict[str, int] = dict(self._known)
        self.version = next(_versions)

    def add(self, changes: Iterable[PodChange], nodes: Mapping[str, Node]) -> None:
        """Count these pods. A node of unknown load stays unknown."""
        self.version = next(_versions)
        for change in changes:
            name = change.pod.node
            known = self._known.get(name)
            if known is None:
                continue
            node = nodes.get(name)
            allocatable = node.allocatable if node is not None else _NOTHING
            fresh = self._fresh.get(name)
            if fresh is None:
                fresh = self._fresh[name] = FreshPods(self._weighed)
            fresh.count(change, self._uses, allocatable)
            self.loads[name] = fresh.add_to(known, allocatable)


class ScoringSnapshot:
    """What one Snapshot says. ``refused`` is by load alone; ``version`` as of ProfileLoads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = next(_versions)
        self.rules = snapshot.rule_set.extender
        self.stale_after = snapshot.rule_set.stale_after
        self.pod_changes = snapshot.pod_changes
        self.refused = load_refusals(snapshot)
        self._profiles = {
            name: ProfileLoads(name, snapshot, weighted_profile(snapshot.rule_set, name))
            for name in {"default", *self.rules.profiles}
        }

    def profile(self, scheduler: str) -> ProfileLoads:
        """The loads by which pods of this schedulerName are scored."""
        return self._profiles[profile_name(self.rules, scheduler)]

    def add(self, changes: Sequence[PodChange], nodes: Mapping[str, Node]) -> None:
        """Count these pods, for every profile."""
        for profile in self._profiles.values():
            profile.add(changes, nodes)
