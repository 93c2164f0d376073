"""Calls: what is sent, what comes back, and what a person is told."""

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


async def test_a_node_is_read_and_a_patch_changes_label_evidence_and_taint(cluster, client) -> None:
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


async def test_a_patch_on_a_changed_or_deleted_node(cluster: Cluster, client: KubeClient) -> None:
    await cluster.create_node(make_node("worker-1"))
    observed = await client.read("worker-1")
    await cluster.patch_node("worker-1", {"metadata": {"labels": {"status": "maintenance"}}})
    with pytest.raises(ConflictError, match=r"patch nodes worker-1.*409"):
        await client.patch(mark(observed, status="presure"))
    assert (await cluster.get_node("worker-1"))["metadata"]["labels"]["status"] == "maintenance"
    await cluster.delete_node("worker-1")
    with pytest.raises(NotFoundError, match=r"worker-1: it is gone"):
        await client.patch(mark(observed, status="presure"))


async def test_a_list_of_several_pages(sim: SimCluster, sim_client: KubeClient) -> None:
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
def test_a_403_is_answered_with_manifests_for_the_accounts_of_the_manifests_alone(
    user, is_ours
) -> None:
    """A whole base, with its placeholders, was advised to people; it grants them nothing."""
    said = f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group ""'
    told = str(forbidden(ApiRequest("list", "nodes", "/api/v1/nodes"), "server", said))
    assert ("manifests/base/rbac.yaml" in told) is is_ours
    assert f"--as={user}`" in told
    assert "apply -k" not in told


async def test_429_is_waited_for_as_told_and_given_up_after_a_while(sim, sim_client) -> None:
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
async def test_a_failing_server_is_asked_again(sim, sim_client, status) -> None:
    await sim.create_node(make_node("worker-1"))
    sim.server.faults.answer(status, verb="get", times=2)
    assert await sim_client.read("worker-1") is not None
    fault = sim.server.faults.answer(status, verb="get", message="etcd\x1b is\non fire")
    with pytest.raises(ClusterError, match=f"get nodes worker-1.*answered {status}: etcd is on"):
        await sim_client.read("worker-1")
    assert fault.hits == transport.ATTEMPTS


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_lost_in_mid_patch(sim, sim_client, observed, after) -> None:
    sim.server.faults.reset(verb="patch", times=1, after=after)
    if after:  # it had arrived: the second is refused, and a new read shows that all is done
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


async def test_a_server_that_was_down_is_tried_again(sim, sim_client) -> None:
    await sim.create_nodes("worker-0", "worker-1")
    await sim.server.down()
    with pytest.raises(ClusterError) as refused:
        await sim_client.read("worker-0")
    assert str(refused.value) == (
        f"cannot get nodes worker-0: {sim.url}: connection refused; is the API server up?"
    )
    await sim.server.up()
    assert await sim_client.read("worker-1") is not None


async def test_no_more_than_so_many_calls_at_once(sim: SimCluster, sim_client: KubeClient) -> None:
    await sim.create_node(make_node("worker-0"))
    held = sim.server.faults.delay(3600, verb="get", name="held")
    call = ApiRequest("get", "node held", "/api/v1/nodes/held")
    async with api_of(sim.kubeconfig, in_flight=4) as api:
        reads = [asyncio.create_task(api.call(call)) for _ in range(12)]
        await reached(lambda: held.hits >= 4, True)
        for _ in range(10):  # what else was sent has arrived by then
            assert await sim_client.read("worker-0") is not None
        assert held.hits == 4
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_an_admission_policy_that_refuses_is_no_missing_role(
    sim, sim_client, observed
) -> None:
    sim.server.faults.answer(403, verb="patch", message="policy 'guard' denied request: no")
    with pytest.raises(ForbiddenError) as refused:
        await sim_client.patch(mark(observed, status="presure"))
    assert "denied request: no" in str(refused.value)
    assert "can-i" not in str(refused.value)


async def test_something_that_is_no_api_server(tmp_path: Path) -> None:
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
            for ask in (
                AccessReviews(client).user_of("the-token-of-a-reader"),
                client.list_nodes(),
            ):
                told = rf"answered {status}: it redirects to {elsewhere.url[7:]}/a, which is not"
                with pytest.raises(SetupError, match=told):
                    await ask
    assert elsewhere.seen == []
