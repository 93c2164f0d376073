"""What is counted of each pod that has a node and has not ended, by its uid: whatever an event says
of a pod takes the place of what was counted for it before, so that the sums cannot drift.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from dynsched.core.load.pods import PodRequestTotals


class Counted(msgspec.Struct, frozen=True, gc=False):
    """Of one pod. ``node`` is empty where requests are not wanted."""

    node: str = ""
    requests: PodRequestTotals = PodRequestTotals()
    has_order: bool = False


NOTHING: Final = Counted()
requests = lru_cache(maxsize=4096)(PodRequestTotals)
"""Many pods share what they request."""
node_name = lru_cache(maxsize=16_384)(str)
"""Likewise. With `sys.intern`, Python 3.12 keeps a name for good, and a pod may name any node."""


class PodAccount:
    """``requested``: by node, where it has a pod. Of each pod some 140 bytes, with requests 230."""

    def __init__(self) -> None:
        self._pods: dict[str, Counted] = {}
        self.requested: dict[str, PodRequestTotals] = {}
        self.with_order = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, uid: str, pod: Counted) -> None:
        """Count a pod, in the place of its former state."""
        self.drop(uid)
        self._pods[uid] = pod
        self._add(pod, 1)

    def drop(self, uid: str) -> None:
        """Count a pod no more; nothing where it was not counted."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(before, -1)

    def _add(self, pod: Counted, sign: int) -> None:
        self.with_order += sign * pod.has_order
        if not pod.node:
            return
        pods, cpu, memory = self.requested.get(pod.node, NOTHING.requests)
        if pods + sign:
            self.requested[pod.node] = PodRequestTotals(
                pods + sign, cpu + sign * pod.requests.cpu, memory + sign * pod.requests.memory
            )
        else:
            del self.requested[pod.node]
