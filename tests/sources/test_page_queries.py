"""What is asked of Prometheus for the page, and when: of a fake one, and of the real program with
the series of kube-state-metrics and the kubelets."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from builders import NOON, rule, rule_set
from source_past import NOW
from source_support import Fake, vector
from store_support import Clock

from dynsched.engine.model import Node, QueryResult, Series
from dynsched.engine.placing.placements import DAY, DAYS, Overload, day_name, day_of
from dynsched.engine.pod_values import AboveRequest
from dynsched.sources import page_queries
from dynsched.sources.page_queries import HOTTEST, MAX_PASTS, PageQueries
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.source import RangeResult

RULES = rule_set(rule("node-cpu", resource="cpu"), rule("node-mem", resource="memory"))
CORES = {"cpu": 4.0, "memory": 2.0**33}
NODES = {name: Node(name, allocatable=CORES) for name in ("a", "b.example")}


class Board:
    """What the source was told."""

    def __init__(self, *hottest: str) -> None:
        self.requested: Mapping[str, Mapping[str, int]] = {}
        self.cluster = ""
        self.above: Mapping[str, Any] | None = None
        self.overload = Overload()
        self.compared: Mapping[str, float] = {}
        self.is_looked_at = True
        self.pasts: Mapping[tuple[str, int], Any] = {}
        self.wanted: set[tuple[str, int]] = set()
        self.names = list(hottest)

    def hottest(self, most: int) -> list[str]:
        return self.names[:most]


class World:
    """A source on a clock that the test moves."""

    def __init__(self, board: Board, rules=RULES, **answers: Any) -> None:
        self.prometheus = Fake(**answers)
        self.board = board
        self.clock = Clock(NOON)
        self.source = PageQueries(
            self.prometheus,
            board,
            rule_set=lambda: rules,
            nodes=lambda: NODES,
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


FAILED = QueryResult(error="Prometheus at http://p: connection refused")


async def test_the_past_that_a_page_waits_for_is_asked_for_once_and_little_is_kept() -> None:
    """Of dynsched's own metrics: the load by rule, and whether the node was marked."""
    load = Series({"rule": "node-cpu"}, ((NOON - 720, 40.0), (NOON, 50.0)))
    marked = Series({}, ((NOON, 1.0),))
    world = World(Board(), dynsched_node_measured_load=RangeResult((load, marked)))
    world.board.wanted.add(("a", 24))
    asked = await world.ask(125)
    assert len([expr for expr in asked if 'dynsched_node_verdict{node="a"}' in expr]) == 1
    past = {"node-cpu": load.points, "": marked.points}
    assert world.board.pasts == {("a", 24): ((NOON + 125) // 720 * 720 + 720, past)}
    assert not [expr for expr in await world.ask(2) if "verdict" in expr]
    world.board.wanted |= {("b.example", 6), ("c", 6)}  # however many, one at a time
    for _ in range(2):
        assert len([expr for expr in await world.ask(2) if "verdict" in expr]) == 1
    assert not world.board.wanted
    for hours in range(1, 30):
        world.board.wanted.add(("a", hours))
        await world.ask()
    assert len(world.board.pasts) <= MAX_PASTS + 1
    world.prometheus.answers = {"dynsched": RangeResult(error="refused")}
    world.board.wanted.add(("b.example", 6))
    await world.ask()
    assert world.board.pasts["b.example", 6][1] == {}


async def test_what_pods_request_is_compared_with_what_the_node_can_give() -> None:
    cpu = vector(({"node": "a"}, 3.0), ({"node": "gone"}, 1.0))
    memory = vector(({"node": "b.example"}, 2.0**32))
    world = World(Board(), **{'resource="cpu"': cpu, 'resource="memory"': memory})
    await world.ask()
    assert world.board.requested == {"cpu": {"a": 75}, "memory": {"b.example": 50}}


async def test_only_resources_that_rules_name_are_asked_for() -> None:
    free = rule("free", resource="memory", op="<", threshold=10)
    asked = await World(Board(), rule_set(free, rule("load"))).ask()
    assert not [expr for expr in asked if "resource_requests" in expr]


async def test_what_fails_keeps_what_was_known_and_is_told_once(caplog) -> None:
    caplog.set_level(logging.INFO)
    world = World(Board("a"), **{'resource="cpu"': vector(({"node": "a"}, 3.0))})
    await world.ask()
    world.prometheus.answers = {"": FAILED}
    for _ in range(3):
        await world.ask(page_queries.RARELY)
    assert world.board.requested == {"cpu": {"a": 75}}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)) > 1
    assert all("connection refused" in line for line in told)


async def test_pods_above_their_requests_are_asked_of_the_hottest_nodes_alone() -> None:
    names = [f"n{number}" for number in range(500)]
    expr = page_queries.above("cpu", ["a", "b.example"])
    assert 'node=~"a|b[.]example"' in expr
    asked = [expr for expr in await World(Board(*names)).ask() if "topk" in expr]
    assert len(asked) == 2
    assert all(f"n{HOTTEST - 1}" in expr and f"n{HOTTEST}|" not in expr for expr in asked)


async def test_they_are_listed_by_node_the_furthest_first() -> None:
    def used(above: float, pod: str) -> tuple[Mapping[str, str], float]:
        return {"node": "a", "namespace": "shop", "pod": pod}, above

    world = World(
        Board("a", "b.example"),
        container_memory=vector(used(2.0**30, "web")),
        container_cpu=vector(used(0.5, "web"), used(2.5, "batch"), used(float("nan"), "odd")),
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
    world = World(Board("a"), container_cpu=vector(({}, 0.0)))
    await world.ask()
    assert world.board.above == {"a": []}
    unknown = World(Board("a"))
    await unknown.ask()
    assert unknown.board.above is None


async def test_past_days_are_filled_from_dynscheds_own_metrics() -> None:
    today = day_of(NOON)
    world = World(
        Board(),
        pressured_nodes=vector(
            ({"day": day_name(today - 2), "namespace": "x"}, 0.25),
            ({"day": day_name(today - 1), "namespace": "x"}, float("nan")),
            ({"day": "1999-12-31", "namespace": "x"}, 0.5),
        ),
    )
    await world.ask()
    days = [day_name(today - ago) for ago in (2, 1, 0)]
    assert world.board.overload.columns(NOON) == {"days": days, "share": [0.25, None, None]}


async def test_the_demo_also_tells_what_the_same_pods_would_come_to_without_marks() -> None:
    shares = {"on": 0.03, "off": 0.07}
    world = World(
        Board(),
        pressured_nodes=vector(*(({"marks": marks}, share) for marks, share in shares.items())),
    )
    await world.ask()
    assert world.board.compared == shares
    assert world.board.overload.columns(NOON) is None
    assert any("pressured_nodes" in expr for expr in await world.ask(3))  # it changes


def test_a_day_that_has_just_begun_is_not_asked_for_and_the_whole_ones_are() -> None:
    midnight = (day_of(NOON) + 1) * DAY
    expr = page_queries.overload(midnight + 1)
    assert expr.count("label_replace") == DAYS - 1
    assert f'[86400s:300s] offset 1s), "day", "{day_name(day_of(NOON))}"' in expr
    expr = page_queries.overload(midnight + 3600)
    assert expr.count("label_replace") == DAYS
    assert f'[3600s:300s]), "day", "{day_name(day_of(NOON) + 1)}"' in expr


@pytest.mark.parametrize(
    ("other", "cluster", "share"),
    [("dynsched", "b", [0.75]), ("dynsched", "", [0.75]), ("y", "b", None)],
)
async def test_of_several_dynsched_in_prometheus_it_takes_its_own(other, cluster, share) -> None:
    day, theirs = day_name(day_of(NOON)), {"namespace": other, "cluster": cluster}
    both = (({"day": day, "namespace": "x"}, 0.25), ({"day": day, **theirs}, 0.75))
    world = World(Board(), pressured_nodes=vector(*both))
    await world.ask()
    assert (world.board.overload.columns(NOON) or {}).get("share") == share
    assert world.board.cluster == (cluster if share else "")


async def test_of_clusters_in_one_prometheus_it_takes_the_past_of_its_own() -> None:
    both = ({"namespace": "dynsched", "cluster": each, "rule": "cpu"} for each in "ab")
    series = tuple(Series(labels, ((NOON, at + 1.0),)) for at, labels in enumerate(both))
    world = World(Board(), dynsched_node_measured_load=RangeResult(series))
    for world.source.cluster, past in (("b", {"cpu": ((NOON, 2.0),)}), (None, {})):
        world.board.wanted.add(("a", 6))
        await world.ask()
        assert world.board.pasts["a", 6][1] == past


async def test_it_asks_every_five_minutes_however_often_somebody_looks() -> None:
    world = World(Board("a"), **{'resource="cpu"': vector(({"node": "a"}, 3.0))})
    assert await world.ask()
    asked = [expr for _ in range(60) for expr in await world.ask(4.9)]
    assert [expr for expr in asked if "resource_requests" in expr] == []
    assert len([expr for expr in await world.ask(10.0) if "resource_requests" in expr]) == 4


async def test_nothing_is_asked_while_nobody_looks(monkeypatch) -> None:
    monkeypatch.setattr(page_queries, "_POLL", 0.01)
    world, stop = World(Board("a")), asyncio.Event()
    world.board.is_looked_at = False
    task = asyncio.create_task(world.source.run(stop))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.prometheus.asked == []
    world.board.is_looked_at = True
    async with asyncio.timeout(60):
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


async def values(source: PrometheusSource, expr: str, *labels: str) -> dict[Any, float]:
    """At the moment at which the pods were placed."""
    answer = await source.query_range(expr, NOW, NOW, 1, "node")
    assert answer.error is None
    return {tuple(one.labels[label] for label in labels): one.points[0][1] for one in answer.series}


@pytest.mark.slow
async def test_what_a_real_prometheus_answers(source, monkeypatch) -> None:
    # Requests count once, and not of pods that ended.
    assert await values(source, page_queries.requested("cpu"), "node") == {("a",): 4.5}
    # A pod without requests is above them by all that it uses.
    above = page_queries.above("cpu", ["a", "b.example"])
    assert await values(source, above, "node", "namespace", "pod") == {
        ("a", "shop", "web"): pytest.approx(1.0),
        ("b.example", "shop", "greedy"): pytest.approx(0.5),
    }
    assert await values(source, page_queries.above("cpu", ["b"])) == {(): 0.0}
    # The share of node-time is asked for by day; there are values of half an hour only.
    monkeypatch.setattr(page_queries, "_LEAST", 1.0)
    monkeypatch.setattr(page_queries, "DAYS", 1)
    today = day_name(day_of(NOW))
    share = await values(source, page_queries.overload(NOW), "day", "namespace")
    assert share == {(today, "dynsched"): 0.5}
