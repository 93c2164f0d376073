"""The real process through starts, stops, reloads and outages. See docs/operate.md."""

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import SimCluster
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from pods_support import reached
from replica_support import (
    COOL,
    HOT,
    is_marked,
    metric,
    replica,
    rules,
    some_ticks,
    status,
    until_status,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def run(sim: SimCluster, prometheus: FakePrometheus, tmp_path: Path) -> Callable[..., Operator]:
    """Starts a `replica` on the simulated cluster; can be called several times."""
    return partial(replica, sim, prometheus, tmp_path, "--interval", "0.1")


async def until_marked(sim: SimCluster, names: str) -> None:
    await until(lambda: is_marked(sim, *names.split()), f"marked: {names}")


async def test_it_survives_an_api_server_that_is_down_at_the_start_and_later(
    sim, prometheus, run
) -> None:
    names = [f"n{index:02}" for index in range(60)]
    await sim.create_nodes(*names)
    prometheus.set(load={"n00": HOT})
    await sim.server.down()
    async with run() as operator:
        await operator.until(lambda code: code == 200, "/healthz")
        assert await operator.get("/readyz") == (503, "the nodes are not listed yet")
        assert (await operator.get("/status"))[0] == 503
        await sim.server.up()
        await operator.until_ready()
        await until_marked(sim, "n00")

        await sim.server.down()
        away = await until_status(operator, lambda found: not found["ok"])
        assert "connection refused" in away["error"]
        prometheus.set(load=dict.fromkeys(names, HOT))
        await until_status(operator, lambda found: found["nodes"]["pressured"] == 60)
        assert (await operator.nodes())["node_names"] == ["n00"]
        await some_ticks(operator, 5)
        sim.server.requests.clear()
        await sim.server.up()
        await until_marked(sim, " ".join(names))
        await until_status(operator, lambda found: found["ok"])

        taken = [w.name for w in sim.server.requests.writes("nodes") if w.status == 200]
        assert sorted(taken) == names[1:]  # each node once, no storm of retries
        refused = [line for line in operator.log.splitlines() if "connection refused" in line]
        assert len(refused) < 8  # neither per node nor per tick


async def test_after_a_crash_the_same_pod_continues_at_once(sim, prometheus, run) -> None:
    await sim.create_nodes("a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    pod = ("--pod-uid", "0e5f")
    async with run(*pod) as operator:
        await until_marked(sim, "a")
        os.kill(operator.process.pid, signal.SIGKILL)
        await operator.process.wait()
    prometheus.set(load={"a": HOT, "b": HOT})
    async with run(*pod, content=None) as operator:
        await until_marked(sim, "a b")
        leader = (await status(operator))["leader"]
        assert leader.endswith("_0e5f")
    lease = await sim.get_lease("dynsched")
    assert lease["spec"]["leaseTransitions"] == 0  # it still holds the Lease under its own name


REFUSED = [
    ("rules: [{name: load, threshold: 99}]", "rules[0].expr: is missing"),
    ("rules: [", "rules.yaml"),
    (None, "No such file"),
    ("rules: [{name: load, expr: 'load(', threshold: 99}]", "HTTP 400"),
    (os.mkfifo, "this is a pipe"),
]


async def test_a_refused_rules_file_leaves_the_old_rules_in_force(
    sim, prometheus, run, tmp_path
) -> None:
    """Good new rules are loaded later."""
    await sim.create_nodes("a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    prometheus.failing["load("] = 400
    file, other = tmp_path / "rules.yaml", tmp_path / "other"

    def put(content: Any) -> None:
        """Replace the file atomically: a tick in between finds the old file or the new one."""
        if content is None:
            return file.unlink()
        if content is os.mkfifo:
            os.mkfifo(other)
        else:
            other.write_text(content)
        return other.replace(file)

    async with run() as operator:
        await until_marked(sim, "a")
        for number, (content, error) in enumerate(REFUSED, 1):
            put(content)
            refused = 'dynsched_rules_reloads_total{result="refused"}'
            await reached(partial(metric, operator, refused), number)
            assert error in (await status(operator))["rules_error"]
        assert (await status(operator))["ok"]
        assert await metric(operator, "dynsched_rules_reload_success") == 0
        assert operator.log.count("the rules are refused") == len(REFUSED)
        prometheus.set(load={"a": COOL, "b": HOT})
        await until_marked(sim, "b")  # the old rules are in force

        put(yaml.safe_dump(rules(threshold=10)))
        await until_marked(sim, "a b")

        # The metric is published after the writes.
        await reached(partial(metric, operator, "dynsched_rules_reload_success"), 1)
        assert (await status(operator))["rules_error"] is None
        assert await metric(operator, 'dynsched_rules_reloads_total{result="success"}') == 1

        async def posted() -> bool:
            events = await sim.list_events("dynsched", "Lease")
            found = {event["reason"]: event["message"] for event in events}
            refusal = found.get("RulesRefused", "")
            return "is a pipe" in refusal and found.get("RulesReloaded") == "1 rule is in force"

        await until(posted, "the Events on the Lease")
        assert await operator.stop() == 0
    assert "Traceback" not in operator.log


async def test_sigterm_ends_it_while_every_api_request_hangs(sim, prometheus, run) -> None:
    """Patches, Events and the Lease hang for an hour."""
    names = [f"n{index:02}" for index in range(40)]
    await sim.create_nodes(*names)
    prometheus.set(load=dict.fromkeys(names, COOL))
    async with run() as operator:
        await operator.until_ready()
        sim.server.faults.delay(3600, resource="events")
        prometheus.set(load=dict.fromkeys(names, COOL) | {"n00": HOT})
        await until_marked(sim, "n00")
        sim.server.faults.delay(3600)
        prometheus.set(load=dict.fromkeys(names, HOT))

        def all_hang() -> bool:
            writes = sim.server.requests.writes()
            hanging = {write.resource for write in writes if not write.status}
            return hanging == {"nodes", "events", "leases"}

        await until(all_hang, "writes of all kinds under way")
        assert await operator.stop() == 0
        assert "Traceback" not in operator.log


async def test_a_blocked_reader_of_standard_error_delays_no_tick(sim, prometheus, run) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)

    def read_on() -> None:
        while os.read(reading, 65536):
            pass

    await sim.create_nodes("a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    async with run("--log-level", "debug", stderr=writing) as operator:
        os.close(writing)
        await until_marked(sim, "a")
        await some_ticks(operator, 5)
        prometheus.set(load={"a": COOL, "b": HOT})
        await until_marked(sim, "b")
        reader = asyncio.create_task(asyncio.to_thread(read_on))
        assert await operator.stop() == 0
        await reader
    os.close(reading)


SECRETS = {
    "kubernetes": "kube-token-hush",
    "password": "basic-password-hush",
    "header": "header-value-hush",
}


async def test_no_secret_gets_into_the_log(prometheus, tmp_path) -> None:
    """At level debug, with queries and requests that fail in many ways."""
    async with SimCluster(tmp_path, token=SECRETS["kubernetes"]) as sim:
        await sim.create_nodes("a", "b")
        prometheus.set(load={"a": HOT})
        header = f"X-Scope-OrgID: {SECRETS['header']}"
        login = ("--prom-username", "reader", "--prom-password", SECRETS["password"])
        flags = (*login, "--prom-header", header, "--log-level", "debug")
        async with replica(sim, prometheus, tmp_path, *flags) as operator:
            await until_marked(sim, "a")
            sent = str(prometheus.headers)
            pair = base64.b64encode(b"reader:basic-password-hush").decode()
            assert SECRETS["header"] in sent
            assert pair in sent

            prometheus.failing = {"*": 401}
            await until_status(operator, lambda found: "401" in str(found["error"]))
            await prometheus.down()
            await until_status(operator, lambda found: "refused" in str(found["error"]))
            await prometheus.up()
            prometheus.failing = {}
            prometheus.set(load={"a": HOT, "b": HOT})
            sim.server.faults.answer(500, verb="patch", times=4)
            sim.server.faults.reset(verb="patch", times=1)
            await until_marked(sim, "a b")
            sim.server.token = "another"
            await until_status(operator, lambda found: "credentials" in str(found["error"]))
            seen = (await operator.get("/rules"))[1] + str(await status(operator))
            assert await operator.stop() == 0
    assert "DEBUG" in operator.log
    for secret in (*SECRETS.values(), pair):
        assert secret not in operator.log + seen


async def test_a_forbidden_watch_ends_the_process(sim, run) -> None:
    sim.server.forbidden = {("list", "nodes")}
    async with run("--log-format", "json") as operator, asyncio.timeout(90):
        assert await operator.process.wait() == 1
    last = json.loads(operator.log.splitlines()[-1])
    assert (last["level"], "may not list nodes" in last["message"]) == ("CRITICAL", True)
    assert "Traceback" not in operator.log
