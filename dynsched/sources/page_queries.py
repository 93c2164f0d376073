"""The queries that only the page needs, while one is open. Their ``max by`` is there because
kube-state-metrics may run twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dynsched.core.load.pods import AboveRequest
from dynsched.core.nodes import Node
from dynsched.core.samples import Sample
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.pod_use import EVERY_OF_MANY as EVERY
from dynsched.sources.pod_use import RESOURCES, of_pod
from dynsched.sources.prometheus import PrometheusSource
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import pause, run_until_stopped

logger = logging.getLogger(__name__)

_MAX_PERCENT: Final = 1000.0
HOTTEST: Final = 100
"""The number of nodes whose pods are queried."""
_POLL: Final = 2.0
"""Seconds between two checks whether a page is open."""
MAX_PODS: Final = 5
"""Pods of each node, for each resource."""


class PageState(Protocol):
    """Where the answers go: `PageFacts`."""

    requested: Mapping[str, Mapping[str, int]]
    above: Mapping[str, Sequence[AboveRequest]] | None

    @property
    def is_looked_at(self) -> bool:
        """Whether anybody has the page open."""

    def hottest(self, most: int) -> list[str]:
        """The names of at most ``most`` nodes, the worst first."""


@dataclass(eq=False)
class PageQueries:
    """Hands the answers to ``page``; where a query fails, the last answer stays."""

    prometheus: PrometheusSource
    page: PageState
    rule_set: Callable[[], RuleSet]
    nodes: Callable[[], Mapping[str, Node]]
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._logged = LoggedKinds()
        self._due = -math.inf

    async def run(self, stop: asyncio.Event) -> None:
        """Query again and again while the page is looked at, until ``stop`` is set."""
        while not stop.is_set():
            if self.page.is_looked_at:
                await run_until_stopped(stop, self.query())
            await pause(stop, _POLL)

    async def query(self) -> None:
        """Query all that is due. Never raises."""
        try:
            if self.monotonic() >= self._due and (names := self.page.hottest(HOTTEST)):
                self._due = self.monotonic() + EVERY
                await self._query_requested()
                await self._query_above(names)
        except Exception:
            # Nothing depends on it, so that a defect here must not end the process.
            logger.exception("what the page shows could not be queried")

    async def _query_requested(self) -> None:
        rules = self.rule_set().rules
        resources = sorted(
            {rule.resource for rule in rules if rule.resource and rule.higher_is_worse}
        )
        found: dict[str, Mapping[str, int]] = {}
        nodes = self.nodes()
        for resource in resources:
            samples = await self._samples(f"requests of {resource}", requested(resource))
            if samples is None and resource in self.page.requested:
                found[resource] = self.page.requested[resource]
            elif samples:
                found[resource] = _percent(samples, resource, nodes)
        self.page.requested = found

    async def _query_above(self, names: Sequence[str]) -> None:
        found: dict[str, list[AboveRequest]] = {name: [] for name in names}
        is_known = False
        for resource in RESOURCES:
            what = f"pods above their requests of {resource}"
            samples = await self._samples(what, above(resource, names))
            if samples is None:
                return
            is_known = is_known or bool(samples)
            for sample in samples:
                of_node = found.get(sample.labels.get("node", ""))
                if of_node is not None and math.isfinite(sample.value):
                    pod = f"{sample.labels.get('namespace', '')}/{sample.labels.get('pod', '')}"
                    of_node.append(AboveRequest(pod, resource, sample.value))
        for of_node in found.values():
            of_node.sort(key=lambda pod: (pod.resource, -pod.above))
        self.page.above = found if is_known else None

    async def _samples(self, what: str, expr: str) -> Sequence[Sample] | None:
        """None where the query failed."""
        answer = await self.prometheus.query_expr(expr)
        if answer.error is None:
            self._logged.forget(what)
            return answer.samples
        if self._logged.is_new(what, answer.error):
            logger.info("the page lacks %s: %s", what, answer.error)
        return None


def _percent(samples: Iterable[Sample], resource: str, nodes: Mapping[str, Node]) -> dict[str, int]:
    """By node, of allocatable. Whole numbers and the names of known nodes take little memory."""
    found = {}
    for sample in samples:
        node = nodes.get(sample.labels.get("node", ""))
        capacity = 0.0 if node is None else node.allocatable.get(resource, 0.0)
        if node is not None and capacity > 0 and math.isfinite(sample.value):
            found[node.name] = round(min(100 * sample.value / capacity, _MAX_PERCENT))
    return found


def requested(resource: str) -> str:
    """By node, of pods that have not ended; cores or bytes."""
    return (
        f"sum by (node) ({_requests(resource, 'namespace, pod, uid, container, node')} "
        "unless on (namespace, pod, uid) "
        '(kube_pod_status_phase{phase=~"Succeeded|Failed"} == 1))'
    )


def above(resource: str, nodes: Sequence[str]) -> str:
    """By node, namespace and pod: the use beyond the request, of the pods with the most of it.
    A pod without a request counts with all of its use. A sample without labels: no pod is above
    its request. No sample: nothing is known.
    """
    on_nodes = f',node=~"{"|".join(name.replace(".", "[.]") for name in nodes)}"'
    by_pod = "namespace, pod, node"
    requests = _requests(resource, f"{by_pod}, container", on_nodes)
    pods = f"max by ({by_pod}) (kube_pod_info{{{on_nodes[1:]}}})"
    least = f"(sum by ({by_pod}) ({requests}) or on ({by_pod}) 0 * {pods})"
    more = f"{of_pod(resource)} - on (namespace, pod) group_right () {least}"
    known = "count(kube_pod_info) and on () count(container_cpu_usage_seconds_total)"
    return f"topk by (node) ({MAX_PODS}, ({more}) > 0) or on () 0 * ({known})"


def _requests(resource: str, labels: str, selector: str = ',node!=""') -> str:
    """Of main containers and sidecars. Other init containers, of which the scheduler counts the
    largest where it is more than all of these, and the pod's overhead are not in it.
    """
    selected = f'{{resource="{resource}"{selector}}}'
    init = f"kube_pod_init_container_resource_requests{selected}"
    sidecars = 'kube_pod_init_container_info{restart_policy="Always"}'
    kept = f"{init} and on (namespace, pod, uid, container) {sidecars}"
    return f"max by ({labels}) ((kube_pod_container_resource_requests{selected} or ({kept})))"
