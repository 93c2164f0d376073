"""Simulated time, and a fake Prometheus that runs on it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from aiohttp import web

from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource

INTERVAL = 40.0
HOUR = 3600.0
FIRST_RULE = "node-cpu"
"""The rule that every rules file of the soak has."""

_BEGIN = 1_700_000_000.0
_BY_HTTP = 10
"""Every tenth tick queries Prometheus over HTTP, because 500 samples take 6 ms that way."""


class Clock:
    """Simulated time. ``set_by`` shifts the wall clock only; ``passed`` only advances."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0

    def monotonic(self) -> float:
        """Replaces `time.monotonic`."""
        return self.passed

    def wall(self) -> float:
        """Replaces `time.time`."""
        return _BEGIN + self.passed + self.set_by


class Prometheus:
    """A fake Prometheus. ``mode``: how it answers. ``loads``: returns the value per exporter."""

    def __init__(self, clock: Clock, loads: Callable[[], Mapping[str, float]]) -> None:
        self.mode = "ok"
        self.url = ""
        self._clock = clock
        self._loads = loads
        app = web.Application()
        app.router.add_route("*", "/api/v1/query", self._query)
        app.router.add_route("*", "/api/v1/query_range", self._query_range)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Start to serve, and set ``url``."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    def in_place(self) -> QueryResult:
        """The result that a query would have, without HTTP."""
        if self.mode in {"error", "page", "reset"}:
            return QueryResult(error=f"Prometheus: {self.mode}")
        at = self._sampled_at()
        samples = (Sample({"instance": name}, value, at) for name, value in self._values())
        return QueryResult(tuple(samples), warnings=self._warnings())

    def _sampled_at(self) -> float:
        return self._clock.wall() - (HOUR if self.mode == "stale" else 0.0)

    def _values(self) -> Iterable[tuple[str, float]]:
        values = list(self._loads().items())
        if self.mode == "nan":
            return [(name, math.nan) for name, _ in values]
        return values[::2] if self.mode == "partial" else values

    def _warnings(self) -> tuple[str, ...]:
        return ("a store is away",) if self.mode == "partial" else ()

    async def _query(self, request: web.Request) -> web.Response:
        if self.mode == "error":
            return web.Response(status=503, text="no backend")
        if self.mode == "page":
            return web.Response(text="<html><title>log in</title></html>")
        if self.mode == "reset" and request.transport is not None:
            request.transport.abort()
        if self.mode == "slow":
            await asyncio.sleep(0.05)
        at = self._sampled_at()
        found = [
            {"metric": {"instance": name}, "value": [at, str(value)]}
            for name, value in self._values()
        ]
        return self._answer("vector", found)

    async def _query_range(self, request: web.Request) -> web.Response:
        sent = await request.post()
        start, end, step = (float(str(sent[key])) for key in ("start", "end", "step"))
        times = [start + number * step for number in range(int((end - start) / step) + 1)]
        found = [
            {"metric": {"instance": name}, "values": [[time, str(value)] for time in times]}
            for name, value in self._loads().items()
        ]
        return self._answer("matrix", found)

    def _answer(self, kind: str, found: list[Any]) -> web.Response:
        data = {"resultType": kind, "result": found}
        answer = {"status": "success", "data": data, "warnings": self._warnings()}
        # The source computes the age of samples from the Date header.
        date = format_datetime(datetime.fromtimestamp(self._clock.wall(), UTC), usegmt=True)
        return web.Response(
            body=msgspec.json.encode(answer),
            content_type="application/json",
            headers={"Date": date},
        )


class Source:
    """Queries ``real`` every tenth tick. Every tick blocks here until `go_on` is called, and its
    first rule may be queried more than once: a changed rules file is tried before it is in force.
    """

    def __init__(self, prometheus: Prometheus, real: PrometheusSource) -> None:
        self._prometheus = prometheus
        self._real = real
        self._gate = asyncio.Semaphore(0)
        self._is_open = False
        self._ticks = 0

    def go_on(self) -> None:
        """Let one tick get its samples."""
        self._gate.release()

    def tick_is_over(self) -> None:
        """Block the next tick."""
        self._is_open = False

    async def query(self, rule: Rule) -> QueryResult:
        """Implements `controller.queries.Source`."""
        if rule.name == FIRST_RULE and not self._is_open:
            await self._gate.acquire()
            self._is_open = True
            self._ticks += 1
        by_http = self._ticks % _BY_HTTP == 0
        return await self._real.query(rule) if by_http else self._prometheus.in_place()
