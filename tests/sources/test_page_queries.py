"""The page's queries and when they are sent: to a fake Prometheus, and to a real one with the
series of kube-state-metrics and the kubelets."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from builders import NOON, rule, rule_set
from source_past import NOW
from source_support import Fake, vector
from store_support import Clock

from dynsched.core.load.pods import AboveRequest
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult
from dynsched.sources import page_queries
from dynsched.sources.page_queries import EVERY, HOTTEST, PageQueries
from dynsched.sources.prometheus import PrometheusSource

RULES = rule_set(rule("node-cpu", resource="cpu"), rule("node-mem", resource="memory"))
CORES = {"cpu": 4.0, "memory": 2.0**33}
NODES = {name: Node(name, allocatable=CORES) for name in ("a", "b.example")}


class Page:
    """Where the answers go."""

    def __init__(self, *hottest: str) -> None:
        self.requested: Mapping[str, Mapping[str, int]] = {}
        self.above: Mapping[str, Any] | None = None
        self.is_looked_at = True
        self.names = list(hottest)

    def hottest(self, most: int) -> list[str]:
        return self.names[:most]


class World:
    """A source on a clock that the test moves."""

    def __init__(self, page: Page, rules=RULES, **answers: Any) -> None:
        self.prometheus = Fake(**answers)
        self.page = page
        self.clock = Clock(NOON)
        self.source = PageQueries(
            self.prometheus,
            page,
            rule_set=lambda: rules,
            nodes=lambda: NODES,
            monotonic=self.clock,
        )

    async def ask(self, seconds: float = 0.0, part: str = "") -> list[str]:
        """The expressions with ``part`` in them that are asked after so many more seconds."""
        self.clock.now += seconds
        self.prometheus.asked.clear()
        await self.source.query()
        return [expr for expr in self.prometheus.asked if part in expr]


async def test_requests_are_compared_with_what_the_node_can_give_and_kept_when_a_query_fails():
    cpu = vector(({"node": "a"}, 3.0), ({"node": "gone"}, 1.0))
    memory = vector(({"node": "b.example"}, 2.0**32))
    world = World(Page("a"), **{'resource="cpu"': cpu, 'resource="memory"': memory})
    await world.ask()
    assert world.page.requested == {"cpu": {"a": 75}, "memory": {"b.example": 50}}
    world.prometheus.answers['resource="cpu"'] = QueryResult(error="connection refused")
    assert not await world.ask(EVERY - 1, "resource_requests")  # however often somebody looks
    assert await world.ask(2, "resource_requests")
    assert world.page.requested == {"cpu": {"a": 75}, "memory": {"b.example": 50}}
    # Only for resources that a rule names whose values rise with load.
    free = rule("free", resource="memory", op="<", threshold=10)
    assert not await World(Page("a"), rule_set(free, rule("load"))).ask(0, "kube_pod_status_phase")


async def test_pods_above_their_requests_are_asked_of_the_hottest_nodes_the_furthest_first():
    names = [f"n{number}" for number in range(500)]
    asked = await World(Page(*names)).ask(0, "topk")
    assert len(asked) == 2
    assert all(f"n{HOTTEST - 1}" in expr and f"n{HOTTEST}|" not in expr for expr in asked)

    def used(above: float, pod: str) -> tuple[Mapping[str, str], float]:
        return {"node": "a", "namespace": "shop", "pod": pod}, above

    world = World(
        Page("a", "b.example"),
        container_memory=vector(used(2.0**30, "web")),
        container_cpu=vector(used(0.5, "web"), used(2.5, "batch"), used(float("nan"), "odd")),
    )
    await world.ask()
    assert world.page.above == {
        "a": [
            AboveRequest("shop/batch", "cpu", 2.5),
            AboveRequest("shop/web", "cpu", 0.5),
            AboveRequest("shop/web", "memory", 2.0**30),
        ],
        "b.example": [],
    }
    # A sample without labels says that no pod is above; no sample, that it is not known.
    for answers, above in (({"container_cpu": vector(({}, 0.0))}, {"a": []}), ({}, None)):
        world = World(Page("a"), **answers)
        await world.ask()
        assert world.page.above == above


async def test_nothing_is_asked_while_nobody_looks() -> None:
    for is_looked_at in (False, True):
        world, stop = World(Page("a")), asyncio.Event()
        world.page.is_looked_at = is_looked_at
        task = asyncio.create_task(world.source.run(stop))
        for _ in range(50):
            await asyncio.sleep(0)
        stop.set()
        await task
        assert bool(world.prometheus.asked) == is_looked_at


async def values(source: PrometheusSource, expr: str, *labels: str) -> dict[Any, float]:
    """At the moment at which the pods were placed."""
    answer = await source.query_range(expr, NOW, NOW, 1)
    assert answer.error is None
    return {tuple(one.labels[label] for label in labels): one.points[0][1] for one in answer.series}


@pytest.mark.slow
async def test_what_a_real_prometheus_answers(source) -> None:
    # Requests count once, and not of pods that ended.
    assert await values(source, page_queries.requested("cpu"), "node") == {("a",): 4.5}
    # A pod without requests is above them by all that it uses.
    above = page_queries.above("cpu", ["a", "b.example"])
    assert await values(source, above, "node", "namespace", "pod") == {
        ("a", "shop", "web"): pytest.approx(1.0),
        ("b.example", "shop", "greedy"): pytest.approx(0.5),
    }
    assert await values(source, page_queries.above("cpu", ["b"])) == {(): 0.0}
