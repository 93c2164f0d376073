"""Which running dynsched is asked: the URL that is named, this machine's, or the cluster's."""

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

from dynsched.cli import commands, kubectl_plugin
from dynsched.tools import client

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def call(monkeypatch, capsys) -> Call:
    """`dynsched ...`, or `kubectl dynsched ...`, in a thread: (exit code, stdout, stderr)."""
    monkeypatch.setattr(client, "DEFAULT_SERVER", NOWHERE)

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


@pytest.fixture
async def here_and_there(cluster, monkeypatch) -> AsyncIterator[tuple[Pages, Pages]]:
    """One on this machine, whose worker-1 is marked, and one in the cluster: worker-2."""
    here, there = hot("worker_1"), hot("worker_2")
    async with served(here), served(there), service(cluster, there.url):
        monkeypatch.setattr(client, "DEFAULT_SERVER", here.url)
        yield here, there


async def test_without_flags_this_machine_comes_first_and_then_the_cluster(
    call, cluster, here_and_there, monkeypatch
) -> None:
    asked = len(cluster.server.requests)
    assert "1 of 3 nodes marked" in (await call("nodes"))[1]
    assert "worker-1 is marked" in (await call("why", "worker-1"))[1]
    assert len(cluster.server.requests) == asked
    monkeypatch.setattr(client, "DEFAULT_SERVER", NOWHERE)
    code, out, errors = await call("why", "worker-2")
    assert (code, errors, "worker-2 is marked" in out) == (0, "", True)


async def test_the_one_that_is_named_is_asked(call, cluster, here_and_there, monkeypatch) -> None:
    url = here_and_there[0].url
    kubeconfig = str(cluster.kubeconfig)
    for main, flags, environment, asked in (
        # kubectl means its cluster unless a server is named
        (kubectl_plugin.main, (), False, "worker-2"),
        (kubectl_plugin.main, ("--server", url), False, "worker-1"),
        (kubectl_plugin.main, (), True, "worker-1"),
        # a cluster that is named, whatever answers here
        (commands.main, ("--context", "sim"), True, "worker-2"),
        (commands.main, ("-n", "dynsched"), True, "worker-2"),
        (commands.main, ("--kubeconfig", kubeconfig), True, "worker-2"),
    ):
        if environment:
            monkeypatch.setenv("DYNSCHED_SERVER", url)
        assert f"{asked} is marked" in (await call("why", asked, *flags, main=main))[1], flags


async def test_another_program_on_that_port_is_not_taken_for_dynsched(
    call, here_and_there, monkeypatch
) -> None:
    async with answering({"ok": True}, 200) as url:
        monkeypatch.setattr(client, "DEFAULT_SERVER", url)
        assert "worker-2 is marked" in (await call("why", "worker-2"))[1]


@asynccontextmanager
async def answering(body: object, status: int) -> AsyncIterator[str]:
    """A server that answers so to everything but the probe."""

    async def answer(request: web.Request) -> web.Response:
        is_probe = request.path == "/healthz"  # it needs no token
        return web.json_response(body, status=200 if is_probe else status)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_one_that_is_not_well_here_is_still_the_one_that_is_meant(
    call, cluster, monkeypatch
) -> None:
    pages = Pages()
    async with served(pages):
        monkeypatch.setattr(client, "DEFAULT_SERVER", pages.url)
        code, _, errors = await call("nodes")
    assert (code, errors) == (1, "Error: no tick has finished yet; try again soon\n")


async def test_one_that_wants_a_token_is_known_and_through_the_cluster_it_says_what_to_do(
    call, cluster, monkeypatch
) -> None:
    needed = "a bearer token is needed"
    async with answering({"error": needed}, 401) as url:
        async with service(cluster, url):
            _, _, errors = await call("nodes", main=kubectl_plugin.main)
            assert errors.startswith(f"Error: {needed}; the API server passes no ")
            assert errors.endswith("--server and --server-token-file\n")
        monkeypatch.setattr(client, "DEFAULT_SERVER", url)
        named = "name a file that holds the token with --server-token-file"
        assert (await call("nodes"))[2] == f"Error: {needed}; {named}\n"


async def test_open_says_that_a_browser_sends_no_token_and_starts_no_proxy(
    call, cluster, monkeypatch, tmp_path
) -> None:
    needed, token = "a bearer token is needed", tmp_path / "token"
    token.write_text("abc")
    monkeypatch.setenv("PATH", "")  # where kubectl was looked for, that would be said
    async with answering({"error": needed}, 401) as url, service(cluster, url):
        for words in ((), ("--server", url, "--server-token-file", str(token))):
            code, out, errors = await call("open", "--no-browser", *words)
            assert (code, out) == (1, "")
            assert errors.startswith(f"Error: {needed}; a browser sends none, so something before")
            assert errors.endswith("(docs/web-auth.md)\n")


async def test_none_anywhere_is_one_line_with_both_places(call, cluster) -> None:
    code, _, errors = await call("nodes", "--server", NOWHERE, "--context", "a")
    assert (code, "--server and --context contradict each other" in errors) == (2, True)
    code, _, errors = await call("nodes")
    assert code == 1
    (line,) = errors.splitlines()
    assert line.startswith(f"Error: found no running dynsched: none answers at {NOWHERE} (--se")
    assert "no Service with the label app.kubernetes.io/name=dynsched in any namespace" in line
    assert line.endswith("is this the right context?")


async def test_no_right_is_one_line(call, cluster, tmp_path) -> None:
    async with service(cluster, None):
        stranger(cluster, tmp_path)
        code, _, errors = await call("nodes", main=kubectl_plugin.main)
    assert code == 1
    assert errors.startswith("Error: may not get services/proxy http:dynsched:9000")
    assert len(errors.splitlines()) == 1


async def test_the_answer_through_the_cluster_is_the_same(call, cluster) -> None:
    pages = hot("worker_3")
    async with served(pages), service(cluster, pages.url):
        for words in (("nodes", "-o", "json"), ("why", "a#b é")):
            through = await call(*words, "-n", "dynsched")
            assert through == await call(*words, "--server", pages.url)
    assert through == (
        1,
        "",
        "Error: no node 'a#b é' in the cluster; /nodes and `dynsched nodes` list them\n",
    )


async def test_open_with_a_url_prints_its_page_and_ends(call, cluster, monkeypatch) -> None:
    pages = hot("worker_1")
    monkeypatch.setenv("PATH", "")
    async with served(pages), service(cluster, pages.url):
        opened = await call("open", "--server", f"{pages.url}/", "--no-browser")
        assert opened == (0, f"{pages.url}/\n", "")
        code, out, errors = await call("open")
    assert (code, out) == (1, "")
    assert errors.startswith("Error: kubectl is not on PATH")
    code, _, errors = await call("open", "--server", NOWHERE, "--no-browser")
    assert (code, errors.splitlines()[0].startswith(f"Error: cannot ask {NOWHERE}: ")) == (1, True)
