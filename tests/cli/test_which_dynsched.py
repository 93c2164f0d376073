"""Which running dynsched is asked: the URL that is named, or the current context's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cluster import SimCluster
from command_line import Call, call_of
from service_support import Pages, served, service, stranger

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def call(capsys) -> Call:
    """`dynsched ...` in a thread: (exit code, stdout, stderr)."""
    return partial(asyncio.to_thread, call_of, capsys)


@pytest.fixture
def cluster(sim, monkeypatch) -> SimCluster:
    """The one of the current context."""
    monkeypatch.setenv("KUBECONFIG", str(sim.kubeconfig))
    return sim


def hot(node: str) -> Pages:
    pages = Pages()
    for _ in range(3):
        pages.tick(**{node: 91.0})
    return pages


async def test_the_one_that_is_named_is_asked_and_else_the_current_context(
    call, cluster, monkeypatch
) -> None:
    here, there, kubeconfig = hot("worker_1"), hot("worker_2"), str(cluster.kubeconfig)
    async with served(here), served(there), service(cluster, there.url):
        for flags, environment, is_here in (
            ((), False, False),
            ((), True, True),
            (("--server", here.url), False, True),
            # a cluster that is typed counts more than the environment
            (("--context", "sim"), True, False),
            (("-n", "dynsched"), True, False),
            (("--kubeconfig", kubeconfig), True, False),
        ):
            with monkeypatch.context() as patch:
                if environment:
                    patch.setenv("DYNSCHED_SERVER", here.url)
                marked, where = ("worker-1", here.url) if is_here else ("worker-2", "the Service")
                code, out, errors = await call("why", marked, *flags)
            assert (code, f"{marked} is marked" in out) == (0, True), flags
            assert errors.startswith(f"From {where}"), flags
    code, _, errors = await call("nodes", "--server", NOWHERE, "--context", "a")
    assert (code, "--server and --context contradict each other" in errors) == (2, True)


async def test_the_answer_through_the_cluster_is_the_same(call, cluster) -> None:
    pages = hot("worker_3")
    async with served(pages), service(cluster, pages.url):
        for words in (("nodes", "-o", "json"), ("why", "a#b é")):
            through = await call(*words, "-n", "dynsched")
            assert through[:2] == (await call(*words, "--server", pages.url))[:2]
    assert through[0] == 1


@asynccontextmanager
async def recording(body: object, status: int) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server that gives one answer to everything, and the requests that arrived."""
    arrived: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        arrived.append(request)
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/"), arrived


async def test_a_token_goes_to_the_server_that_was_named_and_nowhere_else(
    call, cluster, monkeypatch, tmp_path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token")
    given = ("--server-token-file", str(token))
    answer = {"taken_at": "2026-11-27T12:00:00Z"}
    async with recording(answer, 401) as (url, arrived):
        port = url.rpartition(":")[2]
        await call("order", "--server", f"http://localhost:{port}", *given)
        assert [one.headers["Authorization"] for one in arrived] == ["Bearer secret-token"]
        arrived.clear()
        async with service(cluster, url):
            code, _, errors = await call("order", *given)
        assert code == 1
        assert "--server and --server-token-file" in errors
        assert not any("secret-token" in str(one.headers) for one in arrived)
    # by plain HTTP to another machine: nothing is sent, and it is said why
    code, _, errors = await call("order", "--server", "http://192.0.2.1:9000", *given)
    assert (code, "by plain HTTP" in errors) == (1, True)


async def test_none_anywhere_and_no_right_are_one_line_each(call, cluster, tmp_path) -> None:
    code, out, errors = await call("nodes")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "no Service with the label app.kubernetes.io/name=dynsched" in errors
    async with service(cluster, None):
        stranger(cluster, tmp_path)
        code, out, errors = await call("nodes")
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "may not get services/proxy http:dynsched:9000" in errors
    code, _, errors = await call("nodes", "--server", NOWHERE)
    assert (code, f"cannot ask {NOWHERE}" in errors) == (1, True)


async def test_commands_and_flags_that_went_say_what_to_use_instead(call) -> None:
    code, _, errors = await call("open")
    assert (code, "was removed in 0.3.0; instead: `kubectl" in errors) == (2, True)
    _, _, errors = await call("nodes", "--watch", "--server", NOWHERE)
    assert errors.startswith("--watch was removed in 0.3.0; instead: `watch dynsched nodes`")
