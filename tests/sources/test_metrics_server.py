"""`source: metrics-server`, from NodeMetrics to marks; an unknown usage never counts as zero."""

import asyncio
import json
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_support import api_of, kubeconfig
from cluster import Cluster
from metrics_support import metrics_api, set_usage
from misbehaving_server import MisbehavingServer, Seen, http
from operator_support import Operator, until, write_rules
from prometheus_support import free_port
from replica_support import is_marked, some_ticks

from dynsched.core.evaluate import evaluate
from dynsched.core.nodes import Node
from dynsched.core.samples import NodeUsage, Quality
from dynsched.kube.client import list_node_metrics
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import Rule
from dynsched.sources.metrics_server import MetricsServerSource
from dynsched.util.errors import ClusterError

MEMORY = Rule(name="mem", source="metrics-server", resource="memory", threshold=80)
CPU = Rule(name="cpu", source="metrics-server", resource="cpu", threshold=80)
NODES = {
    name: Node(name, allocatable={"cpu": 4.0, "memory": 8 * 2.0**30}) for name in ("a", "b", "c")
}
RULES = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [
        {"name": "mem", "source": "metrics-server", "resource": "memory", "threshold": 80},
        {"name": "cpu", "source": "metrics-server", "resource": "cpu", "threshold": 90},
    ],
}


def usage(node, cpu=1.0, memory=2.0**30, at=1000.0) -> NodeUsage:
    return NodeUsage(node, {"cpu": cpu, "memory": memory}, at)


def source(*usages: NodeUsage, nodes=NODES) -> MetricsServerSource:
    async def fetch():
        return usages

    return MetricsServerSource(fetch, lambda: nodes)


async def test_a_sample_is_the_usage_in_percent_of_the_nodes_allocatable() -> None:
    metrics = source(usage("a", cpu=0.137, memory=2 * 2.0**30), usage("b", cpu=5.0))
    memory, cpu = await metrics.query(MEMORY), await metrics.query(CPU)
    assert [(s.labels, s.value, s.timestamp) for s in memory.samples] == [
        ({"node": "a"}, 25.0, 1000.0),
        ({"node": "b"}, 12.5, 1000.0),
    ]
    # Allocatable excludes the capacity reserved for the system, and a node can use more.
    assert [s.value for s in cpu.samples] == [pytest.approx(3.425), 125.0]
    assert (memory.error, memory.warnings) == (None, ())


async def hangs():
    await asyncio.Event().wait()


async def fails():
    raise ClusterError("cannot list: 503")


@pytest.mark.parametrize(
    ("fetch", "error"), [(fails, "cannot list: 503"), (hangs, "no whole answer within 0.02 s")]
)
async def test_a_list_that_fails_or_hangs_is_an_error_of_each_rule(fetch, error) -> None:
    failing = MetricsServerSource(fetch, lambda: NODES, timeout=0.02)
    for result in await asyncio.gather(failing.query(MEMORY), failing.query(CPU)):
        assert error in str(result.error)
        assert result.samples == ()


def named(**more: Any) -> dict[str, Node]:
    return {"a": replace(NODES["a"], **more)}


NO_CAPACITY = "a: no allocatable memory in the Node's status"
UNKNOWN = [
    ((), NODES, Quality.MISSING, None),
    (
        (NodeUsage("a", {"cpu": 1.0}, 1000.0),),
        *(NODES, Quality.INVALID, "a: no memory usage in its NodeMetrics"),
    ),
    ((usage("a", at=None),), NODES, Quality.INVALID, "a: no timestamp in its NodeMetrics"),
    ((usage("a", at=600.0),), NODES, Quality.STALE, None),
    ((usage("a", at=990.0),), named(created=991.0), Quality.MISSING, None),  # of an earlier node
    ((usage("a"),), named(allocatable={"memory": 0.0}), Quality.INVALID, NO_CAPACITY),
    ((usage("a"),), named(allocatable={}), Quality.INVALID, NO_CAPACITY),
]


@pytest.mark.parametrize(("usages", "nodes", "quality", "warning"), UNKNOWN)
async def test_a_node_without_usable_metrics_is_unknown_and_no_rule_fires(
    usages, nodes, quality, warning
) -> None:
    rule_set = parse_rules({"rules": [RULES["rules"][0] | {"op": "<", "threshold": 5}]})
    nodes = {"a": nodes["a"]}
    (rule,) = rule_set.rules
    result = await source(*usages, nodes=nodes).query(rule)
    alert = evaluate(rule_set, {"mem": result}, nodes, None, 1000.0).alerts["a"]["mem"]
    assert (alert.quality, alert.value, alert.firing) == (quality, None, False)
    assert result.warnings == ((warning,) if warning else ())


async def test_the_list_of_node_metrics_is_parsed(cluster: Cluster) -> None:
    at = datetime(2026, 1, 1, 12, 0, 7, tzinfo=UTC)
    async with metrics_api(cluster), api_of(cluster.kubeconfig) as api:
        await set_usage(cluster, "a", cpu="137m", memory="2Gi", at=at)
        await set_usage(cluster, "b", cpu="1234567n", memory="1234567890", at=at)
        await set_usage(cluster, "c", cpu="0", memory="129e6", at=at)
        found = {usage.node: usage for usage in await list_node_metrics(api)}
    assert {name: dict(usage.amounts) for name, usage in found.items()} == {
        "a": {"cpu": 0.137, "memory": 2147483648.0},
        "b": {"cpu": 0.001234567, "memory": 1234567890.0},
        "c": {"cpu": 0.0, "memory": 129e6},
    }
    assert {usage.taken_at for usage in found.values()} == {at.timestamp()}


@pytest.mark.parametrize(
    ("served", "requested"), [(("v1", "v1beta1"), ["v1"]), (("v1beta1",), ["v1", "v1beta1"])]
)
async def test_version_v1_of_the_api_is_used_if_it_is_served(tmp_path, served, requested) -> None:
    def answer(request: Seen, connection: socket.socket) -> None:
        version = request.path.split("/")[3]
        item = {"metadata": {"name": version}, "usage": {"cpu": "1"}}
        body = json.dumps({"items": [item], "metadata": {}})
        connection.sendall(http(body) if version in served else http("{}", 404))

    with MisbehavingServer() as server:
        server.default = answer
        async with api_of(kubeconfig(tmp_path / "k", server.url)) as api:
            (usage,) = await list_node_metrics(api)
    assert usage.node == served[0]
    versions = [f"/apis/metrics.k8s.io/{version}/nodes" for version in requested]
    assert [request.path for request in server.seen] == versions


@pytest.mark.parametrize(
    "body",
    [
        {"timestamp": None, "usage": None},
        {"timestamp": 5, "usage": {"cpu": "much", "memory": []}},
        {"timestamp": "2026-01-01T00:00:00", "usage": {"cpu": "-1"}},
    ],
)
async def test_unreadable_fields_are_left_out_and_other_nodes_are_read(sim, body) -> None:
    sim.server.objects.create("nodes.metrics.k8s.io", {"metadata": {"name": "odd"}, **body})
    await set_usage(sim, "sound", cpu="1", memory="2Gi")
    async with api_of(sim.kubeconfig) as api:
        odd, sound = await list_node_metrics(api)
    assert (odd.amounts, odd.taken_at) == ({}, None)
    assert sound.amounts == {"cpu": 1.0, "memory": 2.0 * 2**30}


def run_on(cluster: Cluster, folder: Path, rules=RULES) -> Operator:
    """dynsched with a Prometheus URL at which nothing answers."""
    path = write_rules(folder, rules)
    flags = ("--kubeconfig", str(cluster.kubeconfig), "-r", str(path), "--interval", "0.3")
    nowhere = f"http://127.0.0.1:{free_port()}"
    return Operator(folder, "run", *flags, "--prom", nowhere, "--no-leader-elect")


@pytest.mark.slow
async def test_nodes_are_marked_and_released_according_to_metrics_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.create_nodes(*"abc")  # 7910m and 31Gi allocatable
    mixed = {"name": "load", "expr": "load", "threshold": 1}
    rules = {**RULES, "rules": [*RULES["rules"], mixed]}
    async with run_on(cluster, tmp_path, rules) as own:
        # Without metrics-server the process keeps running and reports why it is not ok.
        await own.until_ready()

        async def is_reported() -> bool:
            status, text = await own.get("/status")
            why = "the API metrics.k8s.io is not there; install metrics-server"
            return status == 503 and why in text

        await until(is_reported, "/status reports that metrics-server is missing")
        async with metrics_api(cluster):
            await set_usage(cluster, "a", cpu="1", memory="25Gi")
            await set_usage(cluster, "b", cpu="7500000000n", memory="1Gi")
            await set_usage(cluster, "c", cpu="7", memory="24Gi")
            await until(lambda: is_marked(cluster, "a", "b"), "two nodes are marked")
            evidence = (await cluster.get_node("a"))["metadata"]["annotations"]
            (rule,) = json.loads(evidence["dynsched.io/pressure"])["rules"]
            assert (rule["rule"], rule["value"]) == ("mem", 80.65)
            await some_ticks(own, 1)  # the tick that marked them is reported
            rules = json.loads((await own.get("/rules"))[1])["rules"]
            errors = {rule["name"]: rule["last_error"] for rule in rules}
            assert "refused" in errors["load"]
            assert (errors["mem"], errors["cpu"]) == (None, None)
            await set_usage(cluster, "a", cpu="1", memory="2Gi")
            await until(lambda: is_marked(cluster, "b"), "the cooled node is released")
            assert "install metrics-server" not in (await own.get("/status"))[1]

        async def is_gone() -> bool:
            return "install metrics-server" in (await own.get("/status"))[1]

        await until(is_gone, "/status reports that metrics-server is gone")
        assert await is_marked(cluster, "b")
        assert await own.stop() == 0
        assert "Traceback" not in own.log
