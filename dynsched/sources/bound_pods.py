"""The source of the rule ``bind-burst``: how many pods each node took within the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynsched.core.bound import NONE, BoundPods
from dynsched.core.model import Node, QueryResult, Sample
from dynsched.core.rules import Rule


class BoundPodsSource:
    """Counts from memory. ``clock`` is the one by which ``bound`` counts; ``now`` the wall's."""

    def __init__(
        self,
        bound: BoundPods,
        nodes: Callable[[], Mapping[str, Node]],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._bound = bound
        self._nodes = nodes
        self._clock = clock
        self._now = now

    async def query(self, rule: Rule) -> QueryResult:  # noqa: ARG002 (there is one such rule)
        """One sample a node, by its name; none took less than no pod, so every node has one."""
        nodes = self._nodes()
        self._bound.follow(nodes)
        sums = self._bound.sums(self._clock())
        now = self._now()
        return QueryResult(
            tuple(Sample({"node": name}, float(sums.get(name, NONE).pods), now) for name in nodes)
        )
