"""The main job, end to end: the real process, a real Prometheus, a simulated and a real API server.

rules.yaml -> Prometheus -> marked nodes -> /nodes.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from operator_support import Operator, dynsched, until, write_rules
from prometheus_support import Exporter, Process, RealPrometheus

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow

RULES = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [
        {
            "name": "load",
            "expr": "load",
            "threshold": 80,
            "clear_threshold": 70,
            "for": "1s",
            "keep_firing_for": "1s",
        }
    ],
}
FIRST_PROJECT = """\
PromJob:
  Name: "k8s nodes"
Rulename:
  Node_cpu1:
    Promsql: "(1-(sum(increase(node_cpu_seconds_total{job='k8s nodes',mode='idle'}[1m]))by(instance))/(sum(increase(node_cpu_seconds_total{job='k8s nodes'}[1m]))by(instance)))*100"
    Threshold: 70
  Node_mem:
    Promsql: "(1 - (node_memory_MemAvailable_bytes{job='k8s nodes'} / (node_memory_MemTotal_bytes{job='k8s nodes'})))* 100"
    Threshold: 70
"""  # noqa: E501 - as their users have it
STARTED = time.monotonic()


class Load(Exporter):
    """``values``: the load by the label that names a node; on the page also a busy CPU."""

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
def prometheus(exporter: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    scrape = {
        "job_name": "k8s nodes",
        "honor_labels": True,
        "static_configs": [{"targets": [exporter.target]}],
    }
    with RealPrometheus(tmp_path_factory.mktemp("prometheus"), [scrape]) as running:
        running.wait_for("count_over_time(node_memory_MemTotal_bytes[10s]) > 2", 2)
        yield running


@pytest.fixture(autouse=True)
def calm(exporter: Load) -> None:
    exporter.values = {}


def run_on(cluster: Cluster, prometheus: Process, folder: Path, rules=RULES, *more) -> Operator:
    path = write_rules(folder, rules)
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--prom", prometheus.url, "-r", str(path))
    return Operator(folder, "run", *flags, "--interval", "0.5", *more)


async def marked(cluster: Cluster) -> list[str]:
    return sorted(n["metadata"]["name"] for n in await cluster.list_nodes("status=presure"))


async def test_a_hot_node_is_marked_and_a_cooled_one_released(
    cluster, prometheus, exporter, tmp_path
) -> None:
    before = {name: await cluster.create_node(make_node(name, i)) for i, name in enumerate("abc")}
    exporter.values = {("node", "a"): 10, ("node", "b"): 10, ("node", "c"): 10}
    async with run_on(cluster, prometheus, tmp_path) as operator:
        await operator.until_ready()
        assert await operator.get("/status") == (200, "ok")
        assert await marked(cluster) == []

        exporter.values[("node", "b")] = 91.5
        await until(lambda: _is(cluster, ["b"]), "b is marked")
        node = await cluster.get_node("b")
        evidence = json.loads(node["metadata"]["annotations"]["dynsched.io/pressure"])
        assert evidence["rules"][0] | {"since": ""} == {
            "rule": "load",
            "value": 91.5,
            "threshold": 80.0,
            "since": "",
        }
        await until(lambda: _reasons(cluster, "b", {"Pressured"}), "the Event")
        payload = await until(lambda: _with_marks(operator), "/nodes shows it")
        assert list(payload)[:3] == ["type", "num", "node_names"]
        assert payload["type"] == "Label status=presure Nodes"
        assert (payload["num"], payload["node_names"]) == (1, ["b"])

        exporter.values[("node", "b")] = 75  # in the dead band
        prometheus.wait_for("load == 75")
        exporter.values[("node", "b")] = 20
        await until(lambda: _is(cluster, []), "b is released")
        await until(lambda: _reasons(cluster, "b", {"Pressured", "Relieved"}), "the Event")
        assert await operator.stop() == 0

    for name, created in before.items():
        assert _without_version(await cluster.get_node(name)) == _without_version(created)


async def _is(cluster, names):
    return await marked(cluster) == names


async def _with_marks(operator):
    """The answer of ``/nodes`` once it holds a mark; it follows the writes at the tick's end."""
    payload = await operator.nodes()
    return payload if payload["num"] else None


async def _reasons(cluster, node, expected):
    return {event["reason"] for event in await cluster.list_events(node)} == expected


def _without_version(node):
    metadata = {
        key: value
        for key, value in node["metadata"].items()
        # An emptied map is dropped by the one server and kept by the other; both mean the same.
        if key not in {"resourceVersion", "managedFields"} and value != {}
    }
    return {**node, "metadata": metadata}


async def test_a_node_is_found_by_whatever_its_exporter_calls_it(
    cluster, prometheus, exporter, tmp_path
) -> None:
    names = ["name", "internal", "port", "hostname", "external", "cool"]
    for index, name in enumerate(names):
        body = make_node(name, index)
        body["status"]["addresses"] = [
            {"type": "InternalIP", "address": f"10.1.0.{index}"},
            {"type": "Hostname", "address": f"host-of-{name}"},
            {"type": "ExternalIP", "address": f"203.0.113.{index}"},
        ]
        await cluster.create_node(body)
    for label, value in (
        ("node", "name"),
        ("instance", "10.1.0.1"),
        ("instance", "10.1.0.2:9100"),
        ("instance", "host-of-hostname"),
        ("instance", "203.0.113.4"),
        ("instance", "192.0.2.1:9100"),  # no node of this cluster
    ):
        exporter.values[(label, value)] = 95
    async with run_on(cluster, prometheus, tmp_path) as operator:
        await until(lambda: _is(cluster, sorted(names[:5])), "all five are marked")
        await operator.until_ready()
        _, text = await operator.get("/status", "application/json")
        assert "192.0.2.1:9100" in text


async def test_what_a_person_set_is_never_touched(cluster, prometheus, exporter, tmp_path) -> None:
    await cluster.create_node(make_node("ours", 0))
    await cluster.create_node(make_node("theirs", 1, labels={"status": "maintenance"}))
    before = await cluster.get_node("theirs")
    exporter.values = {("node", "ours"): 95, ("node", "theirs"): 99}
    async with run_on(cluster, prometheus, tmp_path) as operator:
        await until(lambda: _is(cluster, ["ours"]), "the other one is marked")
        exporter.values = {("node", "ours"): 5, ("node", "theirs"): 5}
        await until(lambda: _is(cluster, []), "and released")
        await until(lambda: _reasons(cluster, "theirs", {"MarkConflict"}), "the Event")
        nodes = {node["name"]: node for node in (await operator.nodes())["nodes"]}
        assert nodes["theirs"]["conflict"] == "label status=maintenance was set by somebody else"

    assert await cluster.get_node("theirs") == before


async def test_label_taint_and_evidence_come_and_go_together(
    cluster, prometheus, exporter, tmp_path
) -> None:
    foreign = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    body = make_node("a", 0)
    body["spec"]["taints"] = [foreign]
    await cluster.create_node(body)
    rules = {**RULES, "mark": {"taint": "dynsched.io/pressure=true:PreferNoSchedule"}}
    exporter.values = {("node", "a"): 95}
    async with run_on(cluster, prometheus, tmp_path, rules):
        await until(lambda: _is(cluster, ["a"]), "marked")
        ours = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
        assert (await cluster.get_node("a"))["spec"]["taints"] == [foreign, ours]

        exporter.values = {("node", "a"): 5}
        await until(lambda: _is(cluster, []), "released")
        node = await cluster.get_node("a")
        assert node["spec"]["taints"] == [foreign]
        assert "dynsched.io/pressure" not in node["metadata"].get("annotations", {})
    patches = [write for write in await cluster.writes() if write.manager == "dynsched"]
    assert [write.verb for write in patches] == ["patch", "patch"]


async def test_steady_state_writes_nothing_to_nodes(
    cluster, prometheus, exporter, tmp_path
) -> None:
    for index in range(10):
        await cluster.create_node(make_node(f"n{index}", index))
        exporter.values[("node", f"n{index}")] = 10 * index
    rules = {**RULES, "rules": [RULES["rules"][0] | {"threshold": 75, "for": "0s"}]}
    async with run_on(cluster, prometheus, tmp_path, rules, "--interval", "0.1") as operator:
        await operator.until_ready()
        await until(lambda: _is(cluster, ["n8", "n9"]), "two are marked")
        writes = [write for write in await cluster.writes() if write.manager == "dynsched"]
        tick = await _tick(operator)

        await until(lambda: _ticked(operator, tick + 100), "100 ticks")

    after = [write for write in await cluster.writes() if write.manager == "dynsched"]
    assert len(writes) == 2, writes
    assert after == writes


async def _tick(operator) -> int:
    _, text = await operator.get("/status", "application/json")
    return int(json.loads(text)["tick"]["number"])


async def _ticked(operator, tick) -> bool:
    return await _tick(operator) >= tick


async def test_the_first_projects_rules_and_command_line_run_unchanged(
    cluster, prometheus, tmp_path
) -> None:
    for index, name in enumerate(["cpu", "cool", "mem"]):
        await cluster.create_node(make_node(name, index))
    rules = tmp_path / "rule.yaml"
    rules.write_text(FIRST_PROJECT)
    flags = ["-kubeconfig", str(cluster.kubeconfig), "-prom", prometheus.url]
    flags += ["-r", str(rules), "-s", "1"]
    async with Operator(tmp_path, *flags, flag="-webaddr") as operator:
        # The cap is half of three, rounded down: the hotter one.
        await until(lambda: _is(cluster, ["mem"]), "the hottest is marked")
        payload = await operator.nodes()
        assert [node["name"] for node in payload["nodes"] if node["pressured"]] == ["cpu", "mem"]
        assert await operator.get("/status") == (200, "ok")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_cleanly(cluster, prometheus, tmp_path, number) -> None:
    await cluster.create_node(make_node("a", 0))
    async with run_on(cluster, prometheus, tmp_path) as operator:
        await operator.until_ready()
        assert await operator.stop(number) == 0
        assert "Traceback" not in operator.log


async def test_it_leaves_nothing_of_its_own_on_nodes_that_are_cool(
    cluster, prometheus, exporter, tmp_path
) -> None:
    # kopf writes finalizers and annotations unless it is kept from it.
    created = await cluster.create_node(make_node("a", 0))
    exporter.values = {("node", "a"): 5}
    async with run_on(cluster, prometheus, tmp_path) as operator:
        await operator.until_ready()
        await cluster.patch_node("a", {"metadata": {"labels": {"touched": "by-hand"}}})
        tick = await _tick(operator)
        await until(lambda: _ticked(operator, tick + 3), "three ticks more")
        await operator.stop()
    node = await cluster.get_node("a")
    assert node["metadata"].get("finalizers") is None
    assert node["metadata"].get("annotations") == created["metadata"].get("annotations")
    assert [write.verb for write in await cluster.writes() if write.manager == "dynsched"] == []


async def test_plan_once_and_prune(cluster, prometheus, exporter, tmp_path) -> None:
    created = await cluster.create_node(make_node("a", 0))
    exporter.values = {("node", "a"): 95}
    prometheus.wait_for("load == 95")
    rules = write_rules(tmp_path, {**RULES, "rules": [RULES["rules"][0] | {"for": "0s"}]})
    common = ["--kubeconfig", str(cluster.kubeconfig)]
    asking = [*common, "--prom", prometheus.url, "-r", str(rules)]

    code, output = await dynsched("plan", *asking)
    assert code == 0, output
    assert "load 95 > 80" in output
    assert await marked(cluster) == []

    code, output = await dynsched("run", "--once", *asking)
    assert code == 0, output
    assert await marked(cluster) == ["a"]

    code, output = await dynsched("prune", "--dry-run", *common)
    assert code == 0, output
    assert await marked(cluster) == ["a"]

    code, output = await dynsched("prune", *common)
    assert code == 0, output
    assert _without_version(await cluster.get_node("a")) == _without_version(created)

    code, output = await dynsched("prune", *common)
    assert code == 0, output
    patches = [write for write in await cluster.writes() if write.manager == "dynsched"]
    assert len(patches) == 2


async def test_a_wrong_url_is_told_once_and_not_for_each_rule(sim, tmp_path) -> None:
    await sim.create_node(make_node("a", 0))
    one = {"expr": "load", "threshold": 80, "for": "1m"}
    rules = write_rules(tmp_path, {"rules": [{"name": name, **one} for name in ("p", "q", "r")]})
    common = ["--kubeconfig", str(sim.kubeconfig), "--prom", "http://127.0.0.1:1"]
    for command in (["plan"], ["run", "--once"]):
        code, output = await dynsched(*command, *common, "-r", str(rules))
        assert code == 1
        lines = [line for line in output.splitlines() if "connection refused" in line]
        assert lines[-1].startswith("Error: ")
        # The log says it once and the command's last line says it once; `plan` logs errors only.
        assert len(lines) == (1 if command == ["plan"] else 2)


async def test_plan_warns_of_a_rule_that_leaves_cool_nodes_out(
    cluster, prometheus, tmp_path
) -> None:
    await cluster.create_node(make_node("a", 0))
    body = {"name": "hot", "expr": "vector(1) > 80", "threshold": 80}
    rules = write_rules(tmp_path, {"rules": [body]})
    common = ["--kubeconfig", str(cluster.kubeconfig), "--prom", prometheus.url]
    _, output = await dynsched("plan", *common, "-r", str(rules))
    assert output.count("Warning: rule hot: the comparison '> 80' leaves out the nodes") == 1
