"""The Service of dynsched: found in the cluster, and queried through the API server."""

import json
from collections.abc import AsyncIterator

import pytest
import yaml
from api_support import api_of
from certificates import Authority
from cluster import Cluster, EnvtestCluster
from manifest_support import COMPONENTS
from prometheus_support import free_port
from service_support import OURS, Pages, in_namespace, own_address, served, service, stranger

from dynsched.kube.services import Service, ask_service, find_service
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError, ForbiddenError, NotFoundError

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/dynsched"


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[KubeApi]:
    async with api_of(cluster.kubeconfig) as opened:
        yield opened


async def test_the_service_is_found_by_its_label_and_queried_through_the_api_server(
    cluster, api
) -> None:
    pages = Pages()
    pages.tick(worker_1=91.0)
    async with served(pages, cluster), service(cluster, pages.url, ("load", "hot-or-not")):
        found = await find_service(api, None)
        assert found == Service("load", "hot-or-not")

        answer = await ask_service(api, found, "/nodes")
        assert (answer.status, len(json.loads(answer.body)["nodes"])) == (200, 3)


async def test_an_error_of_dynsched_is_returned_unchanged(cluster, api) -> None:
    pages = Pages()
    async with served(pages, cluster), service(cluster, pages.url):
        found = await find_service(api, None)
        early = await ask_service(api, found, "/nodes")
        assert (early.status, json.loads(early.body)) == (
            503,
            {"error": "no tick has finished yet; try again soon"},
        )
        pages.tick()
        unknown = await ask_service(api, found, "/nodes/worker-9")
        assert unknown.status == 404
        assert "no node 'worker-9'" in json.loads(unknown.body)["error"]


async def test_the_namespace_selects_one_of_several_services(cluster, api) -> None:
    async with service(cluster, None, ("a", "dynsched")), service(cluster, None, ("b", "one")):
        with pytest.raises(ClusterError, match="a/dynsched and b/one; choose one with --namespace"):
            await find_service(api, None)
        assert (await find_service(api, "b")).name == "one"
        async with api_of(in_namespace(cluster.kubeconfig, "a")) as other:
            assert (await find_service(other, None)).namespace == "a"

        async with service(cluster, None, ("b", "two")):
            with pytest.raises(ClusterError, match="b/one and b/two; name the URL of one"):
                await find_service(api, "b")
        async with service(cluster, None, ("b", "dynsched")):
            assert (await find_service(api, "b")).name == "dynsched"


async def test_the_error_says_what_to_check_if_there_is_no_service(cluster, api) -> None:
    async with service(cluster, None, labels={"app.kubernetes.io/name": "other"}):
        with pytest.raises(ClusterError, match=r"no Service with the label .* the right context\?"):
            await find_service(api, None)
        with pytest.raises(ClusterError, match="in namespace default of"):
            await find_service(api, "default")


async def test_a_port_named_https_is_queried_over_tls_with_any_certificate(
    cluster, api, tmp_path
) -> None:
    pages = Pages()
    pages.tick()
    authority = Authority(tmp_path, "ca")
    tls = authority.server(authority.issue("dynsched"))
    async with served(pages, cluster, tls):
        async with service(cluster, pages.url, port="https"):
            found = await find_service(api, None)
            assert found.proxied == "https:dynsched:9000"
            assert (await ask_service(api, found, "/nodes")).status == 200
        async with service(cluster, pages.url, port="http"):
            with pytest.raises(ClusterError, match="whether a port for HTTPS is named https"):
                await ask_service(api, await find_service(api, None), "/nodes")


async def test_without_permission_to_list_services_the_usual_name_is_assumed(
    cluster, tmp_path
) -> None:
    async with service(cluster, None), api_of(stranger(cluster, tmp_path)) as api:
        found = await find_service(api, None)
        assert found == Service(*OURS)
        assert (await find_service(api, "load")).namespace == "load"
        with pytest.raises(ForbiddenError, match="services/proxy http:dynsched:9000"):
            await ask_service(api, found, "/nodes")


async def test_the_role_in_the_manifests_is_sufficient_and_minimal(envtest, tmp_path) -> None:
    """Requests that it does not name stay forbidden."""
    role, *_ = yaml.safe_load_all((COMPONENTS / "kubectl/rbac.yaml").read_text())
    subject = {"kind": "User", "name": "stranger", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "metadata": {"name": "dynsched-kubectl"},
        "roleRef": {"apiGroup": subject["apiGroup"], "kind": "Role", "name": "dynsched-kubectl"},
        "subjects": [subject],
    }
    pages = Pages()
    pages.tick()
    async with (
        EnvtestCluster(envtest, tmp_path) as cluster,
        served(pages, cluster),
        service(cluster, pages.url),
        service(cluster, pages.url, ("dynsched", "other"), labels={}),
        api_of(stranger(cluster, tmp_path)) as api,
    ):
        for kind, body in (("roles", role), ("rolebindings", binding)):
            _ = (await cluster.post(f"{ROLES}/{kind}", body)).ok
        try:
            for namespace in (None, "dynsched"):
                found = await find_service(api, namespace)
                assert (await ask_service(api, found, "/nodes")).status == 200
            with pytest.raises(ForbiddenError):
                await ask_service(api, Service("dynsched", "other"), "/nodes")
            token = envtest.stranger_token
            posted = await cluster.request("POST", f"{found.path}/filter", {}, token=token)
            assert posted.status == 403
        finally:
            for kind in ("rolebindings", "roles"):
                await cluster.delete(f"{ROLES}/{kind}/dynsched-kubectl")


async def test_a_service_without_a_ready_pod_or_answer_is_an_error(cluster, api, tmp_path) -> None:
    async with service(cluster, None):
        with pytest.raises(ClusterError, match="no pod of dynsched is ready"):
            await ask_service(api, await find_service(api, None), "/nodes")
    with pytest.raises(NotFoundError, match="there is no Service dynsched in namespace dynsched"):
        await ask_service(api, Service(*OURS), "/nodes")
    host = own_address() if cluster.form == "envtest" else "127.0.0.1"
    async with service(cluster, f"http://{host}:{free_port()}"):
        with pytest.raises(ClusterError, match="got no answer from the Service"):
            await ask_service(api, await find_service(api, None), "/nodes")
