"""Prometheus is found by the labels of common installations, and queried through the API server."""

from collections.abc import AsyncIterator

import pytest
import yaml
from api_support import api_of
from cluster import Cluster, EnvtestCluster
from fake_prometheus import FakePrometheus
from manifest_support import COMPONENTS
from service_support import own_address, service, stranger

from dynsched.kube.prometheus_services import PROBE, find_prometheus

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
INSTALLATIONS = {
    "kube-prometheus-stack": (
        {"app": "kube-prometheus-stack-prometheus", "self-monitor": "true"},
        ("http-web", "reloader-web"),
        "Prometheus",
    ),
    "kube-prometheus": (
        {NAME: "prometheus", COMPONENT: "prometheus", PART_OF: "kube-prometheus"},
        ("web", "reloader-web"),
        "Prometheus",
    ),
    "prometheus-operated": ({"operated-prometheus": "true"}, ("web", "grpc"), "Prometheus"),
    "self-monitor": ({"self-monitor": "true"}, ("web",), "Prometheus"),
    "community chart": ({NAME: "prometheus", COMPONENT: "server"}, ("http",), "Prometheus"),
    "its older form": ({"app": "prometheus", "component": "server"}, ("http",), "Prometheus"),
    "prometheus-server": ({"app": "prometheus-server"}, ("http",), "Prometheus"),
    "vmsingle": ({NAME: "vmsingle"}, ("http",), "VictoriaMetrics"),
    "its chart": ({NAME: "victoria-metrics-single"}, ("http",), "VictoriaMetrics"),
    "vmselect": ({NAME: "vmselect"}, ("http",), "VictoriaMetrics", "/select/0/prometheus"),
    "Thanos": ({NAME: "thanos", COMPONENT: "query"}, ("http", "grpc"), "Thanos"),
    "Mimir": (
        {NAME: "mimir", COMPONENT: "query-frontend"},
        ("http-metrics", "grpc"),
        "Mimir",
        "/prometheus",
    ),
}
"""Labels, names of the ports with that of the API first, the program, and the path of its API."""
OPENSHIFT = {NAME: "thanos-query", PART_OF: "openshift-monitoring"}


@pytest.fixture
async def prometheus(cluster: Cluster) -> AsyncIterator[FakePrometheus]:
    """A Prometheus at an address that the API server can reach."""
    host = own_address() if cluster.form == "envtest" else "127.0.0.1"
    async with FakePrometheus(host) as running:
        yield running


@pytest.mark.parametrize("name", INSTALLATIONS)
async def test_each_known_installation_is_found_and_queried(cluster, prometheus, name) -> None:
    labels, (port, *others), program, *more = INSTALLATIONS[name]
    prefix = more[0] if more else ""
    options = {"labels": labels, "port": port, "other_ports": others}
    async with (
        service(cluster, prometheus.url, ("load", "metrics"), **options),
        api_of(cluster.kubeconfig) as api,
    ):
        found, _ = await find_prometheus(api)
        assert (str(found), found.kind.program) == (
            f"http://metrics.load.svc:9000{prefix}",
            program,
        )
        status, _, body = await found.fetch(api, '/api/v1/query?query=up%7Ba%3D"b%2Bc"%7D', 5)
        assert (status, b'"success"' in body) == (200, True)
        assert prometheus.paths[-1] == f"{prefix}/api/v1/query"
        assert "Authorization" not in prometheus.headers[-1]


async def test_a_prometheus_with_node_metrics_is_preferred(cluster, prometheus) -> None:
    """An application may have its own Prometheus."""
    async with (
        FakePrometheus(prometheus.host) as nodes,
        service(cluster, prometheus.url, ("a", "app"), labels={"app": "prometheus-server"}),
        service(cluster, nodes.url, ("b", "nodes"), labels={NAME: "vmsingle"}),
        api_of(cluster.kubeconfig) as api,
    ):
        for measures, wanted in (({}, "app"), ({PROBE: {"a": 1.0}}, "nodes")):
            nodes.set(**measures)
            found, _ = await find_prometheus(api)
            assert found.service.name == wanted


async def test_of_equally_preferred_services_the_first_by_name_is_taken(
    cluster, prometheus
) -> None:
    options = {"labels": {NAME: "vmsingle"}}
    async with (
        service(cluster, prometheus.url, ("load", "vm-2"), **options),
        service(cluster, prometheus.url, ("load", "vm"), **options),
        api_of(cluster.kubeconfig) as api,
    ):
        found, _ = await find_prometheus(api)
        assert found.service.name == "vm"


async def test_the_reason_why_no_prometheus_is_found(cluster, prometheus, tmp_path) -> None:
    async with api_of(cluster.kubeconfig) as api:
        found, why_not = await find_prometheus(api)
        assert (found, why_not) == (None, ["No Service has the labels of a known Prometheus"])
        for labels, url, reason in (
            ({"self-monitor": "true"}, None, "no pod of Prometheus is ready behind the Service"),
            (OPENSHIFT, prometheus.url, "passes none on; name its own URL with --prom"),
        ):
            async with service(cluster, url, ("load", "metrics"), labels=labels):
                found, (why_not,) = await find_prometheus(api)
                assert found is None
                assert reason in why_not
        prometheus.failing = {"*": 401}
        async with service(cluster, prometheus.url, ("load", "m"), labels={NAME: "vmsingle"}):
            found, (why_not,) = await find_prometheus(api)
            assert (found, "it wants a login" in why_not) == (None, True)
    async with api_of(stranger(cluster, tmp_path)) as api:
        found, (why_not,) = await find_prometheus(api)
        assert (found, why_not) == (
            None,
            "Prometheus was not looked for: you may not list services",
        )


async def test_the_role_in_the_manifests_is_sufficient_and_minimal(envtest, tmp_path) -> None:
    """A Service of another name stays forbidden."""
    _, role, *_ = yaml.safe_load_all((COMPONENTS / "kubectl/rbac.yaml").read_text())
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "User", "name": "stranger", "apiGroup": "rbac.authorization.k8s.io"}
    named = {"apiGroup": subject["apiGroup"], "kind": "ClusterRole", "name": "dynsched-kubectl"}
    binding = {"metadata": {"name": "look"}, "roleRef": named, "subjects": [subject]}
    labels = {"operated-prometheus": "true"}
    async with (
        EnvtestCluster(envtest, tmp_path) as cluster,
        FakePrometheus(own_address()) as running,
        api_of(stranger(cluster, tmp_path)) as api,
    ):
        for kind, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            _ = (await cluster.post(f"{rbac}/{kind}", body)).ok
        try:
            for name, is_found in (("prometheus-k8s", True), ("other", False)):
                where = ("load", name)
                async with service(cluster, running.url, where, labels=labels, number=9090):
                    found, why_not = await find_prometheus(api)
                    assert (found is not None) is is_found
            assert "you may not get services/proxy http:other:9090" in why_not[0]
        finally:
            await cluster.delete(f"{rbac}/clusterrolebindings/look")
            await cluster.delete(f"{rbac}/clusterroles/dynsched-kubectl")
