"""The load as metrics, and as answers: what a real Prometheus makes of it, and the simulator."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from programs import need
from prometheus_client.parser import text_string_to_metric_families
from source_support import source_at

import dynsched.sim
from dynsched.rules.file import load_rules
from dynsched.rules.labels import LabelMark
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sim.exporter import CPUS, MEMORY_BYTES, Exporter, Machine
from dynsched.sim.load import NodeLoad, node_load
from dynsched.sim.pod_metrics import CORES
from dynsched.sim.pods import make_pods
from dynsched.sim.processes import Workspace
from dynsched.sim.prometheus import start_prometheus
from dynsched.sources.prometheus import PrometheusSource

MACHINES = [Machine(f"worker-{index}", f"10.0.0.{index}") for index in range(12)]
BEGIN = 1_800_000_000.0


class Clock:
    now = BEGIN

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_rules(Path(dynsched.sim.__file__).with_name("demo-rules.yaml"))


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[tuple[str, PrometheusSource]]:
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        async with source_at(url) as source:
            yield url, source


def samples(page: str) -> dict[tuple[str, str, str, str], float]:
    """(metric, instance, cpu, mode) -> value."""
    every = [s for family in text_string_to_metric_families(page) for s in family.samples]
    return {
        (s.name, s.labels["instance"], s.labels.get("cpu", ""), s.labels.get("mode", "")): s.value
        for s in every
    }


def test_the_page_has_every_series_once_and_the_load_is_in_it() -> None:
    clock = Clock()
    exporter = Exporter(MACHINES, seed=5, clock=clock)
    clock.now += 20
    before = samples(exporter.page())
    clock.now += 5
    page = exporter.page()
    after = samples(page)
    assert len(after) == len(MACHINES) * (CPUS * 3 + 2)
    assert len(after) == sum(not line.startswith("#") for line in page.splitlines())
    assert 'instance="10.0.0.3:9100",node="worker-3"' in page
    for index, machine in enumerate(MACHINES):
        grown = {
            mode: after[key] - before[key]
            for mode in ("idle", "system", "user")
            for key in [("node_cpu_seconds_total", machine.instance, "1", mode)]
        }
        assert sum(grown.values()) == pytest.approx(5, abs=0.001)
        busy = 100 * (1 - grown["idle"] / 5)
        assert busy == pytest.approx(node_load(index, 5).mean_cpu(20, 25), abs=0.01)
        assert after["node_memory_MemTotal_bytes", machine.instance, "", ""] == MEMORY_BYTES
        free = after["node_memory_MemAvailable_bytes", machine.instance, "", ""]
        used = 100 * (1 - free / MEMORY_BYTES)
        assert used == pytest.approx(node_load(index, 5).memory(25), abs=0.001)


def test_the_pods_on_a_machine_share_its_load() -> None:
    clock = Clock()
    names = [machine.name for machine in MACHINES]
    pods = list(make_pods(names, LabelMark("status", "presure")))
    exporter = Exporter(MACHINES, pods=pods, clock=clock)
    clock.now += 30
    families = text_string_to_metric_families(exporter.page())
    found = [(family.name, s.labels, s.value) for family in families for s in family.samples]
    for index, name in enumerate(names):
        on_node = {body["metadata"]["name"] for _, body in pods if body["spec"]["nodeName"] == name}
        used = sum(
            value
            for metric, labels, value in found
            if metric == "container_cpu_usage_seconds_total" and labels["pod"] in on_node
        )
        assert used == pytest.approx(CORES * node_load(index).busy_seconds(30), rel=0.001)
    requests = [row for row in found if row[0] == "kube_pod_container_resource_requests"]
    each = {(labels["resource"], value) for _, labels, value in requests}
    assert each == {("cpu", 2.5), ("memory", 6 * 2.0**30)}
    assert len(requests) == 2 * len(pods)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_is_as_of_the_time_that_was_asked_for(rules, method) -> None:
    clock = Clock()
    exporter = Exporter(MACHINES, rule_set=rules, clock=clock)
    clock.now += 100
    ask = {"query": rules.rules[0].expr, "time": str(BEGIN + 40)}
    how = {"params": ask} if method == "GET" else {"data": ask}
    async with served(exporter.application()) as (url, source):
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
    assert float(value) == pytest.approx(node_load(3).mean_cpu(35, 40))


async def test_anything_else_is_refused_and_says_what_this_is(rules) -> None:
    exporter = Exporter(MACHINES, rule_set=rules)
    async with served(exporter.application()) as (url, source), aiohttp.ClientSession() as session:
        other = await source.query(Rule(name="other", expr="up", threshold=1))
        assert other.samples == ()
        assert "this is the simulator of dynsched demo, not a Prometheus" in (other.error or "")
        async with session.get(f"{url}/api/v1/labels") as answer:
            assert answer.status == 400
            body = await answer.json()
        assert (body["status"], body["errorType"]) == ("error", "bad_data")
        ask = {"query": rules.rules[0].expr, "time": "2026-11-20T12:00:00Z"}
        async with session.get(f"{url}/api/v1/query", params=ask) as answer:
            assert answer.status == 400
            assert "reads seconds only" in (await answer.json())["error"]


@pytest.mark.thorough
async def test_a_real_prometheus_and_the_simulator_say_the_same(rules) -> None:
    binary = need("prometheus", "Debian's prometheus")
    began, exporter = time.time(), Exporter(MACHINES, rule_set=rules)
    application = exporter.application()
    async with served(application) as (url, simulator), Workspace("dynsched-test-") as house:
        real = await start_prometheus(house, binary, url.removeprefix("http://"))
        async with source_at(real) as prometheus:
            for rule, load in zip(rules.rules, (NodeLoad.cpu, NodeLoad.memory), strict=True):
                found: list[dict[str, float]] = [{}]
                async with asyncio.timeout(60):  # a busy machine scrapes late, or not for a while
                    while any(each.keys() != {m.instance for m in MACHINES} for each in found):
                        answers = await asyncio.gather(
                            prometheus.query(rule), simulator.query(rule)
                        )
                        now = time.time() - began
                        found = [
                            {s.labels["instance"]: s.value for s in a.samples} for a in answers
                        ]
                for measured in found:
                    for index, machine in enumerate(MACHINES):
                        # Scrapes lie up to a second back, and the first rates are of short spans;
                        # but every mean lies between the extremes of its span.
                        lately = [load(node_load(index), now - ago / 10) for ago in range(75)]
                        value = measured[machine.instance]
                        assert min(lately) - 1 < value < max(lately) + 1
    assert not house.folder.exists()
