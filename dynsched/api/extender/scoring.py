"""One Snapshot, prepared for the scheduler's requests once per tick, outside of the event loop:
65,000 nodes take some tenths of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dynsched.api.extender.names import NodeNumbers, Numbers
from dynsched.engine.load.expected import BELOW_MEAN
from dynsched.engine.model import Node
from dynsched.engine.placing.score import (
    TENTHS,
    UNKNOWN,
    FreshPods,
    Loads,
    WeightedProfile,
    load_refusals,
    node_loads,
    weighted_profile,
    without_firing,
)
from dynsched.engine.pod_values import PodChange
from dynsched.engine.snapshot import Snapshot


class ProfileLoads:
    """Every node's expected load for one profile; pods that are bound or end since are counted as
    they come. Those that end take none far below the mean of all: how much of it is a guess
    is worked out with the next Snapshot.
    """

    def __init__(self, snapshot: Snapshot, weighed: WeightedProfile, nodes: NodeNumbers) -> None:
        self.method = weighed.method
        self._nodes = nodes
        self._weighed = weighed
        self._uses = snapshot.uses
        loads = node_loads(snapshot.nodes, weighed)
        mean = sum(map(without_firing, loads.values())) / max(1, len(loads))
        self._least = max(0, round(mean - TENTHS * BELOW_MEAN))
        values = [loads.get(name, UNKNOWN) for name in nodes.names]
        self._known = np.array([*values, UNKNOWN], np.int16)
        self._fresh: dict[str, FreshPods] = {}
        self._loads = self._known.copy()

    def of(self, numbers: Numbers) -> Loads:
        """The loads of the nodes of these numbers; of a number beyond all nodes it is UNKNOWN."""
        return self._loads[numbers]

    def add(self, changes: Iterable[PodChange], nodes: Mapping[str, Node]) -> None:
        """Count these pods. A node of unknown load stays unknown."""
        for change in changes:
            name = change.pod.node
            number = self._nodes.number.get(name)
            if number is None or self._known[number] == UNKNOWN:
                continue
            allocatable = nodes[name].allocatable if name in nodes else {}
            fresh = self._fresh.setdefault(name, FreshPods(self._weighed))
            fresh.count(change, self._uses, allocatable)
            self._loads[number] = fresh.add_to(int(self._known[number]), allocatable, self._least)


class ScoringSnapshot:
    """What one Snapshot says. ``refused`` is by load alone. ``before``: the one before it, whose
    ``numbers`` serve again where the nodes are the same.
    """

    def __init__(self, snapshot: Snapshot, before: ScoringSnapshot | None = None) -> None:
        self.rules = snapshot.rule_set.extender
        self.stale_after = snapshot.rule_set.stale_after
        self.pod_changes = snapshot.pods.sequence
        self.numbers: NodeNumbers
        if before is None or before.numbers.number.keys() != snapshot.nodes.keys():
            self.numbers = NodeNumbers(snapshot.nodes)
        else:
            self.numbers = before.numbers
        self.refused = load_refusals(snapshot)
        self.is_refused = self.numbers.flags(self.refused)
        self._profiles = {
            name: ProfileLoads(snapshot, weighted_profile(snapshot.rule_set, name), self.numbers)
            for name in {"default", *self.rules.profiles}
        }

    def profile(self, scheduler: str) -> ProfileLoads:
        return self._profiles.get(scheduler, self._profiles["default"])

    def add(self, changes: Sequence[PodChange], nodes: Mapping[str, Node]) -> None:
        for profile in self._profiles.values():
            profile.add(changes, nodes)
