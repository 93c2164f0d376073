"""The load as Prometheus's answers to the demo's rules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from source_support import source_at
from store_support import Clock

import dynsched_sim
from dynsched.rules.file import load_rules
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.prometheus import PrometheusSource
from dynsched_sim.load import DemoLoad
from dynsched_sim.prometheus_api import Machine, SimulatedPrometheus

MACHINES = [Machine(f"worker-{index}", f"10.0.0.{index}") for index in range(12)]
BEGIN = 1_800_000_000.0


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_rules(Path(dynsched_sim.__file__).with_name("demo-rules.yaml"))


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[tuple[str, PrometheusSource]]:
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        source = source_at(url)
        yield url, source


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_is_as_of_the_time_that_was_asked_for(rules, method) -> None:
    clock, load = Clock(BEGIN), DemoLoad(len(MACHINES))
    simulated = SimulatedPrometheus(MACHINES, rules, load, clock=clock)
    for second in range(102):
        for pod in load.go_on(second)[1]:
            load.place(pod, [0] * len(MACHINES))
    clock.now += 100
    ask = {"query": rules.rules[0].expr, "time": str(BEGIN + 40)}
    how = {"params": ask} if method == "GET" else {"data": ask}
    async with served(simulated.application()) as (url, source):
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{url}/api/v1/query", **how) as answer,
        ):
            body = await answer.json()
        for rule in rules.rules:
            read = await source.query(rule)
            assert (read.error, read.warnings) == (None, ())
            assert [s.labels["instance"] for s in read.samples] == [m.instance for m in MACHINES]
            assert all(0 < sample.value < 100 for sample in read.samples)
    assert (body["status"], body["data"]["resultType"]) == ("success", "vector")
    at, value = body["data"]["result"][3]["value"]
    assert at == BEGIN + 40
    assert float(value) == pytest.approx(load.at(40)["node-cpu"][3])


async def test_anything_else_is_refused_and_says_what_this_is(rules) -> None:
    simulated = SimulatedPrometheus(MACHINES, rules, DemoLoad(len(MACHINES)))
    async with served(simulated.application()) as (url, source), aiohttp.ClientSession() as session:
        other = await source.query(Rule(name="other", expr="up", threshold=1))
        assert other.samples == ()
        assert "this is the simulator of dynsched demo, not a Prometheus" in (other.error or "")
        async with session.get(f"{url}/api/v1/labels") as answer:
            assert answer.status == 400
            body = await answer.json()
        assert (body["status"], body["errorType"]) == ("error", "bad_data")
