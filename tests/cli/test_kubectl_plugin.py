"""A real kubectl runs the plugin and its completion."""

import asyncio
import os
import signal
import subprocess
import sys

import aiohttp
import pytest
from cluster import Cluster
from plugin_support import ended_by_ctrl_c, line_of, started
from programs import run
from service_support import Pages, served, service

from dynsched.cli.kubectl_plugin import COMMANDS, completions

pytestmark = pytest.mark.slow

HTML = {"Accept": "text/html"}


@pytest.fixture
def cluster(sim) -> Cluster:
    """The simulated one: what a real API server does here, is seen in another module."""
    return sim


async def test_its_help_calls_it_by_the_name_that_was_typed(kubectl) -> None:
    code, out, _ = await kubectl("dynsched", "why", "--help")
    assert code == 0
    assert out.startswith("Usage: kubectl dynsched why ")
    assert "\n    kubectl dynsched why worker-3\n" in out
    _, out, _ = await kubectl("dynsched", "--help")
    for command in COMMANDS:
        assert f"\n  {command} " in out
    _, listed, errors = await kubectl("plugin", "list")
    assert "kubectl-dynsched" in listed
    assert "not executable" not in errors  # another copy on PATH is also warned of
    code, _, errors = await kubectl("dynsched", "run")
    assert (code, "No such command 'run'" in errors) == (2, True)
    code, _, errors = await kubectl("dynsched", "--context", "production", "nodes")
    assert (code, "No such option '--context'" in errors) == (2, True)


async def test_kubectl_completes_commands_flags_and_nodes(kubectl, pages) -> None:
    async def completed(*words: str) -> tuple[list[str], str]:
        code, out, _ = await kubectl("__complete", "dynsched", *words)
        assert code == 0
        *lines, directive = out.splitlines()
        return [line.partition("\t")[0] for line in lines], directive

    assert await completed("") == (list(COMMANDS), ":4")
    assert await completed("why", "worker-") == (["worker-1", "worker-2", "worker-3"], ":4")
    assert await completed("plan", "--rules", "") == ([], ":0")  # the shell offers files
    told = dict(line.split("\t") for line in completions([""]) if "\t" in line)
    assert told["doctor"] == "Check the rules against the live Prometheus and the cluster"


def test_a_reader_that_has_closed_the_pipe_ends_the_completion_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "from dynsched.cli.kubectl_plugin import complete; complete()"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


async def test_open_leads_to_the_page_and_to_nothing_else_and_ends_with_ctrl_c(
    environment, pages
) -> None:
    async with started(environment, "open", "--no-browser") as process:
        url = await line_of(process)
        host = url.partition("/api/")[0]
        assert url == f"{host}/api/v1/namespaces/dynsched/services/http:dynsched:9000/proxy/"
        async with aiohttp.ClientSession() as session:
            async with session.get(url, headers=HTML) as page:
                assert (page.status, page.content_type) == (200, "text/html")
                assert 'src="page/page.js"' in await page.text()
            async with session.get(f"{url}page/data") as data:
                assert data.status == 200
            for other in (f"{host}/api/v1/nodes", f"{host}/version"):
                async with session.get(other) as refused:
                    assert refused.status == 403
            async with session.post(f"{url}filter", json={}) as refused:
                assert refused.status == 403
        children = running("proxy", below=process.pid)
        assert await ended_by_ctrl_c(process) == (0, "", "The page can be reached until Ctrl-C.\n")
    assert children
    assert not children & running("proxy")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


def running(word: str, below: int | None = None) -> set[str]:
    """The ids of processes with a word in their command line, of all or of those below one."""
    found = run("ps", "-eo", "pid=,ppid=,args=", check=True)
    rows = [line.split(maxsplit=2) for line in found.stdout.splitlines()]
    family = {row[0] for row in rows} if below is None else {str(below)}
    while more := {row[0] for row in rows if row[1] in family} - family:
        family |= more
    return {row[0] for row in rows if row[0] in family and f" {word} " in row[2]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_open_takes_its_proxy_with_it_whatever_ends_it(environment, pages, number) -> None:
    async with started(environment, "open", "--no-browser") as process:
        await line_of(process)
        children = running("proxy", below=process.pid)
        process.send_signal(number)
        await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, bool(children)) == (128 + number, True)
    assert not children & running("proxy")


async def test_open_starts_the_browser_and_says_first_why_it_cannot(
    environment, kubectl, cluster, tmp_path
) -> None:
    async with service(cluster, None):
        code, out, errors = await kubectl("dynsched", "open")
    assert (code, out) == (1, "")
    assert errors.startswith("Error: no pod of dynsched is ready behind the Service dynsched")
    told, browser = tmp_path / "told", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {told}.new && mv {told}.new {told}\n')
    browser.chmod(0o755)
    shown = Pages()
    shown.tick()
    async with (
        served(shown, cluster),
        service(cluster, shown.url),
        started(environment | {"BROWSER": str(browser)}, "open") as process,
    ):
        url = await line_of(process)
        async with asyncio.timeout(60):
            while not told.exists():
                await asyncio.sleep(0.05)
    assert told.read_text() == url


async def test_a_watch_in_a_pipe_goes_on_and_ends_quietly(environment, pages) -> None:
    async with started(environment, "nodes", "--watch") as process:
        names = [(await line_of(process)).split()[0] for _ in range(4)]
        assert names == ["NODE", "worker-2", "worker-1", "worker-3"]
        pages.tick(worker_2=91.0, worker_1=91.0)
        changed = await line_of(process)
        assert changed.startswith("worker-1")
        assert "pending" in changed
        assert await ended_by_ctrl_c(process) == (0, "", "")
