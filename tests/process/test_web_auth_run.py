"""--web-auth in the real process, asked by readers with tokens of their own."""

import json

import aiohttp
import pytest
from operator_support import dynsched
from reader_support import reader
from replica_support import replica

pytestmark = pytest.mark.slow

RULES = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}], "extender": {}}


async def test_rbac_says_who_may_look(cluster, prometheus, tmp_path) -> None:
    """Tokens of the audience that the flag names, and no others, say who asks."""
    ann = await reader(cluster, "/nodes", "/nodes/*")
    bob = await reader(cluster)
    anns, bobs = [await each.new_token(["dynsched"]) for each in (ann, bob)]
    flags = ("--web-auth", "--web-auth-audience", "dynsched", "--log-level", "debug")
    await cluster.create_nodes("a")
    prometheus.set(cpu={"a": 10})
    async with replica(cluster, prometheus, tmp_path, *flags, content=RULES) as operator:
        await operator.until_ready()
        for token in ("", "nobodys-token", ann.token):
            assert (await operator.get("/nodes", token=token))[0] == 401
        for path, code in (("/nodes", 200), ("/nodes/a", 200), ("/rules", 403)):
            assert (await operator.get(path, token=anns))[0] == code
        status, refusal = await operator.get("/nodes", token=bobs)
        assert status == 403
        assert f"user {bob.user} may not get /nodes" in refusal
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
        assert await operator.stop() == 0, operator.log
