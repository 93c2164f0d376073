"""`dynsched top` on a simulated cluster, and how it, `plan` and others find Prometheus."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster import SimCluster
from command_line import Call, Ended, call_of
from fake_prometheus import FakePrometheus
from metrics_support import set_usage
from service_support import service

from dynsched.rules.shipped import shipped_rules

CPU, MEMORY = (str(rule.expr) for rule in shipped_rules().rule_set.rules)
NODES = ("busy", "cool", "full")
PODS = "/api/v1/namespaces/default/pods"
FOUND = "Prometheus found: http://metrics.load.svc:9000, asked through the API"
NO_RIGHTS = {("list", "pods"), ("list", "services"), ("list", "nodes.metrics.k8s.io")}


@pytest.fixture
async def cluster(sim) -> SimCluster:
    """Three nodes of 7.91 cores. On one, a pod requests nearly all of them. One is marked as hot,
    because nodes that have just been created have no history in which `for` could have elapsed.
    """
    await sim.create_nodes(*NODES)
    await sim.patch_node("busy", {"metadata": {"labels": {"status": "presure"}}})
    for name, cpu in (("full", "7900m"), ("busy", "1")):
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "8"}}
        container = {"name": "app", "image": "app", "resources": resources}
        pod = {"metadata": {"name": name}, "spec": {"nodeName": name, "containers": [container]}}
        _ = (await sim.post(PODS, pod)).ok
    return sim


@pytest.fixture
def call(cluster, tmp_path, monkeypatch, capsys) -> Call:
    """Run a command in a folder without rules.yaml: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    async def called(*words: str) -> Ended:
        line = [words[0], "--kubeconfig", str(cluster.kubeconfig), *words[1:]]
        return await asyncio.to_thread(call_of, capsys, *line)

    return called


@contextlib.asynccontextmanager
async def installed(cluster: SimCluster, prometheus: FakePrometheus) -> AsyncIterator[None]:
    """A Prometheus that has measured the nodes for ten minutes, with its Service."""
    cpu = {"busy": 91.0, "cool": 20.0, "full": 30.0}
    prometheus.set(600, **{CPU: cpu, MEMORY: dict.fromkeys(NODES, 12.0)})
    labels = {"app": "kube-prometheus-stack-prometheus"}
    async with service(
        cluster, prometheus.url, ("load", "metrics"), labels=labels, port="http-web"
    ):
        yield


async def report(call: Call, *words: str) -> dict:
    code, output, errors = await call("top", "-o", "json", *words)
    assert code == 0, errors
    return json.loads(output)


async def test_prometheus_is_found_and_the_nodes_are_shown_worst_first(
    call, cluster, prometheus
) -> None:
    cluster.server.requests.clear()
    async with installed(cluster, prometheus):
        found = await report(call)
        assert [node["name"] for node in found["nodes"]] == ["busy", "full", "cool"]
        busy, full, cool = found["nodes"]
        assert [node["hot"] for node in found["nodes"]] == [True, False, False]
        assert (busy["cpu"]["used_percent"], busy["memory"]["used_percent"]) == (91.0, 12.0)
        assert (full["cpu"]["requests"], full["cpu"]["limits"]) == (7.9, 8.0)
        assert (busy["new_pods"], full["new_pods"]) == ({"why_not": "hot"}, {"why_not": "full"})
        assert cool["new_pods"]["rank"] == 1
        assert found["totals"]["hot"] == 1
        assert found["totals"]["pods"]["count"] == 2
        assert found["source"].startswith(FOUND)
        assert found["notes"] == []
        code, output, errors = await call("top")
        assert (code, errors.startswith("From cluster ")) == (0, True)
        assert "3 nodes, 1 hot (above 80 % CPU or 85 % memory)\nPrometheus found" in output
        assert "New pods would prefer cool.\n" in output
        assert output.splitlines()[-1].startswith("Next: `dynsched plan`")
    assert not await cluster.writes()


async def test_a_prometheus_given_by_flag_is_queried_and_none_is_searched(
    call, cluster, prometheus
) -> None:
    prometheus.set(600, **{CPU: {"busy": 90.0}})
    cluster.server.forbidden = {("list", "services")}
    found = await report(call, "--prom", prometheus.url)
    assert (found["source"], found["notes"]) == (f"Prometheus at {prometheus.url}", [])
    assert [node["hot"] for node in found["nodes"]] == [True, None, None]


@pytest.mark.parametrize("has_prometheus", [False, True])
async def test_metrics_server_is_queried_if_no_prometheus_measures_the_nodes(
    call, cluster, prometheus, has_prometheus
) -> None:
    for name, cpu in (("busy", "7500m"), ("cool", "1"), ("full", "2")):
        await set_usage(cluster, name, cpu=cpu, memory="1Gi")
    url = prometheus.url if has_prometheus else None
    labels = {"self-monitor": "true"}
    async with service(cluster, url, ("load", "metrics"), labels=labels):
        found = await report(call)
    why = "no values of these nodes" if has_prometheus else "no pod of Prometheus is ready"
    assert [why in note for note in found["notes"]] == [True]
    assert found["source"] == "metrics-server"
    assert [(node["name"], node["hot"]) for node in found["nodes"]] == [
        ("busy", True),
        ("full", False),
        ("cool", False),
    ]
    assert found["nodes"][0]["cpu"]["used_percent"] == pytest.approx(100 * 7.5 / 7.91)
    assert found["nodes"][2]["new_pods"]["rank"] == 1


async def test_without_both_only_requests_are_shown_with_a_hint(call) -> None:
    found = await report(call)
    assert (found["source"], found["totals"]["hot"]) == (None, None)
    assert [node["name"] for node in found["nodes"]] == ["full", "busy", "cool"]
    assert {node["hot"] for node in found["nodes"]} == {None}
    output = (await call("top"))[1]
    assert output.startswith("3 nodes: what they use is not known")
    assert "No Service has the labels of a known Prometheus" in output
    assert "install metrics-server" in output.splitlines()[-1]


async def test_a_user_who_may_only_list_nodes_sees_them_and_the_missing_permissions(
    call, cluster
) -> None:
    cluster.server.serves_metrics = True
    cluster.server.forbidden = NO_RIGHTS
    found = await report(call)
    assert sorted(found["notes"]) == [
        "Prometheus was not looked for: you may not list services",
        "Requests, limits and pods are not known: you may not list pods",
        "you may not list nodes.metrics.k8s.io",
    ]
    assert sorted(node["name"] for node in found["nodes"]) == [*NODES]
    assert "docs/look.md" in found["next"]
    cluster.server.forbidden = {*NO_RIGHTS, ("list", "nodes")}
    code, output, errors = await call("top")
    assert (code, output, "may not list nodes: " in errors) == (1, "", True)


async def test_a_missing_permission_for_prometheus_is_named_in_a_note(
    call, cluster, prometheus
) -> None:
    cluster.server.forbidden = {("get", "services/proxy")}
    async with installed(cluster, prometheus):
        notes = (await report(call))["notes"]
    assert "you may not get services/proxy http:metrics:9000" in notes[0]
    assert prometheus.headers == []


async def test_no_credential_goes_through_the_api_server(call, cluster, prometheus) -> None:
    async with installed(cluster, prometheus):
        for command in ("top", "plan", "doctor", "backtest"):
            code, output, errors = await call(command, "--prom-bearer-token", "secret")
            assert (code, output, "name its URL with --prom" in errors) == (2, "", True)
        await report(call)
    assert prometheus.headers
    assert not any("Authorization" in headers for headers in prometheus.headers)


@pytest.mark.parametrize(
    ("command", "shows"),
    [("plan", "node-cpu 91 > 80"), ("doctor", ""), ("backtest", "node-cpu")],
)
async def test_other_commands_find_prometheus_too_and_use_the_shipped_rules(
    call, cluster, prometheus, command, shows
) -> None:
    async with installed(cluster, prometheus):
        more = ["--since", "5m"] if command == "backtest" else []
        code, output, errors = await call(command, *more)
    assert "By the rules that come with dynsched: there is no rules.yaml here" in errors
    assert FOUND in errors
    assert shows in output
    assert code == 0 or command == "doctor"
    assert prometheus.paths


async def test_without_a_prometheus_in_the_cluster_plan_queries_localhost(call) -> None:
    _, _, errors = await call("plan")
    assert "No Service has the labels of a known Prometheus" in errors
    assert "Prometheus at http://localhost:9090: " in errors


async def test_a_rules_file_in_the_folder_overrides_the_shipped_rules(
    call, prometheus, tmp_path: Path
) -> None:
    rules = '{"rules": [{"name": "mine", "expr": "load", "threshold": 80}]}'
    (tmp_path / "rules.yaml").write_text(rules)
    prometheus.set(load={"busy": 90.0})
    code, output, errors = await call("plan", "--prom", prometheus.url)
    assert (code, errors, "mine" in output) == (0, "", True)
