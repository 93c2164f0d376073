"""Queries for the use of pods and for scrape intervals, on a fake and a real Prometheus."""

import logging
from collections.abc import Mapping
from itertools import islice, product

import pytest
from builders import Body, rule, rule_set
from pod_names import PODS
from promql_support import check_values
from source_past import CPU_SHARE, MEMORY, STEP
from source_support import Fake, vector

from dynsched.core.load.pods import workload_of
from dynsched.core.load.use_by_age import FEWEST
from dynsched.core.samples import QueryResult
from dynsched.rules.promql import Reach, parse
from dynsched.rules.rule_set import RuleSet
from dynsched.sources import pod_use
from dynsched.sources.pod_use import PodUseSource
from dynsched.sources.prometheus import PrometheusSource


def scored(*rules: Body) -> RuleSet:
    """A file whose extender uses the expected load of all ``rules``."""
    return rule_set(*rules, extender={})


RULES = scored(
    rule("node-cpu", expr="load", resource="cpu", by="expected"),
    rule("node-mem", expr="load", resource="memory"),
    {"name": "allocatable", "source": "metrics-server", "resource": "cpu", "threshold": 90},
)


def prometheus_with(**answers: QueryResult) -> Fake:
    """A Prometheus without new pods."""
    return Fake(timestamp=vector(), **answers)


def of(workload: str, value: float) -> tuple[Mapping[str, str], float]:
    return {"namespace": "shop", "workload": workload}, value


async def test_uses_are_keyed_by_workload_and_scrape_intervals_by_rule() -> None:
    prometheus = prometheus_with(
        container_cpu=vector(of("web", 0.5), of("batch", 1.5)),
        container_memory=vector(of("web", 2.0**30)),
        load=vector(({"node": "worker-1", "instance": "10.0.0.1:9100"}, 50.0)),
        count_over_time=vector(({}, 40.0)),
    )
    source = PodUseSource(prometheus, lambda: RULES)
    assert (source.of_workloads, source.scrape_intervals) == ({}, {})
    await source.query()
    assert prometheus.clocks_asked == 1  # the delay of the server is added to the age of samples
    assert source.of_workloads == {
        "cpu": {"shop/web": 0.5, "shop/batch": 1.5},
        "memory": {"shop/web": 2.0**30},
    }
    assert source.scrape_intervals == {"node-cpu": 15.0, "node-mem": 15.0}
    assert 'up{node="worker-1",' in prometheus.asked[-1]


async def test_the_reach_is_queried_for_expressions_that_cannot_be_parsed_here() -> None:
    prometheus = prometheus_with()
    prometheus.reaches = {"rate(x[1.5h])": Reach(0, 5400)}
    rules = scored(
        rule("read", expr="rate(x[2m])"),
        rule("by-server", expr="rate(x[1.5h])"),
        rule("unknown", expr="rate(x[2.5h])"),
        rule("with-lag", expr="rate(x[1.5h])", lag="2h"),
    )
    source = PodUseSource(prometheus, lambda: rules)
    await source.query()
    assert source.reaches == {"by-server": Reach(0, 5400)}


def of_pod(name: str, value: float) -> tuple[Mapping[str, str], float]:
    return {"namespace": "shop", "pod": name}, value


async def test_the_use_of_a_pod_is_kept_for_one_round_after_it_ended() -> None:
    """The load of its node will fall by this use."""
    web, other = "web-5d9c7b9d4f-x2x4p", "web-5d9c7b9d4f-zzzzz"
    prometheus = prometheus_with(container_cpu=vector(of_pod(web, 0.5), of_pod(other, 1.5)))
    source = PodUseSource(prometheus, lambda: RULES)
    await source.query(each_pod=True)
    assert source.of_pods["cpu"] == {f"shop/{web}": 0.5, f"shop/{other}": 1.5}
    assert source.of_workloads["cpu"] == {"shop/web": 1.0}
    prometheus.answers["container_cpu"] = vector(of_pod(other, 2.0))
    await source.query(each_pod=True)
    assert source.of_pods["cpu"] == {f"shop/{web}": 0.5, f"shop/{other}": 2.0}
    assert source.of_workloads["cpu"] == {"shop/web": 2.0}
    await source.query(each_pod=True)
    assert source.of_pods["cpu"] == {f"shop/{other}": 2.0}
    prometheus.answers["timestamp"] = vector(of_pod(web, 3.0))
    for _ in range(2):  # the cluster has grown: the use of each pod is no longer queried
        await source.query()
        await source.query_recent({f"shop/{web}": 0.0}, {})
    assert source.of_pods["cpu"] == {f"shop/{web}": 3.0}


async def test_the_use_of_a_new_pod_is_known_after_one_scrape_and_kept_for_one_round() -> None:
    """A pod that ended before its second scrape is in no round of queries."""
    web, new = "web-5d9c7b9d4f-x2x4p", "web-5d9c7b9d4f-zzzzz"
    prometheus = prometheus_with(container_cpu=vector(of_pod(web, 0.5)))
    source = PodUseSource(prometheus, lambda: RULES)
    await source.query(each_pod=True)
    prometheus.answers["timestamp"] = vector(of_pod(new, 2.0))
    await source.query_recent({f"shop/{new}": 0.0, "shop/db.1": 0.0}, {})
    assert all(f'pod=~"{new}|db\\\\.1"' in expr for expr in prometheus.asked[-2:])
    assert source.of_pods["cpu"] == {f"shop/{web}": 0.5, f"shop/{new}": 2.0}
    assert source.of_workloads["cpu"] == {"shop/web": 0.5}
    prometheus.answers["timestamp"] = vector()
    for known in (True, False):
        await source.query(each_pod=True)
        assert (f"shop/{new}" in source.of_pods["cpu"]) is known


@pytest.mark.parametrize(("mean", "uses_more_at_start"), [(1.0, True), (4.0, False)])
async def test_a_new_pod_counts_its_current_use_only_if_pods_use_more_at_their_start(
    mean, uses_more_at_start
) -> None:
    """Otherwise its mean use since its start counts: a pod whose use falls is then on a full node,
    and subtracting the difference made such a node look cool.
    """
    web = "web-5d9c7b9d4f-"
    new = [f"{web}{''.join(letters)}" for letters in islice(product("bcdfg", repeat=5), FEWEST + 1)]
    names = [f"shop/{pod}" for pod in new]
    prometheus = prometheus_with(container_cpu=vector(of_pod(f"{web}zzzzz", mean)))
    source = PodUseSource(prometheus, lambda: RULES)
    await source.query(each_pod=True)
    for age, since_start in ((30.0, 4.0), (60.0, 4.0), (90.0, 2.5)):
        prometheus.answers["timestamp"] = vector(*(of_pod(pod, since_start) for pod in new))
        await source.query_recent(dict.fromkeys(names, age), {})
    current = (80 * 2.5 - 20 * 4.0) / 60 if uses_more_at_start else 2.5
    assert source.of_pods["cpu"][names[0]] == pytest.approx(current)
    assert source.of_pods["memory"][names[0]] == 2.5  # a gauge
    for ended in ({names[0]: 60.0}, {}):  # kept for as long as its node's metric may show it
        await source.query_recent(dict.fromkeys(names[1:], 100.0), ended)
        assert list(source.cpu_by_age) == ([*ended, *names[1:]] if uses_more_at_start else [])


async def test_impossible_uses_do_not_count() -> None:
    """A use above that of any machine would raise the mean of the workload, and with it the use
    of each of its new pods.
    """
    values = [float("nan"), -1.0, float("inf"), 808334905.0, *[1.7e308] * 40]
    odd = [of_pod(f"web-{number}", value) for number, value in enumerate(values)]
    prometheus = prometheus_with(container_cpu=vector(*odd, of_pod("ok", 0.0)))
    source = PodUseSource(prometheus, lambda: RULES)
    await source.query(each_pod=True)
    assert source.of_workloads["cpu"] == {"shop/ok": 0.0}
    await source.query()  # by workload: the server computes the mean
    assert any("<= 4096)" in expr or "<= 4096," in expr for expr in prometheus.asked)


async def test_the_last_use_of_an_ended_pod_is_queried_until_it_is_known() -> None:
    """It is kept for as long as the pod counts as recently ended."""
    prometheus = Fake(irate=vector(), load=vector(), count=vector())
    source = PodUseSource(prometheus, lambda: RULES)
    await source.query(each_pod=True)
    await source.query_recent({}, {"shop/a": 60.0, "shop/b": 60.0})
    assert source.of_ended["cpu"] == {}
    prometheus.answers["irate"] = vector(of_pod("a", 0.25))
    for names in ("a|b", "b"):
        await source.query_recent({}, {"shop/a": 60.0, "shop/b": 60.0})
        assert source.of_ended["cpu"] == {"shop/a": 0.25}
        assert f'pod=~"{names}"' in [expr for expr in prometheus.asked if "irate" in expr][-1]
    prometheus.answers["irate"] = vector(of_pod("a", 0.5))
    await source.query_recent({}, {"shop/a": 5.0})  # another pod with the same name
    assert source.of_ended["cpu"] == {"shop/a": 0.5}
    await source.query_recent({}, {"shop/b": 60.0})
    assert source.of_ended["cpu"] == {}


async def test_a_node_label_with_dots_is_quoted() -> None:
    rules = scored(rule(expr="load", node_label="k8s.node.name"))
    up = {"load": vector(({"k8s.node.name": "a"}, 1.0)), "count_over_time": vector(({}, 20.0))}
    prometheus = Fake(**up)
    source = PodUseSource(prometheus, lambda: rules)
    await source.query()
    assert source.scrape_intervals == {"cpu": 30.0}
    for expr in prometheus.asked:
        parse(expr)


@pytest.mark.parametrize(
    "scrapes", [vector(), vector(({}, 1.0)), QueryResult(error="no such series")]
)
async def test_without_two_scrapes_the_scrape_interval_is_unknown(scrapes: QueryResult) -> None:
    up = {"load": vector(({"node": "a"}, 1.0)), "count_over_time": scrapes}
    source = PodUseSource(Fake(**up), lambda: RULES)
    await source.query()
    assert source.scrape_intervals == {}


async def test_a_failing_query_is_logged_once_and_keeps_its_last_values(caplog) -> None:
    caplog.set_level(logging.INFO, logger="dynsched")
    prometheus = prometheus_with(
        container_cpu=vector(of("web", 0.5)),
        load=vector(({"node": "a"}, 1.0)),
        count_over_time=vector(({}, 20.0)),
    )
    source = PodUseSource(prometheus, lambda: scored(rule(expr="load", resource="cpu")))
    await source.query()
    away = "Prometheus at http://p: connection refused"
    prometheus.answers = {"": QueryResult(error=away)}
    for _ in range(3):
        await source.query()
    assert source.of_workloads == {"cpu": {"shop/web": 0.5}}
    assert source.scrape_intervals == {"cpu": 30.0}
    logged = [record.getMessage() for record in caplog.records]
    assert all(away in each for each in logged)
    assert len(logged) == len({*logged}) == 3  # the kubelets' series, the pods, the interval


STEPS = 40
"""Number of 15 s steps in 10 minutes. The last sample of a running container is the 40th."""


def container(labels: str, use: float, *, begins: int = 0, ends: int = STEPS) -> dict[str, str]:
    """The series of a container, as kubelets expose them.

    CPU time and memory have explicit timestamps, so their last samples stay for five minutes after
    the container ends. The start time has none, so it disappears at once.
    """
    before, steps = f"_x{begins} " if begins else "", ends - begins
    name = f'{{job="kubelet",namespace="shop",{labels}}}'
    gone = "" if ends == STEPS else " stale"
    return {
        f"container_cpu_usage_seconds_total{name}": f"{before}0+{15 * use}x{steps}",
        f"container_memory_working_set_bytes{name}": f"{before}{1000 * use}x{steps}",
        f"container_start_time_seconds{name}": f"{before}{15 * begins}x{steps}{gone}",
    }


def test_the_use_of_a_pod_is_that_of_its_running_containers(tmp_path) -> None:
    of_cpu = "container_cpu_usage_seconds_total"
    total, each = 'cpu="total",container="main",id="/', 'cpu="cpu0{}",container="main",id="/{}"'
    series = {
        **container(f'pod="init",{total}a"'.replace("main", "init"), 0.3, begins=26, ends=34),
        **container(f'pod="init",{total}b"', 0.02, begins=35),
        **container(f'pod="again-0",{total}c"', 0.3, ends=30),
        **container(f'pod="again-0",{total}d"', 0.1, begins=31),
        **container('pod="one-series",container="main"', 0.3),
        **container('pod="just-scraped",container="main"', 0.5, begins=STEPS),
        **container(f'pod="ended",{total}e"', 0.3, begins=26, ends=34),
        **container('pod="moved-0",container="main",instance="a"', 0.3, ends=30),
        **container('pod="moved-0",container="main",instance="b"', 0.1, begins=36),
        **{name: values for number in "01" for name, values in container(
            f'pod="each-cpu",{each.format(number, "g")}', 0.2).items() if of_cpu in name},
    }  # fmt: skip
    # Without an id, a restarted container continues its old series, from 0.
    (restarted,) = (name for name in series if of_cpu in name and "one-series" in name)
    series[restarted] = "1000+4.5x33 0+1.5x6"
    new = {"init": 0.02, "again-0": 0.1, "moved-0": 0.1}
    uses = new | {"one-series": 0.1, "ended": 0.3}
    expected = {
        pod_use.of_pod("cpu"): uses | {"each-cpu": 0.4},
        pod_use.of_new_pod("cpu"): new,
        pod_use.of_pod("memory"): {pod: 1000 * use for pod, use in uses.items()}
        | {"one-series": 300, "just-scraped": 500},
    }
    named = {
        expr: {f'{{namespace="shop",pod="{pod}"}}': use for pod, use in found.items()}
        for expr, found in expected.items()
    }
    check_values(tmp_path, series, named, "10m", "15s")


@pytest.mark.slow
async def test_a_real_prometheus_evaluates_the_queries_as_expected(
    source: PrometheusSource,
) -> None:
    """It parses pods' names as Python does, and counts each container and each scrape once. Series
    from targets other than kubelets do not count.
    """
    measured = scored(
        rule("node-cpu", expr="load_percent", resource="cpu"),
        rule("node-mem", expr="load_percent", resource="memory"),
    )
    use = PodUseSource(source, lambda: measured)
    await use.query()
    by_python = {workload_of("names", pod) for pod in PODS}
    assert by_python == {f"names/{workload}" for workload in PODS.values()}
    for resource, each in (("cpu", CPU_SHARE), ("memory", MEMORY)):
        found = use.of_workloads[resource].items()
        uses = {name: value for name, value in found if name in by_python}
        assert uses == pytest.approx(dict.fromkeys(by_python, 2 * each))
    assert use.scrape_intervals == dict.fromkeys(("node-cpu", "node-mem"), STEP)
    names = [f"names/{pod}" for pod in PODS]
    await use.query_recent({}, dict.fromkeys(names, 20.0))
    for resource, each in (("cpu", CPU_SHARE), ("memory", MEMORY)):
        assert use.of_ended[resource] == pytest.approx(dict.fromkeys(names, 2 * each))
