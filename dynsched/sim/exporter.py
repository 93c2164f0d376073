"""The synthetic load over HTTP: as node-exporter's metrics, and as answers to the demo's rules.

One page holds all nodes, as a federation endpoint does; it is meant to be scraped with
``honor_labels``, so that every series keeps the ``instance`` of its own node.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from dynsched.rules.rule_set import RuleSet
from dynsched.sim.load import Kind, NodeLoad, node_load
from dynsched.sim.pod_metrics import CORES, PodMetrics, Use

CPUS: Final = 2
"""CPUs that each node shows: as few as are more than one, for the page to stay small."""
MEMORY_BYTES: Final = 32 * 2**30
RATE_WINDOW: Final = 5.0
"""Seconds over which the simulator's own answer takes the mean: the range in the demo's rules."""

MAX_POINTS: Final = 11_000
"""Points of one series that a range query answers, as Prometheus's own limit."""

_Answer = Callable[[NodeLoad, float], float]
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SHARES: Final = {"system": 0.3, "user": 0.7}
"""How a node's busy time is told apart by mode."""
_REFUSAL: Final = (
    "this is the simulator of dynsched demo, not a Prometheus: it answers queries for the "
    "expressions of the demo's rules, as they stand there; with a prometheus binary on PATH the "
    "demo runs a real one"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the exporter knows of a node: its name and its InternalIP."""

    name: str
    address: str

    @property
    def instance(self) -> str:
        """The ``instance`` label of its series."""
        return f"{self.address}:9100"


class Exporter:
    """The load of all machines, which begins when this is made.

    ``rule_set``: answer instant queries for these rules too, where no Prometheus is there to.
    ``pods``: on these machines, namespaces and bodies; they have series as well.
    """

    def __init__(
        self,
        machines: Iterable[Machine],
        *,
        seed: int = 0,
        rule_set: RuleSet | None = None,
        pods: Iterable[tuple[str, Mapping[str, Any]]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._loads = {machine: node_load(index, seed) for index, machine in enumerate(machines)}
        self._clock = clock
        self._began = clock()
        self._pods = PodMetrics(pods, self._began)
        self._answers = _answers(rule_set)

    def application(self) -> web.Application:
        """``/metrics``; and ``/api/v1/query`` when there are rules to answer for."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        if self._answers:
            for method in ("GET", "POST"):
                app.router.add_route(method, "/api/v1/query", self._query)
                app.router.add_route(method, "/api/v1/query_range", self._query_range)
            app.router.add_route("*", "/api/{rest:.*}", self._refuse)
        return app

    def first_to_heat(self) -> Machine:
        """The machine to watch: the one that heats first."""
        return min(
            self._loads,
            key=lambda machine: (
                self._loads[machine].kind is Kind.CALM,
                self._loads[machine].heat.start,
            ),
        )

    def page(self) -> str:
        """All metrics now, in the text format."""
        now = self._clock() - self._began
        loads = self._loads.items()
        families = (
            _header("node_cpu_seconds_total", "counter", "Seconds the CPUs spent in each mode."),
            *(_cpu_lines(machine, load, now) for machine, load in loads),
            _header("node_memory_MemAvailable_bytes", "gauge", "Memory that can be had."),
            *(
                _memory_line("MemAvailable", machine, _available(load, now))
                for machine, load in loads
            ),
            _header("node_memory_MemTotal_bytes", "gauge", "Memory in all."),
            *(_memory_line("MemTotal", machine, MEMORY_BYTES) for machine in self._loads),
            self._pods.page({machine.name: _use(load, now) for machine, load in loads}),
        )
        return "".join(families)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.page().encode(), headers={"Content-Type": _METRICS_TYPE})

    async def _query(self, request: web.Request) -> web.Response:
        form = await _form(request)
        answer = self._answers.get(_normal(form.get("query", "")))
        if answer is None:
            return await self._refuse(request)
        at = _seconds(form, "time", self._clock())
        result = [
            {"metric": {"instance": machine.instance}, "value": self._point(answer, load, at)}
            for machine, load in self._loads.items()
        ]
        return _success("vector", result)

    async def _query_range(self, request: web.Request) -> web.Response:
        """A range query; there are no points from before the load began."""
        form = await _form(request)
        answer = self._answers.get(_normal(form.get("query", "")))
        if answer is None:
            return await self._refuse(request)
        start, end = (_seconds(form, name, self._clock()) for name in ("start", "end"))
        step = max(1.0, _seconds(form, "step", 1.0))
        times = [start + step * number for number in range(int((end - start) // step) + 1)]
        known = [time for time in times[-MAX_POINTS:] if self._began <= time <= self._clock()]
        result = [
            {
                "metric": {"instance": machine.instance},
                "values": [self._point(answer, load, time) for time in known],
            }
            for machine, load in (self._loads.items() if known else ())
        ]
        return _success("matrix", result)

    def _point(self, answer: _Answer, load: NodeLoad, at: float) -> tuple[float, str]:
        return at, str(answer(load, max(0.0, at - self._began)))

    async def _refuse(self, _request: web.Request) -> web.Response:
        return web.Response(text=_error(_REFUSAL), status=400, content_type="application/json")


@asynccontextmanager
async def serve(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free port of the loopback interface; its URL."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _mean_cpu(load: NodeLoad, now: float) -> float:
    # At the very start there is no window yet: the load as it is.
    return load.mean_cpu(max(0.0, now - RATE_WINDOW), now) if now > 0 else load.cpu(now)


_ANSWERS: Final[Mapping[str, _Answer]] = {
    "node-cpu": _mean_cpu,
    "node-mem-usage": NodeLoad.memory,
}
"""What the expressions of the demo's rules come to, by the rules' names."""


def _answers(rule_set: RuleSet | None) -> dict[str, _Answer]:
    """What to answer, by expression."""
    rules = rule_set.rules if rule_set else ()
    return {_normal(rule.expr): _ANSWERS[rule.name] for rule in rules if rule.expr}


def _normal(expr: str) -> str:
    """An expression regardless of its line breaks."""
    return " ".join(expr.split())


async def _form(request: web.Request) -> dict[str, str]:
    """What was asked; in the URL or in the body, as for Prometheus."""
    return {**request.query, **{name: str(value) for name, value in (await request.post()).items()}}


def _seconds(form: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(form.get(name, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        message = f'invalid parameter "{name}": the simulator reads seconds only'
        raise web.HTTPBadRequest(text=_error(message), content_type="application/json")
    return value


def _error(message: str) -> str:
    """Prometheus's own form of an error."""
    return json.dumps({"status": "error", "errorType": "bad_data", "error": message})


def _success(kind: str, result: list[dict[str, Any]]) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})


def _header(name: str, kind: str, help_text: str) -> str:
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def _labels(machine: Machine) -> str:
    return f'instance="{machine.instance}",node="{machine.name}"'


def _cpu_lines(machine: Machine, load: NodeLoad, now: float) -> str:
    busy = load.busy_seconds(now)
    seconds = {"idle": now - busy} | {mode: busy * share for mode, share in _SHARES.items()}
    labels = _labels(machine)
    return "".join(
        f'node_cpu_seconds_total{{cpu="{cpu}",{labels},mode="{mode}"}} {value:.4f}\n'
        for cpu in range(CPUS)
        for mode, value in seconds.items()
    )


def _memory_line(field: str, machine: Machine, value: float) -> str:
    return f"node_memory_{field}_bytes{{{_labels(machine)}}} {value:.0f}\n"


def _use(load: NodeLoad, now: float) -> Use:
    """By its pods, as if nothing else ran there."""
    return Use(CORES * load.busy_seconds(now), MEMORY_BYTES - _available(load, now))


def _available(load: NodeLoad, now: float) -> float:
    return MEMORY_BYTES * (1 - load.memory(now) / 100)
