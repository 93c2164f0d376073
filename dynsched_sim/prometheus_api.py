"""A simulated Prometheus: answers the demo's rules and the shipped rules with synthetic load."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiohttp import web

from dynsched.rules.rule_set import Rule
from dynsched_sim.load import DemoLoad

_REFUSAL: Final = (
    "this is the simulator of dynsched demo, not a Prometheus: it answers only the expressions of "
    "the demo's rules and of the shipped rules, exactly as written there"
)


class Machine(NamedTuple):
    name: str
    address: str

    @property
    def instance(self) -> str:
        return f"{self.address}:9100"


class SimulatedPrometheus:
    """Answers the rules for ``machines``; the load starts with the constructor."""

    def __init__(self, machines: Iterable[Machine], rules: Iterable[Rule], load: DemoLoad) -> None:
        self._metrics = [{"instance": machine.instance} for machine in machines]
        self._load = load
        self._began = time.time()
        self._names = {_normal(rule.expr): rule.name for rule in rules if rule.expr}

    def application(self) -> web.Application:
        app = web.Application()
        for method in ("GET", "POST"):
            app.router.add_route(method, "/api/v1/query", self._query)
            app.router.add_route(method, "/api/v1/query_range", self._query)
        app.router.add_route("*", "/api/{rest:.*}", _refuse)
        app.router.add_get("/graph", _no_page)
        return app

    @property
    def age(self) -> float:
        """Seconds since the load started."""
        return time.time() - self._began

    async def _query(self, request: web.Request) -> web.Response:
        # Prometheus accepts parameters in the URL and in the body.
        parameters = {**request.query, **await request.post()}
        form = {name: str(value) for name, value in parameters.items()}
        if (name := self._names.get(_normal(form.get("query", "")))) is None:
            return await _refuse(request)
        if request.path.endswith("_range"):
            start, end, step = (float(form[each]) for each in ("start", "end", "step"))
            count = math.floor((end - start) / step) + 1
            kind, key, times = "matrix", "values", [start + step * each for each in range(count)]
        else:
            kind, key, times = "vector", "value", [time.time()]
        # There are no points before the load started.
        found = [(at, self._load.at(at - self._began)) for at in times]
        points = [(at, values[name]) for at, values in found if values]
        result = []
        for node, metric in enumerate(self._metrics if points else ()):
            values = [(at, str(of_nodes[node])) for at, of_nodes in points]
            result.append({"metric": metric, key: values if key == "values" else values[0]})
        data = {"resultType": kind, "result": result}
        return web.json_response({"status": "success", "data": data})


@asynccontextmanager
async def serve(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free loopback port; yields its URL."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _normal(expr: str) -> str:
    return " ".join(expr.split())


async def _no_page(_request: web.Request) -> web.Response:
    return web.Response(text="The demo's simulated Prometheus has no web page.")


async def _refuse(_request: web.Request) -> web.Response:
    refusal = {"status": "error", "errorType": "bad_data", "error": _REFUSAL}
    return web.json_response(refusal, status=400)
