"""Pods that were placed onto hot nodes, by the metrics of kube-state-metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from backtest_support import Call
from blocks_support import Past, Points, prometheus_of
from builders import rule
from prometheus_support import RealPrometheus

pytestmark = pytest.mark.slow

STEP = 60
HOURS = 12
NOW = int(time.time()) // STEP * STEP
COUNT = HOURS * 60


def minute(number: int) -> int:
    return NOW - (COUNT - number) * STEP


def steady(value: float, first: int = 0, last: int = COUNT) -> Points:
    return [(minute(number), value) for number in range(first, last + 1)]


HOT = (300, 360)
LOADS = {
    "worker-a": [*steady(10, 0, HOT[0] - 1), *steady(95, *HOT), *steady(10, HOT[1] + 1)],
    "worker-b": steady(20),
    "worker-c": steady(90),
}
PODS = [
    # workload, node, minute, cores, what made it
    ("web-5d9c7b9d4f-x2x4p", "worker-a", 310, 0.5, "ReplicaSet"),  # there is room on b
    ("web-5d9c7b9d4f-x2x5p", "worker-a", 100, 0.5, "ReplicaSet"),  # not hot then
    ("big-5d9c7b9d4f-x2x6p", "worker-a", 340, 3.5, "ReplicaSet"),  # no room anywhere else
    ("web-5d9c7b9d4f-x2x7p", "worker-b", 330, 0.5, "ReplicaSet"),
    ("agent-x2x8p", "worker-a", 320, 0.1, "DaemonSet"),
]


def kube_state(placed: str = "kube_pod_status_scheduled_time") -> dict[str, Any]:
    """The series of these pods, which live for an hour, and of the nodes."""
    past: dict[str, Any] = {
        "kube_pod_info": [],
        placed: [],
        "kube_pod_container_resource_requests": [],
        "kube_node_status_allocatable": [],
        "kube_node_info": [],
    }
    for pod, node, at, cores, kind in PODS:
        labels = f'namespace="shop",pod="{pod}",uid="u-{pod}"'
        life = (at + 1, min(COUNT, at + 60))
        past["kube_pod_info"].append(
            (f'{labels},node="{node}",created_by_kind="{kind}"', steady(1, *life))
        )
        past[placed].append((labels, [(t, float(minute(at))) for t, _ in steady(0, *life)]))
        past["kube_pod_container_resource_requests"].append(
            (f'{labels},node="{node}",container="c",resource="cpu"', steady(cores, *life))
        )
    for number, node in enumerate(LOADS):
        for resource, amount in (("cpu", 4.0), ("memory", 8e9)):
            past["kube_node_status_allocatable"].append(
                (f'node="{node}",resource="{resource}"', steady(amount))
            )
        past["kube_node_info"].append(
            (f'node="{node}",internal_ip="10.0.0.{number}"', steady(1, COUNT - 5))
        )
    # What else runs on b: 3.4 of 4 cores are left before the pods come.
    past["kube_pod_container_resource_requests"].append(
        (
            'namespace="shop",pod="old",uid="u-old",node="worker-b",container="c",resource="cpu"',
            steady(0.6),
        )
    )
    return past


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    past: Past = {
        "load": [
            (f'instance="10.0.0.{number}:9100"', points)
            for number, points in enumerate(LOADS.values())
        ],
        "dynsched_marked_nodes": [("", [*steady(0, 0, 400), *steady(1, 401)])],
        **kube_state(),
    }
    with prometheus_of(past, tmp_path_factory.mktemp("kube-state")) as running:
        yield running


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """Without the moments of scheduling, and without what nodes have to give."""
    past = kube_state("kube_pod_created")
    del past["kube_node_status_allocatable"]
    past["load"] = [(f'node="{node}"', points) for node, points in LOADS.items()]
    with prometheus_of(past, tmp_path_factory.mktemp("older")) as running:
        yield running


RULES = {"guard": {"max_marked": "100%"}, "rules": [rule("load", expr="load")]}
MORE = ("--nodes-from-series", "--since", f"{HOURS}h", "--step", "60s", "--until", str(NOW))


async def test_pods_on_hot_nodes_and_those_for_which_there_was_room(
    call: Call, prometheus: RealPrometheus
) -> None:
    code, out, err = await call(prometheus.url, RULES, *MORE, "-o", "json")
    assert code == 0, err
    found = json.loads(out)["regret"]
    assert (found["pods_placed"], found["pods_on_hot"], found["pods_with_room"]) == (4, 2, 1)
    assert found["share_on_hot"] == 0.5
    assert found["room_by"] == "requests"
    assert found["pods_left_out"] == 1  # the DaemonSet's
    assert [one["workload"] for one in found["workloads"]] == ["shop/web", "shop/big"]
    assert found["namespaces"][0]["namespace"] == "shop"
    assert sum(day["pods_on_hot"] for day in found["days"]) == 2
    day = time.strftime("%Y-%m-%d", time.gmtime(minute(401)))
    assert found["first_mark_day"] == day
    assert any("shorter than a scrape" in limit for limit in found["limits"])


async def test_the_table_says_it_in_one_sentence(call: Call, prometheus: RealPrometheus) -> None:
    _, out, _ = await call(prometheus.url, RULES, *MORE)
    assert "4 pods placed, 2 (50 %) onto a node that was over its threshold" in out
    assert "for 1 of them an unmarked node had room" in out
    assert "Regret by workload" in out
    _, page, _ = await call(prometheus.url, RULES, *MORE, "-o", "html")
    assert "first mark" in page


async def test_without_moments_and_without_room_it_says_what_it_counts_instead(
    call: Call, older: RealPrometheus
) -> None:
    code, out, err = await call(older.url, RULES, *MORE, "-o", "json")
    assert code == 0, err
    found = json.loads(out)["regret"]
    assert (found["pods_placed"], found["pods_on_hot"], found["pods_with_room"]) == (4, 2, 2)
    assert (found["placed_by"], found["room_by"]) == ("kube_pod_created", "load")
    assert any("when it was created" in limit for limit in found["limits"])
    assert found["first_mark_day"] is None
