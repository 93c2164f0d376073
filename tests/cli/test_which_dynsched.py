"""Which dynsched instance a command queries: the given URL, or the current context's."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from api_support import kubeconfig
from certificates import Authority
from cluster import SimCluster
from command_line import Call, call_of
from misbehaving_server import MisbehavingServer, http
from service_support import Pages, served, service, stranger

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def call(capsys) -> Call:
    """`dynsched ...` in a thread: (exit code, stdout, stderr)."""
    return partial(asyncio.to_thread, call_of, capsys)


@pytest.fixture
def cluster(sim, monkeypatch) -> SimCluster:
    """The cluster of the current context."""
    monkeypatch.setenv("KUBECONFIG", str(sim.kubeconfig))
    return sim


def hot(node: str) -> Pages:
    pages = Pages()
    for _ in range(3):
        pages.tick(**{node: 91.0})
    return pages


async def test_flags_choose_the_instance_then_the_environment_then_the_current_context(
    call, cluster, monkeypatch
) -> None:
    here, there, kubeconfig = hot("worker_1"), hot("worker_2"), str(cluster.kubeconfig)
    async with served(here), served(there), service(cluster, there.url):
        for flags, environment, is_here in (
            ((), False, False),
            ((), True, True),
            (("--server", here.url), False, True),
            # a flag that names a cluster overrides the environment
            (("--context", "sim"), True, False),
            (("-n", "dynsched"), True, False),
            (("--kubeconfig", kubeconfig), True, False),
        ):
            with monkeypatch.context() as patch:
                if environment:
                    patch.setenv("DYNSCHED_SERVER", here.url)
                code, out, errors = await call("nodes", "-o", "json", *flags)
            assert (code, json.loads(out)["node_names"]) == (
                0,
                ["worker-1" if is_here else "worker-2"],
            )
            source = f"server {here.url}" if is_here else f"cluster sim ({cluster.url})"
            assert errors == f"From {source}\n", flags
    code, _, errors = await call("nodes", "--server", NOWHERE, "--context", "a")
    assert (code, "--server and --context contradict each other" in errors) == (2, True)


async def test_the_response_through_the_api_server_is_the_same(call, cluster) -> None:
    pages = hot("worker_3")
    async with served(pages), service(cluster, pages.url):
        for words in (("nodes", "-o", "json"), ("why", "a#b é")):
            through = await call(*words, "-n", "dynsched")
            assert through[:2] == (await call(*words, "--server", pages.url))[:2]
    assert through[0] == 1


@asynccontextmanager
async def recording(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that requires a token: its port, and the Authorization headers that arrive."""
    arrived: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        arrived.append(request.headers.get("Authorization", "none"))
        return web.json_response({"error": "it needs a bearer token"}, status=401)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server(ssl=tls)
    yield server.port or 0, arrived
    await server.close()


async def test_a_token_goes_to_the_named_server_and_never_unencrypted_over_a_network(
    call, cluster, monkeypatch, tmp_path
) -> None:
    token, sent = tmp_path / "token", ["Bearer secret-token"]
    token.write_text("secret-token")
    authority = Authority(tmp_path, "ca")
    monkeypatch.setenv("SSL_CERT_FILE", authority.cert)
    tls = authority.server(authority.issue("server", "IP:127.0.0.1"))
    async with recording() as (plain, plainly), recording(tls) as (secure, safely):
        for url, arrived, expected in (
            (f"http://localhost:{plain}", plainly, sent),
            (f"https://127.0.0.1:{secure}", safely, sent),
            # Also this machine, but not a loopback address.
            (f"http://0.0.0.0:{plain}", plainly, []),
        ):
            words = ("--server", url, "--server-token-file", str(token))
            code, _, errors = await call("order", *words)
            assert (code, arrived) == (1, expected), url
            assert ("--server-token-file" if expected else str(token)) in errors
            arrived.clear()
        async with service(cluster, f"http://127.0.0.1:{plain}"):
            code, _, errors = await call("order", "--server-token-file", str(token))
        assert (code, plainly) == (1, ["none"])
        assert "the API server passes no token on" in errors


@pytest.mark.parametrize("command", ["order", "doctor"])
async def test_the_environments_token_is_not_sent_to_a_server_given_by_flag(
    call, cluster, monkeypatch, tmp_path, command
) -> None:
    (tmp_path / "rules.yaml").write_text("rules: [{name: load, expr: load, threshold: 80}]")
    monkeypatch.setenv("DYNSCHED_RULES", str(tmp_path / "rules.yaml"))
    monkeypatch.setenv("DYNSCHED_PROM", NOWHERE)
    token, sent = tmp_path / "token", ["Bearer secret-token"]
    token.write_text("secret-token")
    monkeypatch.setenv("DYNSCHED_SERVER_TOKEN_FILE", str(token))
    async with recording() as (port, arrived):
        url = f"http://127.0.0.1:{port}"
        for usual, flags, expected in (
            (url, (), sent),
            (NOWHERE, ("--server", url), ["none"]),
            (NOWHERE, ("--server", url, "--server-token-file", str(token)), sent),
        ):
            monkeypatch.setenv("DYNSCHED_SERVER", usual)
            await call(command, *flags)
            assert [*{*arrived}] == expected, (usual, flags)
            arrived.clear()


async def test_a_missing_service_and_a_missing_permission_are_one_line_each(
    call, cluster, tmp_path
) -> None:
    code, out, errors = await call("order")
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "no Service with the label app.kubernetes.io/name=dynsched" in errors
    async with service(cluster, None):
        stranger(cluster, tmp_path)
        code, out, errors = await call("nodes")
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "may not get services/proxy http:dynsched:9000" in errors
    code, _, errors = await call("nodes", "--server", NOWHERE)
    assert (code, f"cannot ask {NOWHERE}" in errors) == (1, True)


@pytest.mark.parametrize("body", ["[]", "null", '{"kind": "Pod", "metadata": {"name": "a"}}'])
async def test_a_response_that_is_no_pod_is_a_one_line_error(call, tmp_path, body) -> None:
    with MisbehavingServer() as server:
        server.default = http(body)
        file = kubeconfig(tmp_path / "k", server.url)
        code, out, errors = await call("order", "web", "--kubeconfig", str(file))
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "pod web" in errors if body == "null" else f"{server.url} answered something" in errors
