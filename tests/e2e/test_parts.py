"""Components alongside dynsched: collector, second scheduler, descheduler, Prometheus alerts."""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifest_support import OVERLAYS
from monitoring_support import ALERTS, RECORDS
from programs import find_descheduler
from prometheus_support import Pushgateway
from site_support import (
    GIVEN,
    PUSHGATEWAY_PORT,
    SECOND,
    SHOP,
    WAIT,
    Site,
    load_of,
    pods_that,
    rules_by,
    until,
)

LOG = logging.getLogger("e2e")
COLLECTOR = "dynsched-collector"
AVAILABLE = "k8_node_cgroups_mem_available"
EVICTIONS = ("-n", SHOP, "--field-selector", "reason=LowNodeUtilization")


@pytest.fixture(scope="module")
def mine(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dynsched that marks nothing yet, with the descheduler if available; yield its folder."""
    parts, folder = ["guardrail", "kubectl"], tmp_path_factory.mktemp("parts") / "mine"
    if has_descheduler():
        parts.append("descheduler")
    site.example(folder, parts, rules_by(load_of(""), resource="cpu"))
    if has_descheduler():
        change(
            folder / "descheduler/policy.yaml",
            {"http://prometheus-operated.monitoring.svc:9090": site.prometheus.url, "30m": "1s"},
        )
        change(folder / "descheduler/deployment.yaml", {"interval=5m": "interval=20s"})
    with site.installed("-k", folder):
        yield folder


@pytest.fixture
def overlay(
    mine: Path, site: Site, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """``overlay(name, changes)`` copies it, replaces these texts and the image, and applies it."""
    applied: list[Path] = []

    def apply(name: str, changes: dict[str, str], rules: Any = None) -> None:
        folder = tmp_path / name
        shutil.copytree(OVERLAYS / name, folder)
        if rules:
            (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        file = folder / "kustomization.yaml"
        change(file, changes)
        content = yaml.safe_load(file.read_text())
        (image,) = (each for each in content["images"] if each["name"] == "dynsched")
        image["newName"], _, image["newTag"] = site.image.rpartition(":")
        file.write_text(yaml.safe_dump(content))
        applied.append(folder)
        site.kubectl("apply", "-k", folder)
        site.rolled_out()

    yield apply
    for folder in applied:
        site.kubectl("delete", "-k", folder)


def change(file: Path, texts: dict[str, str]) -> None:
    content = file.read_text()
    for old, new in texts.items():
        assert content.count(old) == 1, (file.name, old)
        content = content.replace(old, new)
    file.write_text(content)


def has_descheduler() -> bool:
    return bool(GIVEN) or find_descheduler() is not None


def test_the_collector_pushes_memory_available_as_the_kubelet_computes_it(overlay, site: Site):
    host = site.prometheus.url.removeprefix("http://").rpartition(":")[0]
    with Pushgateway(site.targets.parent / "pushgateway", f"{host}:{PUSHGATEWAY_PORT}") as pushed:
        overlay("collector", {"http://pushgateway.monitoring.svc:9091": pushed.url})
        nodes = {node["metadata"]["name"] for node in site.get("nodes")}
        until("each node's value is there", lambda: by_node(site, AVAILABLE) == nodes)
        kubelet = (
            "(max by (instance) (machine_memory_bytes)"
            ' - max by (instance) (container_memory_working_set_bytes{id="/"})) / 1024 / 1024'
        )
        pushed_values = f'label_replace({AVAILABLE}, "instance", "$1", "node", "(.+)")'
        ratio = f"{pushed_values} / on (instance) ({kubelet})"
        until("the kubelet's are there", lambda: len(site.prometheus.result(ratio)) == len(nodes))
        found = [float(each["value"][1]) for each in site.prometheus.result(ratio)]
        LOG.info("of the kubelet's memory.available: %s", found)
        assert all(0.95 < each < 1.05 for each in found)
        assert not site.warnings()


def by_node(site: Site, metric: str) -> set[str]:
    return {each["metric"]["node"] for each in site.prometheus.result(metric)}


def test_the_second_scheduler_places_its_pods_by_load(overlay, shop: str, site: Site):
    hot = site.node(0)
    rules = yaml.safe_load((OVERLAYS / SECOND / "rules.yaml").read_text())
    for each in rules["rules"]:
        each["expr"] = load_of(hot)
    changes = {"http://prometheus-operated.monitoring.svc:9090": site.prometheus.url}
    if GIVEN:  # the nodes of a local cluster have the image that the manifests name
        changes["newTag: v1.36.2"] = f"newTag: {site.version()}"
    overlay(SECOND, changes, rules)
    site.apply(deployment(site, "second", 6, schedulerName="cpu-real-usage-scheduler"))
    placed = nodes_of(site, "second", 6)
    LOG.info("placed: %s", placed)
    assert hot not in placed
    assert not site.warnings()
    # Its scheduler is removed, so nobody would place new pods.
    site.kubectl("-n", SHOP, "delete", "deployment", "second")


def deployment(site: Site, name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    template = pods_that(site, WAIT, name, resources={"requests": {"cpu": "10m"}}, **spec)
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def nodes_of(site: Site, app: str, count: int) -> Counter[str]:
    """Number of the app's running pods per node, once ``count`` pods run."""

    def found() -> Counter[str]:
        running = ("--field-selector", "status.phase=Running")
        pods = site.get("pods", "-n", SHOP, "-l", f"app={app}", *running)
        return Counter(
            p["spec"]["nodeName"] for p in pods if "deletionTimestamp" not in p["metadata"]
        )

    until(f"{count} pods of {app} run", lambda: found().total() == count)
    return found()


def test_the_descheduler_moves_pods_off_a_marked_node_only(mine, shop: str, site: Site):
    if not has_descheduler():
        pytest.skip("no descheduler: set DESCHEDULER, or put it into KUBEBUILDER_ASSETS")
    site.apply(deployment(site, "moved", 6))
    hot, there = nodes_of(site, "moved", 6).most_common(1)[0]
    (mine / "rules.yaml").write_text(yaml.safe_dump(rules_by(load_of(hot), resource="cpu")))
    site.kubectl("apply", "-k", mine)
    until("the node is marked", lambda: site.marked() == {hot})
    until("its pods are elsewhere", lambda: hot not in nodes_of(site, "moved", 6))
    assert len(site.get("events", *EVICTIONS)) == there
    assert not site.warnings()


def test_prometheus_loads_alerts_and_recording_rules_and_no_alert_fires(mine, site: Site):
    # Series over days are evaluated every 5 minutes, some of them only after pods were placed.
    names = [each["record"] for each in RECORDS]
    until("every figure is there", lambda: all(map(site.prometheus.result, names)))
    rules = site.prometheus.rules()
    assert len(rules) == len(ALERTS) + len(RECORDS)
    assert {(each["name"], each["health"]) for each in rules if each["health"] != "ok"} == set()
    firing = 'ALERTS{alertstate="firing", alertname!="DynschedDown"}'
    assert site.prometheus.result(f"max_over_time({firing}[1h])") == []
