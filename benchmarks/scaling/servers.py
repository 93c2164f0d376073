"""The API server and the fake Prometheus, each as a separate process.

    python -m scaling.servers api --nodes 5000 --kubeconfig FILE
    python -m scaling.servers real --nodes 5000 --kubeconfig FILE
    python -m scaling.servers prometheus --nodes 5000 --rules 3

Each prints the URL of its own paths on one line once it serves.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from dynsched_sim.apiserver.api_server import ApiServer
from scaling.cluster import Readings, fill, past
from scaling.real import real_cluster
from scaling.real import writes as writes_to_nodes

NOTHING = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


def expression(rule: int) -> str:
    """The ``expr`` of a rule."""
    return f"load_{rule}"


@dataclass(slots=True)
class Prometheus:
    """A fake Prometheus that answers from memory.

    An instant query of `expression` has one sample per node, any other query none. ``drifting``:
    number of nodes that change state before each answer for the last rule.
    """

    nodes: int
    rules: int
    drifting: int = 0
    drifted: int = 0
    answered: int = 0
    readings: dict[str, Readings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readings = {expression(rule): Readings(self.nodes) for rule in range(self.rules)}

    async def answer(self, request: web.Request) -> web.Response:
        """``/api/v1/query``."""
        asked = str((request.query or await request.post()).get("query"))
        found = self.readings.get(asked)
        if found is None:
            return web.Response(body=NOTHING, content_type="application/json")
        if asked == expression(self.rules - 1):
            self.answered += 1
            found.heat(range(self.drifted, self.drifted + self.drifting))
            self.drifted += self.drifting
        return web.Response(body=found.answer(), content_type="application/json")

    async def past(self, request: web.Request) -> web.Response:
        """``/api/v1/query_range``."""
        asked = request.query or await request.post()
        body = past(self.nodes, *(float(str(asked[name])) for name in ("start", "end", "step")))
        return web.Response(body=body, content_type="application/json")

    async def heat(self, request: web.Request) -> web.Response:
        """Make the first ``nodes`` hot for all rules that mark nodes."""
        for rule in range(self.rules - 1):
            self.readings[expression(rule)].heat(range(int(request.query["nodes"])))
        return web.Response()

    async def drift(self, request: web.Request) -> web.Response:
        """From now on, ``nodes`` nodes change state at each tick."""
        self.drifting = int(request.query["nodes"])
        return web.Response()

    async def count(self, _request: web.Request) -> web.Response:
        """The number of ticks that have queried."""
        return web.json_response(self.answered)


def prometheus(options: argparse.Namespace) -> web.Application:
    stand_in = Prometheus(options.nodes, options.rules)
    app = web.Application()
    app.router.add_route("*", "/api/v1/query", stand_in.answer)
    app.router.add_route("*", "/api/v1/query_range", stand_in.past)
    app.router.add_post("/heat", stand_in.heat)
    app.router.add_post("/drift", stand_in.drift)
    app.router.add_get("/ticks", stand_in.count)
    return app


def writes(found: Callable[[], list[Any]]) -> web.Application:
    """Serves the time of each write to a node."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(found())

    app = web.Application()
    app.router.add_get("/writes", answer)
    return app


async def serve(app: web.Application) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def run(options: argparse.Namespace) -> None:
    if options.server == "prometheus":
        await serve(prometheus(options))
    elif options.server == "real":
        async with real_cluster(options.nodes, options.kubeconfig) as servers:
            await serve(writes(lambda: writes_to_nodes(servers)))
    else:
        async with ApiServer() as api:
            fill(api, options.nodes)
            api.kubeconfig(options.kubeconfig)
            await serve(writes(lambda: [each.time for each in api.requests.writes("nodes")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", choices=("api", "real", "prometheus"))
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rules", type=int, default=0)
    parser.add_argument("--kubeconfig", type=Path)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
