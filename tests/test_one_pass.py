"""`dynsched plan`, `run --once` and `prune` as a person calls them, on a simulated cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from bench import OPEN
from cluster import SimCluster
from fake_prometheus import FakePrometheus
from operator_support import write_rules

from dynsched import cli
from dynsched.sim.nodes import make_node

Ended = tuple[int, str, str]
Call = Callable[..., Awaitable[Ended]]
RULES = {
    "guard": OPEN,
    "rules": [
        {"name": "cpu", "expr": "cpu", "threshold": 80},
        {"name": "mem", "expr": "mem", "threshold": 80, "for": "1m"},
    ],
}


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as running:
        yield running


@pytest.fixture
async def cluster(sim: SimCluster) -> SimCluster:
    """With four nodes."""
    for index, name in enumerate("abcd"):
        await sim.create_node(make_node(name, index))
    return sim


@pytest.fixture
def call(
    cluster: SimCluster,
    prometheus: FakePrometheus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    logging_as_it_was: None,
) -> Call:
    """Run a command in a thread of this process: (exit code, stdout, stderr)."""
    common = ["--kubeconfig", str(cluster.kubeconfig)]
    asking = ["-r", str(write_rules(tmp_path, RULES)), "--prom", prometheus.url]

    def run(words: list[str]) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        return int(ended.value.code or 0)

    async def called(command: str, *more: str) -> Ended:
        words = [command, *common, *([] if command == "prune" else asking), *more]
        code = await asyncio.to_thread(run, words)
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


async def patched(cluster: SimCluster) -> list[str]:
    return [write.name for write in await cluster.writes() if write.verb == "patch"]


# plan


async def test_a_rule_that_could_not_be_queried_is_no_success(call, prometheus):
    """It ended with "Nothing to change." and 0; with `-o json` stdout was `[]`."""
    prometheus.set(cpu={"a": 10.0, "b": 20.0})
    prometheus.failing = {"mem": 400}

    code, output, errors = await call("plan")
    assert code == 1
    assert "Nothing to change" not in output
    assert errors.startswith(
        f"Error: rule mem could not be queried: Prometheus at {prometheus.url}"
    )
    assert len(errors.splitlines()) == 1

    code, output, _ = await call("plan", "-o", "json")
    report = json.loads(output)
    assert (code, report["ok"], report["patches"]) == (1, False, [])
    assert "HTTP 400" in {rule["name"]: rule["last_error"] for rule in report["rules"]}["mem"]
    values = {node["name"]: node["rules"][0]["value"] for node in report["nodes"]}
    assert values == {"a": 10.0, "b": 20.0, "c": None, "d": None}


async def test_a_plan_tells_what_it_cannot_see(call, prometheus):
    prometheus.set(cpu={"a": 95.0, "b": 20.0, "gone": 99.0}, mem={"a": 10.0, "b": 90.0})

    code, output, errors = await call("plan")

    assert (code, errors) == (0, "")
    assert "Pending: b (mem)" in output
    assert "Nothing is known of 2 nodes: c and d" in output
    assert "Rule cpu: no node for 1 sample (gone): no node has this name or address" in output
    assert [" ".join(line.split()[:5]) for line in output.splitlines()[2:6]] == [
        "a cpu 95 > 80",
        "b mem 90 > 80",
        "b cpu 20 > 80",
        "a mem 10 > 80",
    ]
    assert "mark    a" in output


async def test_a_prometheus_that_cannot_be_reached_is_one_line(call, prometheus):
    """It was three lines a rule."""
    await prometheus.down()

    code, output, errors = await call("plan")

    assert (code, output) == (1, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("Error: no rule could be queried: Prometheus at ")
    assert "connection refused" in errors


async def test_the_log_of_a_plan_is_there_for_who_asks(call, prometheus):
    prometheus.set(cpu={"a": 1.0}, mem={"a": 1.0})
    assert "the last 1m10s are replayed" in (await call("plan", "--log-level", "info"))[2]
