"""The source of the rule ``bind-burst``: how many pods each node took within the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynsched.engine.model import Node, QueryResult, Sample
from dynsched.engine.recent import RecentPods
from dynsched.rules.rule_set import Rule


class BoundPodsSource:
    """Counts from memory. ``window`` gives the seconds of ``guard.bind_burst``; ``clock`` is the
    one by which ``pods`` counts; ``now`` the wall's.
    """

    def __init__(
        self,
        pods: RecentPods,
        nodes: Callable[[], Mapping[str, Node]],
        *,
        window: Callable[[], float],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._window = window
        self._clock = clock
        self._now = now

    async def query(self, rule: Rule) -> QueryResult:  # noqa: ARG002 (there is one such rule)
        """One sample a node, by its name; none took less than no pod, so every node has one."""
        nodes = self._nodes()
        self._pods.follow(nodes)
        counts = self._pods.counts(self._window(), self._clock())
        now = self._now()
        return QueryResult(
            tuple(Sample({"node": name}, float(counts[name]), now) for name in nodes)
        )
