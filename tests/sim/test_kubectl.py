"""A stock kubectl with the simulated API server: commands that a person runs in the demo."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from cluster import EVENTS, SimCluster
from manifest_support import Kubectl

from dynsched_sim.examples import make_node

SOFT = "dynsched.io/pressure=true:PreferNoSchedule"


@pytest.fixture
def kubectl(sim: SimCluster) -> Callable[..., Awaitable[str]]:
    """kubectl in another thread, because the server runs in this one."""
    return partial(asyncio.to_thread, Kubectl(sim.kubeconfig))


@pytest.fixture
async def nodes(sim: SimCluster) -> list[str]:
    names = ["control-plane", "worker-1", "worker-2"]
    for index, name in enumerate(names):
        node = make_node(name, index, control_plane=index == 0)
        sim.server.objects.create("nodes", node)
    return names


async def test_get_nodes_shows_a_label_column(sim, kubectl, nodes) -> None:
    await sim.patch_node("worker-1", {"metadata": {"labels": {"status": "presure"}}})
    head, *found = map(str.split, (await kubectl("get", "nodes", "-L", "status")).splitlines())
    assert head == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "STATUS"]
    assert [[r[0], r[1], r[2], r[-1]] for r in found] == [
        ["control-plane", "Ready", "control-plane", "v1.36.2"],
        ["worker-1", "Ready", "<none>", "presure"],
        ["worker-2", "Ready", "<none>", "v1.36.2"],
    ]
    selected = await kubectl("get", "no", "-l", "status=presure")
    assert "worker-1" in selected
    assert "worker-2" not in selected
    await kubectl("label", "node", "worker-2", "status=presure")
    names = await kubectl("get", "nodes", "-o", "name")
    assert names.split() == [f"node/{name}" for name in nodes]
    assert sim.server.requests.writes("nodes")[-1].manager == "kubectl-label"


async def test_describe_node_shows_labels_taints_conditions_and_events(sim, kubectl, nodes) -> None:
    await kubectl("taint", "node", "worker-1", SOFT)
    await kubectl("cordon", "worker-1")
    # Kubelets write events with the node's name as its uid. Every kubectl finds these; older
    # versions find no others.
    body = {"involvedObject": {"kind": "Node", "name": "worker-1", "uid": "worker-1"}}
    body |= {"metadata": {"name": "worker-1.1", "namespace": "default"}, "type": "Warning"}
    body |= {"reason": "Pressured", "message": "node-cpu 91 > 80", "count": 1}
    _ = (await sim.post(EVENTS, body)).ok
    output = await kubectl("describe", "node", "worker-1")
    parts = (
        f"Taints:             {SOFT}",
        "KubeletReady",
        "InternalIP:  10.0.0.2",
        "Unschedulable:      true",
    )
    for part in (*parts, "Non-terminated Pods:          (0 in total)", "node-cpu 91 > 80"):
        assert part in output
