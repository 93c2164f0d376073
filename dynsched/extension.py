"""The scheduler extender put together: who answers, who counts just-bound pods, who binds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from dynsched.core.bound import BoundPods
from dynsched.core.rules import RuleSet
from dynsched.kube.binding import Binder
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.pending import PendingPods
from dynsched.kube.pods import PodWatch
from dynsched.kube.stream import StreamingApi
from dynsched.plumbing.stopping import pause
from dynsched.sources.bound_pods import BoundPodsSource
from dynsched.web.extender.answers import Extender
from dynsched.web.extender.wire import Binding

_POLL: Final = 5.0
"""Seconds between two looks whether a reloaded rules file wants pods to be counted."""


class Extension:
    """``extender`` answers; ``source`` is that of the rule ``bind-burst``; ``run`` counts pods.
    ``binder`` None: `/bind` is off.

    Pods are watched only when the rules ask for it: it needs rights that marking does not.
    """

    def __init__(
        self,
        api: StreamingApi,
        pending_api: StreamingApi,
        rule_set: Callable[[], RuleSet],
        cluster: NodeCluster,
        *,
        binder: Binder | None,
    ) -> None:
        self._api = api
        self._binder = binder
        self._rule_set = rule_set
        self._bound = BoundPods()
        self._watch: PodWatch | None = None
        self._pending = PendingPods(pending_api)
        burst = rule_set().guard.bind_burst
        self._burst = BoundPods() if burst is None else BoundPods(burst.window)
        self.extender = Extender(
            nodes=cluster.nodes,
            synced=lambda: cluster.synced,
            rules=lambda: rule_set().extender,
            clock=time.monotonic,
            bound=self._bound,
            waits=self._waits,
            bind=None if binder is None else self._bind,
            served=lambda: _has_extender(rule_set()),
        )
        self.source = BoundPodsSource(
            self._burst, cluster.nodes, clock=time.monotonic, now=time.time
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Count just-bound pods until ``stop`` is set, once the rules ask for it."""
        while not stop.is_set():
            if _wanted(self._rule_set()):
                self._watch = PodWatch(self._api, [self._bound, self._burst])
                await asyncio.gather(self._watch.run(stop), self._pending.run(stop))
                return
            await pause(stop, _POLL)

    def _waits(self, uid: str) -> bool:
        """Whether a pod waits for a node, and the watch of pods works and will report its node."""
        return self._watch is not None and self._watch.error is None and uid in self._pending

    async def _bind(self, binding: Binding, wanted: Callable[[], bool]) -> None:
        assert self._binder is not None  # noqa: S101 (otherwise this method is not passed on)
        await self._binder.bind(
            namespace=binding.namespace,
            pod=binding.pod,
            uid=binding.uid,
            node=binding.node,
            wanted=wanted,
        )


def _wanted(rule_set: RuleSet) -> bool:
    return _has_extender(rule_set) or rule_set.guard.bind_burst is not None


def _has_extender(rule_set: RuleSet) -> bool:
    return "extender" in rule_set.model_fields_set
