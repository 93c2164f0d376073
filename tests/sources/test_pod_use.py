"""What pods use and how often nodes are scraped, as Prometheus knows it: a fake one, and the real
program.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest
import pytest_asyncio
from builders import rule, rule_set
from pod_names import PODS
from prometheus_support import Exporter, Process, RealPrometheus

from dynsched.core.model import QueryResult, Sample
from dynsched.core.workloads import workload_of
from dynsched.sources import scrapes
from dynsched.sources.pod_use import PodUseSource
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

RULES = rule_set(
    rule("node-cpu", expr="load", resource="cpu", early={}),
    rule("node-mem", expr="load", resource="memory"),
    {"name": "allocatable", "source": "metrics-server", "resource": "cpu", "threshold": 90},
)


class Fake:
    """Answers an expression by the first of ``answers`` whose key is in it."""

    def __init__(self, **answers: QueryResult) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        self.asked.append(expr)
        return next((found for key, found in self.answers.items() if key in expr), QueryResult())


def vector(*samples: tuple[Mapping[str, str], float]) -> QueryResult:
    return QueryResult(tuple(Sample(labels, value, 0.0) for labels, value in samples))


def of(workload: str, value: float) -> tuple[Mapping[str, str], float]:
    return {"namespace": "shop", "workload": workload}, value


async def test_uses_by_workload_and_scrape_intervals_by_rule() -> None:
    prometheus = Fake(
        container_cpu=vector(of("web", 0.5), of("batch", 1.5)),
        container_memory=vector(of("web", 2.0**30)),
        load=vector(({"node": "worker-1", "instance": "10.0.0.1:9100"}, 50.0)),
        count_over_time=vector(({}, 40.0)),
    )
    source = PodUseSource(prometheus, lambda: RULES)
    assert (source.of_workloads, source.scrape_intervals) == ({}, {})
    await source.ask()
    assert source.of_workloads == {
        "cpu": {"shop/web": 0.5, "shop/batch": 1.5},
        "memory": {"shop/web": 2.0**30},
    }
    assert source.scrape_intervals == {"node-cpu": 15.0, "node-mem": 15.0}
    assert f'up{{node="worker-1"}}[{scrapes.SCRAPES_OVER:.0f}s]' in prometheus.asked[-1]


async def test_only_what_the_rules_measure_is_asked_for() -> None:
    prometheus = Fake()
    await PodUseSource(prometheus, lambda: rule_set(rule("load", expr="load"))).ask()
    assert prometheus.asked == ["load"]


async def test_what_is_no_use_does_not_count() -> None:
    odd = vector(of("web", float("nan")), of("db", -1.0), of("batch", float("inf")), of("ok", 0.0))
    source = PodUseSource(Fake(container_cpu=odd), lambda: RULES)
    await source.ask()
    assert source.of_workloads["cpu"] == {"shop/ok": 0.0}


@pytest.mark.parametrize("label", ['wor"ker', "back\\slash", "two\nlines"])
async def test_a_label_is_quoted_whatever_is_in_it(label: str) -> None:
    prometheus = Fake(load=vector(({"node": label}, 1.0)))
    await PodUseSource(prometheus, lambda: rule_set(rule("load", expr="load"))).ask()
    assert "\n" not in prometheus.asked[-1]
    assert prometheus.asked[-1].count('"') - prometheus.asked[-1].count('\\"') == 4


@pytest.mark.parametrize(
    "scrapes", [vector(), vector(({}, 1.0)), QueryResult(error="no such series")]
)
async def test_without_two_scrapes_no_interval_is_claimed(scrapes: QueryResult) -> None:
    up = {"load": vector(({"node": "a"}, 1.0)), "count_over_time": scrapes}
    source = PodUseSource(Fake(**up), lambda: RULES)
    await source.ask()
    assert source.scrape_intervals == {}


async def test_what_fails_is_told_once_and_keeps_its_last_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    prometheus = Fake(
        container_cpu=vector(of("web", 0.5)),
        load=vector(({"node": "a"}, 1.0)),
        count_over_time=vector(({}, 20.0)),
    )
    source = PodUseSource(prometheus, lambda: rule_set(rule(expr="load", resource="cpu")))
    await source.ask()
    prometheus.answers = {"": QueryResult(error="Prometheus at http://p: connection refused")}
    for _ in range(3):
        await source.ask()
    assert source.of_workloads == {"cpu": {"shop/web": 0.5}}
    assert source.scrape_intervals == {"cpu": 30.0}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2  # one for each expression that failed
    assert all("the expected load is worked out without" in line for line in told)
    assert all("connection refused" in line for line in told)


async def test_where_no_kubelet_is_scraped_the_mean_of_all_pods_has_to_do() -> None:
    source = PodUseSource(Fake(), lambda: RULES)
    await source.ask()
    assert source.of_workloads == {"cpu": {}, "memory": {}}


async def test_it_asks_at_once_and_ends_when_told() -> None:
    prometheus, stop = Fake(), asyncio.Event()
    task = asyncio.create_task(PodUseSource(prometheus, lambda: RULES).run(stop))
    async with asyncio.timeout(5):
        while len(prometheus.asked) < 4:
            await asyncio.sleep(0.01)
        stop.set()
        await task


# The real program

CPU_SHARE = 0.25
MEMORY = 64 * 2**20
INTERVAL = 1.0


class Kubelet(Exporter):
    """cAdvisor's series of a pod of each name, two containers and the pod's own sums."""

    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()

    @property
    def text(self) -> str:
        seconds = CPU_SHARE * (time.monotonic() - self._started)
        lines = []
        for pod in PODS:
            for container in ("main", "side", ""):
                labels = f'{{namespace="shop",pod="{pod}",container="{container}"}}'
                lines.append(f"container_cpu_usage_seconds_total{labels} {seconds}")
                lines.append(f"container_memory_working_set_bytes{labels} {MEMORY}")
        return "\n".join([*lines, "load_percent 50", ""])

    @text.setter
    def text(self, _: str) -> None: ...


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with Kubelet() as kubelet:
        target = {"targets": [kubelet.target], "labels": {"node": "worker-1"}}
        scrape = [{"job_name": "kubelets", "static_configs": [target]}]
        with RealPrometheus(tmp_path_factory.mktemp("pod-use"), scrape) as running:
            running.wait_for("count_over_time(container_cpu_usage_seconds_total[1m]) >= 3")
            yield running


@pytest_asyncio.fixture
async def source(prometheus: Process) -> AsyncIterator[PodUseSource]:
    answers = PrometheusSource(PrometheusConfig(prometheus.url, timeout=10))
    measured = rule_set(
        rule("node-cpu", expr="load_percent", resource="cpu"),
        rule("node-mem", expr="load_percent", resource="memory"),
    )
    yield PodUseSource(answers, lambda: measured)
    await answers.close()


@pytest.mark.slow
async def test_prometheus_reads_the_names_of_pods_as_python_does(source: PodUseSource) -> None:
    await source.ask()
    by_python = {workload_of("shop", pod) for pod in PODS}
    assert by_python == {f"shop/{workload}" for workload in PODS.values()}
    assert set(source.of_workloads["cpu"]) == set(source.of_workloads["memory"]) == by_python


@pytest.mark.slow
async def test_a_pods_use_is_the_sum_of_its_containers_each_once(source: PodUseSource) -> None:
    await source.ask()
    assert set(source.of_workloads["memory"].values()) == {2.0 * MEMORY}
    assert source.of_workloads["cpu"]["shop/web"] == pytest.approx(2 * CPU_SHARE, rel=0.3)


@pytest.mark.slow
async def test_the_scrape_interval_is_that_of_the_nodes_target(
    source: PodUseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.ask()
    assert source.scrape_intervals == {}  # it is younger than the time in which scrapes are counted
    monkeypatch.setattr(scrapes, "SCRAPES_OVER", 4.0)
    async with asyncio.timeout(20):
        while "node-cpu" not in source.scrape_intervals:
            await source.ask()
            await asyncio.sleep(0.2)
    assert source.scrape_intervals["node-cpu"] == pytest.approx(INTERVAL, rel=0.5)
