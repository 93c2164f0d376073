"""`dynsched prune`: not beside an instance that is running, and with `--if-lease-older-than` when
nobody is there any more to see to the marks.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cluster import LEASES, Cluster, EnvtestCluster, SimCluster

from dynsched import app
from dynsched.beside import AtWorkError
from dynsched.core.errors import ClusterError, ForbiddenError
from dynsched.core.lease import LeaseTimes, given_up, held_by, read_lease
from dynsched.kube import holders, leases
from dynsched.sim.nodes import make_node

LEASE = f"{LEASES}/dynsched"
OLD_AFTER = 600.0


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    """With a node that is marked."""
    await cluster.create_node(make_node("a", 0, labels={"status": "presure"}))
    return cluster


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LeaseTimes().renew_every < leases.LOOK_AGAIN
    monkeypatch.setattr(leases, "LOOK_AGAIN", 1.0)
    monkeypatch.setattr(holders, "LOOK_AGAIN", 0.5)


async def marked(cluster: Cluster) -> bool:
    return "status" in (await cluster.get_node("a"))["metadata"]["labels"]


async def prune(cluster: Cluster, **more: Any) -> list[str]:
    """The nodes from which marks were taken."""
    order = app.Prune(cluster.kubeconfig, lease_older_than=OLD_AFTER, **more)
    return [patch.node for patch in (await app._prune(order)).applied]


def lease(age: float, *, released: bool = False) -> dict[str, Any]:
    """One that was renewed, or let go of, ``age`` seconds ago."""
    wall = time.time() - age
    spec = held_by("pod-1", None, LeaseTimes(), wall)
    if released:
        spec = given_up(read_lease({"spec": spec}, None, 0.0, least=15.0), wall)
    return {"metadata": {"name": "dynsched"}, "spec": spec}


@pytest.mark.parametrize("age", [-3600, 0, 590])
async def test_a_lease_that_was_renewed_of_late_keeps_the_marks(
    cluster: Cluster, caplog, age
) -> None:
    caplog.set_level("INFO")
    _ = (await cluster.post(LEASES, lease(age))).ok

    assert await prune(cluster) == []

    assert await marked(cluster)
    assert "nothing is pruned: the Lease was renewed " in caplog.text
    assert [write for write in await cluster.writes() if write.manager == "dynsched"] == []


async def test_a_lease_that_nobody_renews_lets_the_marks_go(cluster: Cluster) -> None:
    _ = (await cluster.post(LEASES, lease(610))).ok

    assert await prune(cluster, dry_run=True) == ["a"]
    assert await marked(cluster)
    assert await prune(cluster) == ["a"]

    assert not await marked(cluster)
    assert await prune(cluster) == []  # and there is nothing left


async def test_a_holder_whose_clock_is_late_is_at_work_all_the_same(
    cluster: Cluster, caplog
) -> None:
    caplog.set_level("INFO")
    _ = (await cluster.post(LEASES, lease(3600))).ok

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.3)
            _ = (await cluster.patch(LEASE, {"spec": lease(3600)["spec"]})).ok

    renewing = asyncio.create_task(renew())
    assert await prune(cluster) == []
    renewing.cancel()

    assert await marked(cluster)
    assert "although its renewTime looks old; check the clocks" in caplog.text


async def test_without_a_lease_the_marks_go(cluster: Cluster) -> None:
    assert await prune(cluster) == ["a"]
    assert not await marked(cluster)


async def test_a_clean_stop_counts_from_when_it_was(cluster: Cluster) -> None:
    _ = (await cluster.post(LEASES, lease(590, released=True))).ok
    assert await prune(cluster) == []

    _ = (await cluster.patch(LEASE, {"spec": lease(610, released=True)["spec"]})).ok
    began = time.monotonic()
    assert await prune(cluster) == ["a"]
    assert time.monotonic() - began < 1  # nobody holds it: there is nobody to wait for


async def test_a_lease_without_a_time_is_old(cluster: Cluster) -> None:
    body = {"metadata": {"name": "dynsched"}, "spec": {"holderIdentity": "by-hand"}}
    _ = (await cluster.post(LEASES, body)).ok
    assert await prune(cluster) == ["a"]


async def test_the_lease_is_looked_for_where_it_is_said_to_be(cluster: Cluster) -> None:
    await cluster.create_namespace("ops")
    path = LEASES.replace("/default/", "/ops/")
    _ = (await cluster.post(path, lease(0))).ok
    assert await prune(cluster, lease_namespace="ops") == []
    assert await prune(cluster) == ["a"]


def stranger(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig of somebody who may not read Leases."""
    if isinstance(cluster, EnvtestCluster):
        return cluster.servers.kubeconfig(folder / "stranger", cluster.servers.stranger_token)
    assert isinstance(cluster, SimCluster)
    cluster.server.forbidden = {("get", "leases")}
    return cluster.kubeconfig


async def test_who_may_not_read_the_lease_prunes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    order = app.Prune(stranger(cluster, tmp_path), lease_older_than=OLD_AFTER)
    with pytest.raises(ForbiddenError, match="may not get leases: "):
        await app._prune(order)
    assert await marked(cluster)


async def test_an_api_server_that_fails_prunes_nothing(sim: SimCluster) -> None:
    await sim.create_node(make_node("a", 0, labels={"status": "presure"}))
    sim.server.faults.answer(500, resource="leases")
    with pytest.raises(ClusterError, match="cannot get leases dynsched: "):
        await prune(sim)
    assert await marked(sim)


# Beside an instance that is running


async def plain_prune(cluster: Cluster, **more: Any) -> list[str]:
    """The nodes from which marks were taken."""
    order = app.Prune(cluster.kubeconfig, **more)
    return [patch.node for patch in (await app._prune(order)).applied]


async def test_beside_an_instance_that_is_at_work_nothing_is_pruned(cluster: Cluster) -> None:
    """Its marks were taken, and back 5 s later."""
    _ = (await cluster.post(LEASES, lease(0))).ok

    with pytest.raises(AtWorkError) as refused:
        await plain_prune(cluster)

    assert re.fullmatch(
        r"pod-1 holds the Lease default/dynsched, renewed \d+s ago: an instance is running and "
        r"puts marks back; nothing was removed\. Stop it first, for example with `kubectl -n "
        r"default scale deployment/dynsched --replicas=0`, or use --force; where it is another "
        r"installation's, use --lease-namespace",
        str(refused.value),
    )
    assert await marked(cluster)
    assert [write for write in await cluster.writes() if write.manager == "dynsched"] == []


async def test_what_would_be_pruned_is_shown_beside_an_instance_too(
    cluster: Cluster, caplog
) -> None:
    _ = (await cluster.post(LEASES, lease(0))).ok
    assert await plain_prune(cluster, dry_run=True) == ["a"]
    assert "pod-1 holds the Lease default/dynsched" in caplog.text
    assert await marked(cluster)


async def test_by_force_it_prunes_beside_an_instance(cluster: Cluster, caplog) -> None:
    _ = (await cluster.post(LEASES, lease(0))).ok
    assert await plain_prune(cluster, force=True) == ["a"]
    assert "pod-1 holds the Lease default/dynsched" in caplog.text
    assert not await marked(cluster)


async def test_once_the_instance_has_let_go_it_prunes_at_once(
    cluster: Cluster, monkeypatch
) -> None:
    monkeypatch.setattr(holders, "LOOK_AGAIN", 3600.0)  # there is nothing to look at again
    _ = (await cluster.post(LEASES, lease(1, released=True))).ok
    async with asyncio.timeout(30):
        assert await plain_prune(cluster) == ["a"]


async def test_an_instance_that_was_killed_is_seen_not_to_renew(cluster: Cluster) -> None:
    _ = (await cluster.post(LEASES, lease(20))).ok
    assert await plain_prune(cluster) == ["a"]


@pytest.mark.parametrize("age", [3600, -3600], ids=["late", "early"])
async def test_an_instance_whose_clock_is_wrong_is_at_work_all_the_same(
    cluster: Cluster, age
) -> None:
    _ = (await cluster.post(LEASES, lease(age))).ok

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.1)
            _ = (await cluster.patch(LEASE, {"spec": lease(age)["spec"]})).ok

    renewing = asyncio.create_task(renew())
    with pytest.raises(AtWorkError, match="renewed just now"):
        await plain_prune(cluster)
    renewing.cancel()
    assert await marked(cluster)


async def test_an_instance_is_found_in_whatever_namespace_it_is(cluster: Cluster) -> None:
    """A person's kubeconfig names `default`, and the instance runs in `dynsched`."""
    await cluster.create_namespace("ops")
    _ = (await cluster.post(LEASES.replace("/default/", "/ops/"), lease(0))).ok
    with pytest.raises(AtWorkError, match="kubectl -n ops scale"):
        await plain_prune(cluster)
    with pytest.raises(AtWorkError, match=r"--force$"):
        await plain_prune(cluster, lease_namespace="ops")
    assert await plain_prune(cluster, lease_namespace="default") == ["a"]


async def test_who_may_not_list_leases_looks_into_one_namespace(sim: SimCluster) -> None:
    await sim.create_node(make_node("a", 0, labels={"status": "presure"}))
    _ = (await sim.post(LEASES, lease(0))).ok
    sim.server.forbidden = {("list", "leases")}
    with pytest.raises(AtWorkError):
        await plain_prune(sim)
    assert await plain_prune(sim, lease_namespace="ops") == ["a"]


async def test_who_cannot_tell_whether_an_instance_is_at_work_prunes_nothing(
    sim: SimCluster,
) -> None:
    await sim.create_node(make_node("a", 0, labels={"status": "presure"}))
    sim.server.forbidden = {("list", "leases"), ("get", "leases")}
    with pytest.raises(
        ForbiddenError, match=r"cannot be determined .*: may not get leases: .* --force$"
    ):
        await plain_prune(sim)
    assert await marked(sim)
    assert await plain_prune(sim, force=True) == ["a"]


@pytest.mark.slow
async def test_the_command_says_why_it_prunes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    _ = (await cluster.post(LEASES, lease(42))).ok
    code, output, told = await dynsched_prune(cluster.kubeconfig)
    assert (code, output.strip()) == (0, "[]")
    assert "nothing is pruned: the Lease was renewed 4" in told

    code, output, told = await dynsched_prune(stranger(cluster, tmp_path))
    assert (code, output) == (1, "")
    assert "may not get leases: " in told


async def dynsched_prune(kubeconfig: Path) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dynsched", "prune", "--kubeconfig", str(kubeconfig)),
        *("--if-lease-older-than", "10m", "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, told = await process.communicate()
    return process.returncode, output.decode(), told.decode()
