"""Samples from metrics-server: usage of cpu or memory, in percent of the node's allocatable."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dynsched.core.nodes import Node
from dynsched.core.samples import NodeUsage, QueryResult, Sample
from dynsched.core.wording import some
from dynsched.rules.rule_set import Rule
from dynsched.util.errors import ClusterError

Fetch = Callable[[], Awaitable[Sequence[NodeUsage]]]
"""Lists the NodeMetrics once. Raises ClusterError with a one-line message."""

TIMEOUT: Final = 8.0
"""Seconds. Less than the timeout of a call to the API server, so that the error names
metrics-server.
"""
_IS_IT_UP: Final = "is it up? look for metrics.k8s.io in `kubectl get apiservices`"
_MAX_NAMED: Final = 3
"""Maximum number of nodes that a warning names."""


class MetricsServerSource:
    """Lists the NodeMetrics for each query. ``timeout``: seconds for the whole list."""

    def __init__(
        self, fetch: Fetch, nodes: Callable[[], Mapping[str, Node]], *, timeout: float = TIMEOUT
    ) -> None:
        self._fetch = fetch
        self._nodes = nodes
        self._timeout = timeout

    async def query(self, rule: Rule) -> QueryResult:
        """Usage in percent of allocatable. Failures of the server are returned, not raised."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                usages = await self._fetch()
        except TimeoutError:
            why = f"metrics-server: no whole answer within {self._timeout:g} s; {_IS_IT_UP}"
            result = QueryResult(error=why)
        except ClusterError as failed:
            result = QueryResult(error=str(failed))
        else:
            result = _utilization(rule, usages, self._nodes())
        return replace(result, duration=time.monotonic() - started)


def _utilization(rule: Rule, usages: Iterable[NodeUsage], nodes: Mapping[str, Node]) -> QueryResult:
    """Samples in percent of allocatable, with warnings.

    A sample without a value is NaN (unknown), never 0. A measurement from before the node was
    created is left out: it belongs to an earlier node of the same name.
    """
    resource, label = rule.resource or "", rule.node_labels[0]
    samples = []
    unreadable: dict[str, list[str]] = {}
    for usage in usages:
        value, problem = math.nan, None
        node = nodes.get(usage.node)
        if node is not None and usage.taken_at is not None and usage.taken_at < node.created:
            continue
        used = usage.amounts.get(resource)
        if used is None:
            problem = f"no {resource} usage in its NodeMetrics"
        elif usage.taken_at is None:
            problem = "no timestamp in its NodeMetrics"
        elif node is not None and not node.allocatable.get(resource):
            problem = f"no allocatable {resource} in the Node's status"
        elif node is not None:
            value = used / node.allocatable[resource] * 100
        if problem is not None:
            unreadable.setdefault(problem, []).append(usage.node)
        samples.append(Sample({label: usage.node}, value, usage.taken_at or 0.0))
    warnings = (f"{some(sorted(them), _MAX_NAMED)}: {why}" for why, them in unreadable.items())
    return QueryResult(samples, warnings=tuple(warnings))
