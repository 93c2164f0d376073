"""Requests to the API server, their responses, and the errors that users see."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_support import api_of, kubeconfig
from cluster import Cluster, SimCluster
from misbehaving_server import MisbehavingServer, http
from pods_support import reached

from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node
from dynsched.kube import transport
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.failures import ApiRequest, SetupError, forbidden
from dynsched.kube.lists import PAGE
from dynsched.kube.reviews import AccessReviews
from dynsched.util.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched_sim.examples import make_node

TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with api_of(cluster.kubeconfig, KubeClient) as found:
        yield found


@pytest.fixture
async def sim_client(sim: SimCluster) -> AsyncIterator[KubeClient]:
    async with api_of(sim.kubeconfig, KubeClient) as found:
        yield found


@pytest.fixture
async def observed(sim: SimCluster, sim_client: KubeClient) -> Node | None:
    await sim.create_node(make_node("worker-1"))
    return await sim_client.read("worker-1")


def mark(node: Node, **labels: str | None) -> NodePatch:
    taints = [*node.taints, TAINT] if labels.get("status") else None
    body: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.resource_version,
            "labels": labels,
            "annotations": {"dynsched.io/pressure": "{}" if taints else None},
        },
        "spec": {"taints": taints},
    }
    return NodePatch(node.name, Action.MARK, body, "because")


async def test_a_patch_changes_only_the_label_the_record_and_the_taint(cluster, client) -> None:
    foreign = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    raw = make_node("worker-1")
    raw["metadata"]["annotations"] = {"owner.io/team": "blue"}
    raw["spec"]["taints"] = [foreign]
    before = await cluster.create_node(raw)
    observed = await client.read("worker-1")
    assert observed.uid == before["metadata"]["uid"]
    assert observed.labels["kubernetes.io/hostname"] == "worker-1"
    assert await client.read("worker-2") is None

    marked = await client.patch(mark(observed, status="presure"))

    assert marked.labels["status"] == "presure"
    assert marked.annotations == {"dynsched.io/pressure": "{}"}
    assert list(marked.taints) == [foreign, TAINT]
    after = await cluster.get_node("worker-1")
    del after["metadata"]["labels"]["status"]
    del after["metadata"]["annotations"]["dynsched.io/pressure"]
    after["spec"]["taints"].remove(TAINT)
    for volatile in ("resourceVersion", "managedFields", "generation"):
        before["metadata"].pop(volatile, None)
        after["metadata"].pop(volatile, None)
    assert after == before
    [write] = [one for one in await cluster.writes() if one.verb == "patch"]
    assert (write.manager, write.subresource) == ("dynsched", "")
    assert write.user_agent.startswith("dynsched/")


async def test_a_patch_of_a_changed_or_deleted_node_is_an_error(
    cluster: Cluster, client: KubeClient
) -> None:
    await cluster.create_node(make_node("worker-1"))
    observed = await client.read("worker-1")
    await cluster.patch_node("worker-1", {"metadata": {"labels": {"status": "maintenance"}}})
    with pytest.raises(ConflictError, match=r"patch nodes worker-1.*409"):
        await client.patch(mark(observed, status="presure"))
    assert (await cluster.get_node("worker-1"))["metadata"]["labels"]["status"] == "maintenance"
    await cluster.delete_node("worker-1")
    with pytest.raises(NotFoundError, match=r"worker-1: it is gone"):
        await client.patch(mark(observed, status="presure"))


async def test_all_pages_of_a_list_are_read(sim: SimCluster, sim_client: KubeClient) -> None:
    assert await sim_client.list_nodes() == {}
    names = [f"worker-{number}" for number in range(PAGE + 1)]
    await sim.create_nodes(*names)
    assert sorted(await sim_client.list_nodes()) == sorted(names)


async def test_a_listed_cluster_knows_its_own_changes(cluster: Cluster, client: KubeClient) -> None:
    await cluster.create_nodes(*(f"worker-{n}" for n in range(3)))
    listed = await NodeCluster.listed(client)
    before = listed.nodes()
    assert listed.synced
    await listed.patch(mark(before["worker-0"], status="presure"))
    assert listed.nodes()["worker-0"].labels["status"] == "presure"
    assert "status" not in before["worker-0"].labels
    await cluster.delete_node("worker-1")
    assert await listed.read("worker-1") is None
    await cluster.delete_node("worker-2")
    with pytest.raises(NotFoundError):
        await listed.patch(mark(before["worker-2"], status="presure"))
    assert set(listed.nodes()) == {"worker-0"}


@pytest.mark.parametrize(
    ("user", "is_ours"),
    [
        ("jane", False),
        ("system:serviceaccount:ci:bot", False),
        ("system:serviceaccount:dynsched:dynsched", True),
        ("system:serviceaccount:ops:dynsched-janitor", True),
    ],
)
def test_a_403_recommends_our_manifests_only_to_their_own_service_accounts(user, is_ours) -> None:
    """People were advised to apply the whole base with its placeholders. It grants them nothing."""
    message = f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group ""'
    error = str(forbidden(ApiRequest("list", "nodes", "/api/v1/nodes"), "server", message))
    assert ("manifests/base/rbac.yaml" in error) is is_ours
    assert f"--as={user}`" in error
    assert "apply -k" not in error


async def test_a_429_is_retried_after_retry_after_unless_that_is_too_long(sim, sim_client) -> None:
    await sim.create_nodes("worker-0")
    sim.server.faults.answer(429, verb="get", name="worker-0", times=1, retry_after=1)
    began = time.monotonic()
    assert await sim_client.read("worker-0") is not None
    assert time.monotonic() - began >= 0.9
    fault = sim.server.faults.answer(429, verb="get", retry_after=3600)
    with pytest.raises(ClusterError, match="429: too many requests"):
        await sim_client.read("worker-1")
    assert fault.hits == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_a_server_error_is_retried_a_few_times(sim, sim_client, status) -> None:
    await sim.create_node(make_node("worker-1"))
    sim.server.faults.answer(status, verb="get", times=2)
    assert await sim_client.read("worker-1") is not None
    fault = sim.server.faults.answer(status, verb="get", message="etcd\x1b is\non fire")
    with pytest.raises(ClusterError, match=f"get nodes worker-1.*answered {status}: etcd is on"):
        await sim_client.read("worker-1")
    assert fault.hits == transport.ATTEMPTS


@pytest.mark.parametrize("after", [False, True])
async def test_a_patch_is_written_at_most_once_if_the_connection_breaks(
    sim, sim_client, observed, after
) -> None:
    sim.server.faults.reset(verb="patch", times=1, after=after)
    if after:  # the first patch arrived: the second is rejected, and a read shows the result
        with pytest.raises(ConflictError):
            await sim_client.patch(mark(observed, status="presure"))
        stored = await sim_client.read("worker-1")
    else:
        stored = await sim_client.patch(mark(observed, status="presure"))
    assert stored.labels["status"] == "presure"
    done = [w for w in await sim.writes() if w.verb == "patch" and w.status == 200]
    assert len(done) <= 1


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": ""}])
async def test_a_patch_without_a_version_is_never_sent_twice(sim, sim_client, metadata) -> None:
    await sim.create_node(make_node("worker-1"))
    fault = sim.server.faults.reset(verb="patch")
    with pytest.raises(ClusterError, match="the connection broke"):
        await sim_client.patch(NodePatch("worker-1", Action.MARK, {"metadata": metadata}, ""))
    assert fault.hits == 1


async def test_requests_succeed_again_after_an_outage(sim, sim_client) -> None:
    await sim.create_nodes("worker-0", "worker-1")
    await sim.server.down()
    with pytest.raises(ClusterError) as refused:
        await sim_client.read("worker-0")
    assert str(refused.value) == (
        f"cannot get nodes worker-0: {sim.url}: connection refused; is the API server up?"
    )
    await sim.server.up()
    assert await sim_client.read("worker-1") is not None


async def test_the_number_of_requests_in_flight_is_limited(
    sim: SimCluster, sim_client: KubeClient
) -> None:
    await sim.create_node(make_node("worker-0"))
    slow = sim.server.faults.delay(3600, verb="get", name="slow")
    call = ApiRequest("get", "node slow", "/api/v1/nodes/slow")
    async with api_of(sim.kubeconfig, in_flight=4) as api:
        reads = [asyncio.create_task(api.call(call)) for _ in range(12)]
        await reached(lambda: slow.hits >= 4, True)
        for _ in range(10):  # any further slow request would have arrived by then
            assert await sim_client.read("worker-0") is not None
        assert slow.hits == 4
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_a_denial_by_an_admission_policy_is_not_reported_as_a_missing_role(
    sim, sim_client, observed
) -> None:
    sim.server.faults.answer(403, verb="patch", message="policy 'guard' denied request: no")
    with pytest.raises(ForbiddenError) as refused:
        await sim_client.patch(mark(observed, status="presure"))
    assert "denied request: no" in str(refused.value)
    assert "can-i" not in str(refused.value)


async def test_a_server_that_is_not_an_api_server_is_a_clear_error(tmp_path: Path) -> None:
    with MisbehavingServer() as server:
        server.default = http("<html>Log in</html>", content_type="text/html")
        async with api_of(kubeconfig(tmp_path / "k", server.url), KubeClient) as client:
            with pytest.raises(SetupError, match="not JSON"):
                await client.list_nodes()


@pytest.mark.parametrize("status", [301, 303, 307, 308])
async def test_a_redirect_is_not_followed(tmp_path: Path, status: int) -> None:
    with MisbehavingServer() as server, MisbehavingServer() as elsewhere:
        server.default = http("", status, Location=f"http://u:pw@{elsewhere.url[7:]}/a?code=pw")
        async with api_of(kubeconfig(tmp_path / "k", server.url), KubeClient) as client:
            for request in (
                AccessReviews(client).user_of("the-token-of-a-reader"),
                client.list_nodes(),
            ):
                error = rf"answered {status}: it redirects to {elsewhere.url[7:]}/a, which is not"
                with pytest.raises(SetupError, match=error):
                    await request
    assert elsewhere.seen == []
