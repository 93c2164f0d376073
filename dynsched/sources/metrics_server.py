"""Samples from metrics-server: usage of cpu or memory, in percent of the node's allocatable."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from dynsched.core.nodes import Node
from dynsched.core.samples import NodeUsage, QueryResult, Sample
from dynsched.core.wording import some
from dynsched.rules.rule_set import Rule
from dynsched.util.errors import ClusterError

Fetch = Callable[[], Awaitable[Sequence[NodeUsage]]]
"""Lists the NodeMetrics, once. Raises ClusterError with one line for a person."""

TIMEOUT: Final = 8.0
"""Seconds: fewer than a call to the API server may take, so that the error names metrics-server."""
_MAX_NAMED: Final = 3
"""The most nodes that a warning names."""


class MetricsServerSource:
    """Queries that run at the same time share one list."""

    def __init__(
        self, fetch: Fetch, nodes: Callable[[], Mapping[str, Node]], *, timeout: float = TIMEOUT
    ) -> None:
        self._fetch = fetch
        self._nodes = nodes
        self._timeout = timeout
        self._under_way: asyncio.Task[Sequence[NodeUsage]] | None = None

    async def query(self, rule: Rule) -> QueryResult:
        """In percent of allocatable. Never raises for what the server does."""
        started = time.monotonic()
        try:
            usages = await self._usages()
        except ClusterError as error:
            return QueryResult(error=str(error), duration=time.monotonic() - started)
        samples, warnings = _utilization(
            rule.resource or "", usages, self._nodes(), label=rule.node_labels[0]
        )
        return QueryResult(samples, warnings=warnings, duration=time.monotonic() - started)

    async def close(self) -> None:
        """Cancel what is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClusterError):
                await self._under_way

    async def _usages(self) -> Sequence[NodeUsage]:
        task = self._under_way
        if task is None or task.done():
            task = self._under_way = asyncio.create_task(self._list(), name="metrics-server")
        # A query that is cancelled must not take the answer from the others.
        return await asyncio.shield(task)

    async def _list(self) -> Sequence[NodeUsage]:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetch()
        except TimeoutError:
            raise ClusterError(
                f"metrics-server: no whole answer within {self._timeout:g} s; is it up? look at "
                "`kubectl get apiservices`, at those of metrics.k8s.io"
            ) from None


def _utilization(
    resource: str, usages: Iterable[NodeUsage], nodes: Mapping[str, Node], *, label: str
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Samples in percent of allocatable, and warnings. A sample without a value is NaN, which is
    unknown, never 0. A measurement from before the node was created is left out: it is of another
    node that had its name.
    """
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
    return tuple(samples), tuple(warnings)
