"""Answers the scheduler's requests, bytes in and bytes out. Only `/bind` calls the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Raw

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod
from dynsched.core.load.recent import RecentPods
from dynsched.core.nodes import Node
from dynsched.features.extender import wire
from dynsched.features.extender.scoring import (
    NEUTRAL,
    Scoring,
    break_ties,
    missing_label,
    scores_by_load,
)
from dynsched.rules.sections import ExtenderRules
from dynsched.util.errors import ClusterError
from dynsched.util.logs import quiet_logger

logger = quiet_logger(__name__)

Bind = Callable[..., Awaitable[None]]
"""Binds a pod to a node, like `bind_pod`. Raises ClusterError with one line if that fails."""

Body = bytes | bytearray

_BIND_OFF: Final = (
    "/bind is off: start dynsched with --bind, or remove bindVerb from the scheduler's "
    "configuration"
)


@dataclass(kw_only=True)
class Extender:
    """Answers from the last scoring.

    ``rules`` returns those in force. Times in ``bound`` are of ``clock`` too. ``watches_pods``:
    whether a watch reports bound pods. Without it no pod is assumed to be bound, because nothing
    would correct a wrong assumption.
    """

    nodes: Callable[[], Mapping[str, Node]]
    synced: Callable[[], bool]
    rules: Callable[[], ExtenderRules]
    clock: Callable[[], float]
    bound: RecentPods = field(default_factory=RecentPods)
    watches_pods: Callable[[], bool] = lambda: True
    bind_pod: Bind | None = None
    _scoring: Scoring | None = field(default=None, init=False)
    _scored_at: float = field(default=0.0, init=False)
    _counted: int = field(default=0, init=False)
    """The number of the last change of ``bound`` that the loads include."""

    async def prepare(self, evaluation: Evaluation, pods: KnownPods, now: float) -> None:
        """Answer from this evaluation from now on. A thread prepares it, so that HTTP requests do
        not wait. ``now`` is in Unix seconds.
        """
        try:
            self.use(await asyncio.to_thread(Scoring, evaluation, pods, now))
        except Exception:
            logger.exception("the extender goes on with its previous scores")

    def use(self, scoring: Scoring) -> None:
        """Answer from ``scoring`` from now on."""
        self.bound.follow(self.nodes())
        if self._scoring is not None:  # later changes perhaps do not count as placed yet
            self.bound.forget_changes(self._scoring.pod_changes)
        self._counted = scoring.pod_changes
        self._scoring, self._scored_at = scoring, self.clock()

    def filter(self, body: Body) -> bytes:
        """ExtenderArgs -> ExtenderFilterResult. Like all verbs, raises WireError for a bad body."""
        candidates, key = wire.read_args(body), self.rules().require_label
        if candidates.names is None:
            return self._filter_nodes(candidates.nodes, key)
        if key is not None and not self.synced():
            return wire.filter_answer(error="dynsched does not know the nodes' labels yet")
        return self._filter_names(candidates.names, key)

    def prioritize(self, body: Body) -> bytes:
        """ExtenderArgs -> HostPriorityList."""
        candidates = wire.read_args(body)
        names = candidates.names
        if names is None:
            names = [name for name, _ in wire.read_nodes(candidates.nodes, None)[1]]
        return wire.prioritize_answer(names, self._scores(names, candidates))

    def preempt(self, body: Body) -> bytes:
        """ExtenderPreemptionArgs -> ExtenderPreemptionResult."""
        refused, key = self._refused(), self.rules().require_label
        nodes = self.nodes() if key is not None else {}
        return wire.preempt_answer(
            {
                name: victims
                for name, victims in wire.read_preemption(body).items()
                if name not in refused and (name not in nodes or key in nodes[name].labels)
            }
        )

    async def bind(self, body: Body) -> bytes:
        """ExtenderBindingArgs -> ExtenderBindingResult."""
        binding = wire.read_binding(body)
        if self.bind_pod is None:
            return wire.error_answer(_BIND_OFF)
        try:
            await self.bind_pod(**msgspec.structs.asdict(binding))
        except ClusterError as error:
            return wire.error_answer(str(error))
        return wire.error_answer("")

    def _fresh(self) -> Scoring | None:
        """The last scoring; None before the first tick, and if the scoring is too old."""
        scoring = self._scoring
        if scoring is None or self.clock() - self._scored_at > scoring.stale_after:
            return None
        return scoring

    def _refused(self) -> Mapping[str, str]:
        scoring = self._fresh()
        return {} if scoring is None else scoring.refused

    def _filter_names(self, names: Sequence[str], key: str | None) -> bytes:
        refused, failed = self._refused(), dict[str, str]()
        unresolvable = {name: refused[name] for name in names if name in refused}
        if key is not None:
            nodes = self.nodes()
            for name in names:
                if name not in nodes:
                    failed[name] = f"node is not known, nor whether it carries the label {key}"
                elif key not in nodes[name].labels:
                    unresolvable[name] = missing_label(key)
        passed = [name for name in names if name not in unresolvable and name not in failed]
        return wire.filter_answer(names=passed, failed=failed, unresolvable=unresolvable)

    def _filter_nodes(self, raw: Raw, key: str | None) -> bytes:
        """Filter whole nodes. Their own labels count; those that pass are returned unchanged."""
        refused, (nodes, heads) = self._refused(), wire.read_nodes(raw, key)
        unresolvable = {
            name: refused[name] if is_labelled else missing_label(key or "")
            for name, is_labelled in heads
            if name in refused or not is_labelled
        }
        nodes.items = [
            item
            for (name, _), item in zip(heads, nodes.items or (), strict=True)
            if name not in unresolvable
        ]
        return wire.filter_answer(nodes=nodes, unresolvable=unresolvable)

    def _scores(self, names: Sequence[str], candidates: wire.Candidates) -> list[int]:
        scoring = self._fresh()
        if scoring is None:
            return [NEUTRAL] * len(names)
        changes = self.bound.changes_after(self._counted)
        if changes:
            scoring.add(changes, self.nodes())
            self._counted = self.bound.sequence
        profile = scoring.profile(candidates.scheduler)
        loads = profile.of(names)
        scores = scores_by_load(loads, profile.method)
        best = break_ties(scores, loads)
        if best is not None and candidates.uid and self.watches_pods():
            self.bound.add(BoundPod(candidates.uid, names[best], assumed=True), self.clock())
        return list(map(scores.__getitem__, loads))
