"""--web-auth in the real process, asked by readers with tokens of their own."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import scheduling_support
from cluster import Cluster
from fake_prometheus import FakePrometheus
from operator_support import Operator, dynsched
from reader_support import bearer, reader

from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

RULES = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}], "extender": {}}


@asynccontextmanager
async def running(cluster: Cluster, folder: Path, *flags: str) -> AsyncIterator[Operator]:
    """`dynsched run` with these flags, ready."""
    await cluster.create_node(make_node("a", 0))
    async with FakePrometheus() as prometheus:
        prometheus.set(cpu={"a": 10})
        flags = ("--no-leader-elect", *flags)
        async with scheduling_support.dynsched(
            cluster, prometheus, folder, RULES, *flags
        ) as operator:
            yield operator
            assert await operator.stop() == 0, operator.log


async def asked(operator: Operator, path: str, token: str = "") -> tuple[int, Any]:
    headers = bearer(token) if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{operator.address}{path}", headers=headers) as answer,
    ):
        return answer.status, json.loads(await answer.text())


async def test_rbac_says_who_may_look(cluster, tmp_path) -> None:
    """Tokens of the audience that the flag names, and no others, say who asks."""
    ann = await reader(cluster, "/nodes", "/nodes/*")
    bob = await reader(cluster)
    anns, bobs = [await each.new_token(["dynsched"]) for each in (ann, bob)]
    flags = ("--web-auth", "--web-auth-audience", "dynsched", "--log-level", "debug")
    async with running(cluster, tmp_path, *flags) as operator:
        assert (await asked(operator, "/nodes"))[0] == 401
        assert (await asked(operator, "/nodes", "nobodys-token"))[0] == 401
        assert (await asked(operator, "/nodes", ann.token))[0] == 401
        status, nodes = await asked(operator, "/nodes", anns)
        assert (status, nodes["nodes"][0]["name"]) == (200, "a")
        assert (await asked(operator, "/nodes/a", anns))[0] == 200
        assert (await asked(operator, "/rules", anns))[0] == 403
        status, refusal = await asked(operator, "/nodes", bobs)
        assert status == 403
        assert refusal["error"].startswith(f"user {bob.user} may not get /nodes")
        url = f"http://{operator.address}/filter"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json={"NodeNames": ["a"]}) as answer,
        ):
            assert answer.status == 200
        for token in (ann.token, anns, bobs, "nobodys-token"):
            assert token not in operator.log

        file = tmp_path / "token"
        file.write_text(anns + "\n")
        server = ("--server", f"http://{operator.address}", "--server-token-file", str(file))
        code, text = await dynsched("nodes", *server, "-o", "json")
        source, _, answer = text.partition("\n")
        assert (code, source) == (0, f"From server http://{operator.address}")
        assert json.loads(answer)["node_names"] == []
