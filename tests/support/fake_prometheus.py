"""A Prometheus on loopback that serves the values a test sets, with history, and can fail."""

import math
import time
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from typing import Any, Self

from aiohttp import web

Values = Mapping[str, float]


class FakePrometheus:
    """Expressions are plain names: ``prometheus.set(load={"a": 91})`` answers ``load``.

    ``failing``: HTTP status by expression (``*`` for all) with which queries fail.
    ``warnings``: if not empty, they are in every answer, which makes it partial.
    ``headers`` and ``paths``: those of every request so far.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.failing: dict[str, int] = {}
        self.warnings: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.port = 0
        self._set: list[tuple[float, str, Values]] = []
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None), shutdown_timeout=0.1
        )

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def up(self) -> None:
        self._site = web.TCPSite(self._runner, self.host, self.port)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def down(self) -> None:
        """Refuse connections until ``up``."""
        await self._site.stop()

    def set(self, since: float = 0.0, /, **values: Values) -> None:
        """Set the values per node from now on, or as of ``since`` seconds ago. Call it in order."""
        for expr, by_node in values.items():
            self._set.append((time.time() - since, expr, dict(by_node)))

    def _at(self, expr: str, moment: float) -> Values:
        found = [values for at, name, values in self._set if name == expr and at <= moment]
        return found[-1] if found else {}

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.paths.append(request.path)
        form = dict(request.query) | dict(await request.post())
        expr = str(form["query"])
        status = self.failing.get(expr, self.failing.get("*", 200))
        if status != 200:
            kind = "bad_data" if status == 400 else "internal"
            body = {"status": "error", "errorType": kind, "error": "out of order"}
            return web.json_response(body, status=status)
        now = time.time()
        if request.path.endswith("/query_range"):
            kind, result = "matrix", list(self._range(expr, form))
        else:
            kind, result = "vector", list(self._instant(expr, now))
        body: dict[str, Any] = {
            "status": "success",
            "data": {"resultType": kind, "result": result},
            "warnings": self.warnings,
        }
        return web.json_response(body, headers={"Date": formatdate(now, usegmt=True)})

    def _instant(self, expr: str, now: float) -> Iterator[dict[str, Any]]:
        for node, value in self._at(expr, now).items():
            yield {"metric": {"node": node}, "value": [now, _text(value)]}

    def _range(self, expr: str, form: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        start, end, step = (float(form[key]) for key in ("start", "end", "step"))
        points: dict[str, list[tuple[float, str]]] = {}
        for number in range(int((end - start) / step + 1.001)):
            moment = start + number * step
            for node, value in self._at(expr, moment).items():
                points.setdefault(node, []).append((moment, _text(value)))
        for node, values in points.items():
            yield {"metric": {"node": node}, "values": values}


def _text(value: float) -> str:
    """The value as Prometheus formats it."""
    return (
        f"{value:g}"
        if math.isfinite(value)
        else str(value).replace("nan", "NaN").replace("inf", "Inf")
    )
