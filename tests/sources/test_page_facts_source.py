"""What is asked of Prometheus for the page: when, how often, and what becomes of the answers; by a
fake one, and by the real program with the series of kube-state-metrics and the kubelets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from builders import NOON, rule, rule_set
from prometheus_support import Exporter, Process, RealPrometheus
from store_support import Clock

from dynsched.core.model import Node, QueryResult, Sample, Series
from dynsched.core.overload import DAY, DAYS, Overload, day_of, name_of
from dynsched.core.page_facts import AboveRequest
from dynsched.core.placements import STEP, STEPS
from dynsched.sources import page_facts, page_queries
from dynsched.sources.page_facts import HOTTEST, PageFactsSource
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource, RangeResult

RULES = rule_set(rule("node-cpu", resource="cpu"), rule("node-mem", resource="memory"))
CORES = {"cpu": 4.0, "memory": 2.0**33}
NODES = {name: Node(name, allocatable=CORES) for name in ("a", "b.example")}


class Board:
    """What the source was told."""

    def __init__(self, *hottest: str) -> None:
        self.requested: Mapping[str, Mapping[str, int]] = {}
        self.above: Mapping[str, Any] | None = None
        self.overload = Overload()
        self.is_looked_at = True
        self.names = list(hottest)
        self.steps: list[tuple[float, Mapping[str, int]]] = []

    def hottest(self, most: int) -> list[str]:
        return self.names[:most]

    def placed(self, begins: float, nodes: Mapping[str, int]) -> None:
        self.steps.append((begins, nodes))


class Fake:
    """Answers an expression by the first of ``answers`` whose key is in it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.ranges: list[tuple[float, float, float]] = []

    def _find(self, expr: str, none: Any) -> Any:
        self.asked.append(expr)
        return next((found for key, found in self.answers.items() if key in expr), none)

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        return self._find(expr, QueryResult())

    async def query_range(
        self, expr: str, start: float, end: float, step: float, label: str = "instance"
    ) -> RangeResult:
        self.ranges.append((start, end, step))
        return self._find(expr, RangeResult())


class World:
    """A source on a clock that the test moves."""

    def __init__(self, board: Board, rules=RULES, *, watches_pods=False, **answers: Any) -> None:
        self.prometheus = Fake(**answers)
        self.board = board
        self.clock = Clock(NOON)
        self.source = PageFactsSource(
            self.prometheus,
            board,
            rule_set=lambda: rules,
            nodes=lambda: NODES,
            watches_pods=lambda: watches_pods,
            namespace="dynsched",
            clock=self.clock,
            monotonic=self.clock,
        )

    async def ask(self, seconds: float = 0.0) -> list[str]:
        """The expressions that are asked after so many more seconds."""
        self.clock.now += seconds
        self.prometheus.asked.clear()
        await self.source.ask()
        return list(self.prometheus.asked)


def vector(*samples: tuple[float, Mapping[str, str]]) -> QueryResult:
    return QueryResult(tuple(Sample(labels, value, NOON) for value, labels in samples))


FAILED = QueryResult(error="Prometheus at http://p: connection refused")


# What is requested


async def test_what_pods_request_is_compared_with_what_the_node_can_give() -> None:
    world = World(
        Board(),
        **{
            'resource="cpu"': vector((3.0, {"node": "a"}), (1.0, {"node": "gone"})),
            'resource="memory"': vector((2.0**32, {"node": "b.example"})),
        },
    )
    await world.ask()
    assert world.board.requested == {"cpu": {"a": 75}, "memory": {"b.example": 50}}


async def test_only_resources_that_rules_name_are_asked_for() -> None:
    free = rule("free", resource="memory", op="<", threshold=10)
    world = World(Board(), rule_set(free, rule("load")))
    assert not [expr for expr in await world.ask() if "resource_requests" in expr]


async def test_what_fails_keeps_what_was_known_and_is_told_once(caplog) -> None:
    caplog.set_level(logging.INFO)
    world = World(Board("a"), **{'resource="cpu"': vector((3.0, {"node": "a"}))})
    await world.ask()
    world.prometheus.answers = {"": FAILED}
    for _ in range(3):
        await world.ask(page_facts.RARELY)
    assert world.board.requested["cpu"] == {"a": 75}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)) > 1
    assert all("connection refused" in line for line in told)


# Pods above their requests


async def test_pods_above_their_requests_are_asked_of_the_hottest_nodes_alone() -> None:
    names = [f"n{number}" for number in range(500)]
    expr = page_queries.above("cpu", ["a", "b.example"])
    assert 'node=~"a|b[.]example"' in expr
    asked = [expr for expr in await World(Board(*names)).ask() if "topk" in expr]
    assert len(asked) == 2
    assert all(f"n{HOTTEST - 1}" in expr and f"n{HOTTEST}|" not in expr for expr in asked)


async def test_they_are_listed_by_node_the_furthest_first() -> None:
    def used(above: float, pod: str) -> tuple[float, Mapping[str, str]]:
        return above, {"node": "a", "namespace": "shop", "pod": pod}

    world = World(
        Board("a", "b.example"),
        container_cpu=vector(used(0.5, "web"), used(2.5, "batch"), used(float("nan"), "odd")),
        container_memory=vector(used(2.0**30, "web")),
    )
    await world.ask()
    assert world.board.above == {
        "a": [
            AboveRequest("shop/batch", "cpu", 2.5),
            AboveRequest("shop/web", "cpu", 0.5),
            AboveRequest("shop/web", "memory", 2.0**30),
        ],
        "b.example": [],
    }


async def test_that_no_pod_is_above_is_told_from_not_knowing() -> None:
    world = World(Board("a"), **{page_queries.ARE_KNOWN: vector((1.0, {}))})
    await world.ask()
    assert world.board.above == {"a": []}
    unknown = World(Board("a"))
    await unknown.ask()
    assert unknown.board.above is None


# Placements


def steps_of(*pods: tuple[float, str]) -> RangeResult:
    """``pods``: how many seconds before noon a step ends, and its node."""
    late = page_queries.SCRAPED_AFTER
    points = ((name, (NOON - NOON % STEP - ago + late, 1.0)) for ago, name in pods)
    return RangeResult(tuple(Series({"node": name}, (point,)) for name, point in points))


async def test_placements_of_the_last_hour_come_with_one_query_and_then_step_by_step() -> None:
    late = page_queries.SCRAPED_AFTER
    world = World(
        Board(),
        **{
            "count(kube_pod_status_scheduled_time)": vector((9.0, {})),
            "time()": steps_of((STEP, "a"), (0.0, "a"), (0.0, "b.example")),
        },
    )
    await world.ask()
    ends = NOON - NOON % STEP
    assert NOON - ends > late
    assert world.prometheus.ranges == [(ends - (STEPS - 1) * STEP + late, ends + late, STEP)]
    assert [begins for begins, _ in world.board.steps] == [
        ends - STEP * ago for ago in range(STEPS, 0, -1)
    ]
    known = dict(world.board.steps)
    assert known[ends - 2 * STEP] == {"a": 1}
    assert known[ends - STEP] == {"a": 1, "b.example": 1}
    for _ in range(10):
        await world.ask(30.0)
    assert world.prometheus.ranges[1:] == [(ends + STEP + late, ends + STEP + late, STEP)]


async def test_where_pods_are_watched_placements_are_not_asked_for() -> None:
    world = World(Board(), watches_pods=True, count=vector((9.0, {})))
    await world.ask()
    assert world.prometheus.ranges == []
    assert world.board.steps == []


async def test_without_the_moment_of_scheduling_that_of_creation_counts() -> None:
    world = World(Board(), **{"count(kube_pod_created)": vector((9.0, {}))})
    assert [expr for expr in await world.ask() if "kube_pod_created >" in expr]


async def test_a_step_whose_query_fails_is_asked_for_again() -> None:
    world = World(
        Board(),
        **{"count(kube_pod_status": vector((9.0, {})), "time()": RangeResult(error="timeout")},
    )
    await world.ask()
    assert world.board.steps == []
    assert not [expr for expr in await world.ask(30.0) if "time()" in expr]
    world.prometheus.answers["time()"] = RangeResult()
    await world.ask(page_facts.EVERY)
    assert len(world.board.steps) == STEPS


# Overload by day


async def test_past_days_are_filled_from_dynscheds_own_metrics() -> None:
    today = day_of(NOON)
    world = World(
        Board(),
        pressured_nodes=vector(
            (0.25, {"day": name_of(today - 2), "namespace": "x"}),
            (float("nan"), {"day": name_of(today - 1), "namespace": "x"}),
            (0.5, {"day": "1999-12-31", "namespace": "x"}),
        ),
    )
    await world.ask()
    columns = world.board.overload.columns(NOON)
    assert columns == {
        "days": [name_of(today - ago) for ago in (2, 1, 0)],
        "share": [0.25, None, None],
    }


def test_a_day_that_has_just_begun_is_not_asked_for_and_the_whole_ones_are() -> None:
    midnight = (day_of(NOON) + 1) * DAY
    expr = page_queries.overload(midnight + 1)
    assert expr.count("label_replace") == DAYS - 1
    assert f'[86400s:300s] offset 1s), "day", "{name_of(day_of(NOON))}"' in expr
    expr = page_queries.overload(midnight + 3600)
    assert expr.count("label_replace") == DAYS
    assert f'[3600s:300s]), "day", "{name_of(day_of(NOON) + 1)}"' in expr


async def test_of_several_dynsched_in_one_prometheus_it_takes_its_own() -> None:
    day = name_of(day_of(NOON))
    both = [(0.25, {"day": day, "namespace": "x"}), (0.75, {"day": day, "namespace": "dynsched"})]
    world = World(Board(), pressured_nodes=vector(*both))
    await world.ask()
    assert world.board.overload.columns(NOON)["share"] == [0.75]
    others = [(0.25, {"day": day, "namespace": "x"}), (0.75, {"day": day, "namespace": "y"})]
    world = World(Board(), pressured_nodes=vector(*others))
    await world.ask()
    assert world.board.overload.columns(NOON) is None


# When it asks


async def test_it_asks_every_five_minutes_however_often_somebody_looks() -> None:
    world = World(
        Board("a"),
        **{
            'resource="cpu"': vector((3.0, {"node": "a", "namespace": "s", "pod": "p"})),
            "scheduled_time": vector((1.0, {})),
        },
    )
    assert await world.ask()
    asked = [expr for _ in range(60) for expr in await world.ask(4.9)]
    assert [expr for expr in asked if "resource_requests" in expr] == []
    assert len([expr for expr in await world.ask(10.0) if "resource_requests" in expr]) == 4


async def test_what_does_not_exist_is_asked_for_again_after_an_hour() -> None:
    world = World(Board("a"))
    first = set(await world.ask())
    asked = [expr for _ in range(11) for expr in await world.ask(300.0)]
    assert asked == []
    assert len(await world.ask(301.0)) == len(first)


async def test_nothing_is_asked_while_nobody_looks(monkeypatch) -> None:
    monkeypatch.setattr(page_facts, "_POLL", 0.01)
    world, stop = World(Board("a")), asyncio.Event()
    world.board.is_looked_at = False
    task = asyncio.create_task(world.source.run(stop))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.prometheus.asked == []
    world.board.is_looked_at = True
    async with asyncio.timeout(5):
        while not world.prometheus.asked:
            await asyncio.sleep(0.01)
        stop.set()
        await task


async def test_a_defect_in_it_ends_nothing(caplog) -> None:
    world = World(Board("a"))
    world.board.hottest = None  # type: ignore[assignment]  # a defect
    await world.ask()
    assert "could not be asked for" in caplog.text
    assert [expr for expr in world.prometheus.asked if "pressured" in expr]


# The real program

INTERVAL = 1.0


class ClusterMetrics(Exporter):
    """Series of two nodes' pods, as two replicas of kube-state-metrics and the kubelets give them.

    ``web`` requests a core and uses two, in two containers; ``quiet`` requests three and uses
    none; ``greedy`` requests nothing and uses half a core; ``done`` has ended; ``agent`` is of a
    DaemonSet. Half of the two nodes' time is hot.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started = time.time()

    @property
    def text(self) -> str:
        now = time.time()
        lines = ["dynsched_pressured_nodes 1", 'dynsched_nodes{eligible="true"} 2']
        for pod, node, requests, uses, phase, kind in (
            ("web", "a", 1.0, 2.0, "Running", "ReplicaSet"),
            ("quiet", "a", 3.0, 0.0, "Running", "ReplicaSet"),
            ("greedy", "b.example", None, 0.5, "Running", "ReplicaSet"),
            ("done", "a", 8.0, 0.0, "Succeeded", "Job"),
            ("agent", "a", 0.5, 0.0, "Running", "DaemonSet"),
        ):
            for copy in ("1", "2"):
                of_pod = f'replica="{copy}",namespace="shop",pod="{pod}",uid="uid-{pod}"'
                lines += [
                    f'kube_pod_info{{{of_pod},node="{node}",created_by_kind="{kind}"}} 1',
                    f'kube_pod_status_phase{{{of_pod},phase="{phase}"}} 1',
                    f"kube_pod_status_scheduled_time{{{of_pod}}} {self._started:.0f}",
                ]
                for container, kind_of, cores in (
                    ("main", "", requests and requests / 2),
                    ("side", "init_", requests and requests / 2),
                    ("setup", "init_", requests and 7.0),
                ):
                    of_it = f'{of_pod},container="{container}"'
                    if kind_of:
                        policy = "Always" if container == "side" else ""
                        lines.append(
                            f'kube_pod_init_container_info{{{of_it},restart_policy="{policy}"}} 1'
                        )
                    if cores is not None:
                        lines.append(
                            f"kube_pod_{kind_of}container_resource_requests{{{of_it},"
                            f'node="{node}",resource="cpu"}} {cores}'
                        )
            seconds = uses * (now - self._started) / 2
            for container in ("main", "side"):
                lines.append(
                    f'container_cpu_usage_seconds_total{{namespace="shop",pod="{pod}",'
                    f'container="{container}"}} {seconds}'
                )
        return "\n".join([*lines, ""])

    @text.setter
    def text(self, _: str) -> None: ...


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with ClusterMetrics() as metrics:
        target = {"targets": [metrics.target], "labels": {"namespace": "dynsched"}}
        scrape = [{"job_name": "all", "honor_labels": True, "static_configs": [target]}]
        with RealPrometheus(tmp_path_factory.mktemp("page-facts"), scrape) as running:
            running.wait_for("count_over_time(container_cpu_usage_seconds_total[1m]) >= 3")
            yield running


@pytest_asyncio.fixture
async def real(prometheus: Process) -> AsyncIterator[PrometheusSource]:
    source = PrometheusSource(PrometheusConfig(prometheus.url, timeout=10))
    yield source
    await source.close()


async def values(source: PrometheusSource, expr: str, *labels: str) -> dict[Any, float]:
    answer = await source.query_expr(expr, "node")
    assert answer.error is None
    return {
        tuple(sample.labels[label] for label in labels): sample.value for sample in answer.samples
    }


@pytest.mark.slow
async def test_requests_count_once_and_not_of_pods_that_ended(real: PrometheusSource) -> None:
    assert await values(real, page_queries.requested("cpu"), "node") == {("a",): 4.5}


@pytest.mark.slow
async def test_pods_without_requests_are_above_them_by_all_they_use(
    real: PrometheusSource,
) -> None:
    expr = page_queries.above("cpu", ["a", "b.example"])
    found = await values(real, expr, "node", "namespace", "pod")
    assert found == {
        ("a", "shop", "web"): pytest.approx(1.0, rel=0.3),
        ("b.example", "shop", "greedy"): pytest.approx(0.5, rel=0.3),
    }
    assert await values(real, page_queries.above("cpu", ["b"]), "node") == {}


@pytest.mark.slow
async def test_pods_are_counted_where_they_were_placed_within_the_step(
    real: PrometheusSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_queries, "SCRAPED_AFTER", 0.0)
    for moment in ("kube_pod_status_scheduled_time", "kube_pod_status_scheduled_time * 1"):
        found = await values(real, page_queries.placed(moment), "node")
        assert found == {("a",): 3.0, ("b.example",): 1.0}
    before = page_queries.placed("kube_pod_status_scheduled_time - 1000")
    assert await values(real, before, "node") == {}


@pytest.mark.slow
async def test_the_share_of_node_time_is_asked_for_by_day(
    real: PrometheusSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_queries, "_LEAST", 1.0)  # there are values of some seconds only
    monkeypatch.setattr(page_queries, "DAYS", 1)
    found = await values(real, page_queries.overload(time.time()), "day", "namespace")
    today = name_of(day_of(time.time()))
    assert found == {(today, "dynsched"): 0.5}
