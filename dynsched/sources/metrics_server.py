"""Samples from metrics-server: usage of cpu or memory, in per cent of the node's allocatable. All
rules of one tick share one list: queries that run side by side wait for the same request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from dynsched.engine.model import Node, QueryResult
from dynsched.engine.usage import NodeUsage, utilization
from dynsched.rules.rule_set import Rule
from dynsched.util.errors import ClusterError

Fetch = Callable[[], Awaitable[Sequence[NodeUsage]]]
"""Lists the NodeMetrics, once. Raises ClusterError with one line for a person."""

TIMEOUT: Final = 8.0
"""Seconds for the whole list: fewer than one call to the API server may take, so that the error
tells whose fault it is."""


class MetricsServerSource:
    """``nodes`` gives the nodes as they are now, by name."""

    def __init__(
        self, fetch: Fetch, nodes: Callable[[], Mapping[str, Node]], *, timeout: float = TIMEOUT
    ) -> None:
        self._fetch = fetch
        self._nodes = nodes
        self._timeout = timeout
        self._under_way: asyncio.Task[Sequence[NodeUsage]] | None = None

    async def query(self, rule: Rule) -> QueryResult:
        started, label = time.monotonic(), rule.node_labels[0]
        try:
            usages = await self._usages()
        except ClusterError as error:
            return QueryResult(error=str(error), duration=time.monotonic() - started)
        convert = partial(utilization, rule.resource or "", usages, self._nodes(), label=label)
        samples, warnings = await asyncio.to_thread(convert)  # some 20 ms at 5,000 nodes
        return QueryResult(samples, warnings=warnings, duration=time.monotonic() - started)

    async def close(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClusterError):
                await self._under_way

    async def _usages(self) -> Sequence[NodeUsage]:
        task = self._under_way
        if task is None or task.done():
            task = self._under_way = asyncio.create_task(self._ask(), name="metrics-server")
        # One query that is given up must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(self) -> Sequence[NodeUsage]:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetch()
        except TimeoutError:
            raise ClusterError(
                f"metrics-server: no whole answer within {self._timeout:g} s; is it up? look at "
                "`kubectl get apiservice v1beta1.metrics.k8s.io`"
            ) from None
