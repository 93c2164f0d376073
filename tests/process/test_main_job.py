"""The main job, end to end: the real process, a real Prometheus, a simulated and a real API server.

rules.yaml -> Prometheus -> marked nodes -> /nodes.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster, Write
from operator_support import Operator, until
from programs import ROOT
from prometheus_support import Exporter, Process, RealPrometheus
from replica_support import OPEN, is_marked, replica

from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

RULE = {"name": "load", "expr": "load", "threshold": 80, "clear_threshold": 70}
RULES = {"guard": OPEN, "rules": [{**RULE, "for": "1s", "keep_firing_for": "1s"}]}
STARTED = time.monotonic()


class Load(Exporter):
    """``values``: load by the label that names a node. The page also has CPU and memory metrics."""

    values: dict[tuple[str, str], float]

    @property
    def text(self) -> str:
        lines = [f'load{{{label}="{name}"}} {v}' for (label, name), v in self.values.items()]
        passed = time.monotonic() - STARTED
        for instance, busy in (("10.0.0.1:9100", 0.95), ("10.0.0.2:9100", 0.2)):
            for mode, share in (("idle", 1 - busy), ("user", busy)):
                labels = f'instance="{instance}",cpu="0",mode="{mode}"'
                lines.append(f"node_cpu_seconds_total{{{labels}}} {share * passed}")
        for instance, free in (("10.0.0.2:9100", 50), ("10.0.0.3:9100", 1)):
            lines.append(f'node_memory_MemAvailable_bytes{{instance="{instance}"}} {free}')
            lines.append(f'node_memory_MemTotal_bytes{{instance="{instance}"}} 100')
        return "\n".join(lines) + "\n"

    @text.setter
    def text(self, _: str) -> None:
        self.values = {}


@pytest.fixture(scope="module")
def exporter() -> Iterator[Load]:
    with Load() as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(exporter, tmp_path_factory) -> Iterator[Process]:
    scrape = {
        "job_name": "k8s nodes",
        "honor_labels": True,
        "static_configs": [{"targets": [exporter.target]}],
    }
    with RealPrometheus(tmp_path_factory.mktemp("prometheus"), [scrape]) as running:
        running.wait_for("count_over_time(node_memory_MemTotal_bytes[10s]) > 2", 2)
        yield running


@pytest.fixture(autouse=True)
def calm(exporter) -> None:
    exporter.values = {}


async def _reasons(cluster, node, expected):
    return {event["reason"] for event in await cluster.list_events(node)} == expected


def _without_version(node):
    metadata = {
        key: value
        for key, value in node["metadata"].items()
        # One server drops an emptied map and the other keeps it; both mean the same.
        if key not in {"resourceVersion", "managedFields"} and value != {}
    }
    return {**node, "metadata": metadata}


async def our_writes(cluster: Cluster) -> list[Write]:
    return [write for write in await cluster.writes() if write.manager == "dynsched"]


async def test_a_hot_node_is_marked_and_a_cooled_one_released(
    cluster, prometheus, exporter, tmp_path
) -> None:
    """The mark is label, taint and annotation; labels and taints of others stay as they are."""
    foreign = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    ours = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
    bodies = [make_node(name, index) for index, name in enumerate(["a", "b", "theirs"])]
    bodies[1]["spec"]["taints"] = [foreign]
    bodies[2]["metadata"]["labels"]["status"] = "maintenance"
    before = {body["metadata"]["name"]: await cluster.create_node(body) for body in bodies}
    exporter.values = {("node", "a"): 10, ("node", "b"): 10, ("node", "theirs"): 99}
    prometheus.wait_for("load == 99")
    rules = {**RULES, "mark": {"taint": "dynsched.io/pressure=true:PreferNoSchedule"}}
    async with replica(cluster, prometheus, tmp_path, content=rules) as operator:
        await operator.until_ready()
        assert await operator.get("/status") == (200, "ok")
        assert await is_marked(cluster)

        exporter.values[("node", "b")] = 91.5
        await until(lambda: is_marked(cluster, "b"), "b is marked")
        node = await cluster.get_node("b")
        assert node["spec"]["taints"] == [foreign, ours]
        evidence = json.loads(node["metadata"]["annotations"]["dynsched.io/pressure"])
        assert evidence["rules"][0].pop("since")
        assert evidence["rules"][0] == {"rule": "load", "value": 91.5, "threshold": 80.0}
        await until(lambda: _reasons(cluster, "b", {"Pressured"}), "the Event")
        await until(lambda: _reasons(cluster, "theirs", {"MarkConflict"}), "the Event")

        async def shown() -> dict[str, Any] | None:
            """/nodes follows the writes at the end of the tick."""
            payload = await operator.nodes()
            return payload if payload["num"] else None

        payload = await until(shown, "/nodes shows it")
        assert list(payload)[:3] == ["type", "num", "node_names"]
        assert payload["type"] == "Label status=presure Nodes"
        assert (payload["num"], payload["node_names"]) == (1, ["b"])
        conflicts = {node["name"]: node["conflict"] for node in payload["nodes"]}
        assert conflicts["theirs"] == "label status=maintenance was set by somebody else"

        exporter.values[("node", "b")] = 75  # in the dead band
        prometheus.wait_for("load == 75")
        exporter.values = dict.fromkeys(exporter.values, 20)
        await until(lambda: is_marked(cluster), "b is released")
        await until(lambda: _reasons(cluster, "b", {"Pressured", "Relieved"}), "the Event")
        assert await operator.stop() == 0
        assert "Traceback" not in operator.log
    # kopf writes finalizers and annotations unless it is configured not to.
    for name, created in before.items():
        assert _without_version(await cluster.get_node(name)) == _without_version(created)
    writes = [(write.verb, write.name) for write in await our_writes(cluster)]
    assert writes == [("patch", "b"), ("patch", "b")]


async def test_the_first_projects_rules_and_command_line_run_unchanged(
    cluster, prometheus, tmp_path
) -> None:
    await cluster.create_nodes("cpu", "cool", "mem")
    rules = ROOT / "tests/rules/first-project.yaml"
    flags = ["-kubeconfig", str(cluster.kubeconfig), "-prom", prometheus.url]
    flags += ["-r", str(rules), "-s", "1"]
    async with Operator(tmp_path, *flags, flag="-webaddr") as operator:
        # The cap is half of three nodes, rounded down: one, the hotter one.
        await until(lambda: is_marked(cluster, "mem"), "the hottest is marked")
        payload = await operator.nodes()
        assert [node["name"] for node in payload["nodes"] if node["pressured"]] == ["cpu", "mem"]
        assert await operator.get("/status") == (200, "ok")
