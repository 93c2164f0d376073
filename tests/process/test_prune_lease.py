"""`dynsched prune` refuses to run alongside an active instance.

With `--if-lease-older-than` it prunes only once no instance maintains the marks any more.
"""

import time
from typing import Any

import pytest
from cluster import LEASES, Cluster
from operator_support import until, write_rules
from replica_support import replica, some_ticks

from dynsched.controller import single_pass
from dynsched.controller.single_pass import AtWorkError
from dynsched.kube.election import LeaseTimes, held_by, read_lease, released_spec
from dynsched.util.errors import ForbiddenError
from dynsched_sim.examples import make_node

OLD_AFTER = 600.0
HOUR = 3600.0
MARKED = {"metadata": {"labels": {"status": "presure"}}}


@pytest.fixture
async def cluster(cluster) -> Cluster:
    """A cluster with a marked node."""
    await cluster.create_node(make_node("a", 0, labels={"status": "presure"}))
    return cluster


async def marked(cluster: Cluster) -> bool:
    return "status" in (await cluster.get_node("a"))["metadata"]["labels"]


async def prune(cluster: Cluster, **more: Any) -> list[str]:
    """Prune; return the nodes whose marks were removed."""
    written = await single_pass.prune(
        single_pass.PruneOptions(kubeconfig=cluster.kubeconfig, **more)
    )
    return [] if written is None else [patch.node for patch in written.applied]


def lease(age: float = 0.0, *, released: bool = False) -> dict[str, Any]:
    """A Lease that was renewed, or released, ``age`` seconds ago."""
    wall = time.time() - age
    spec = held_by("pod-1", None, LeaseTimes(), wall)
    if released:
        spec = released_spec(read_lease({"spec": spec}, None, 0.0, least=15.0), wall)
    return {"metadata": {"name": "dynsched"}, "spec": spec}


async def hold(cluster: Cluster, body: Any, namespace: str = "default") -> None:
    _ = (await cluster.post(LEASES.replace("/default/", f"/{namespace}/"), body)).ok


BY_HAND = {"metadata": {"name": "dynsched"}, "spec": {"holderIdentity": "by-hand"}}


@pytest.mark.parametrize(
    ("found", "janitor_prunes", "person_prunes"),
    [
        pytest.param(lambda: None, True, True, id="none"),
        pytest.param(lambda: lease(590, released=True), False, True, id="released recently"),
        pytest.param(lambda: lease(610, released=True), True, True, id="released"),
        pytest.param(lambda: lease(590), False, True, id="renewed recently"),
        pytest.param(lambda: lease(610), True, True, id="no longer renewed"),
        pytest.param(lambda: BY_HAND, True, True, id="without a time"),
    ],
)
async def test_marks_are_pruned_if_nobody_renews_the_lease(
    cluster, found, janitor_prunes, person_prunes
) -> None:
    if (body := found()) is not None:
        await hold(cluster, body)
    for more, prunes in (({"lease_older_than": OLD_AFTER}, janitor_prunes), ({}, person_prunes)):
        await cluster.patch_node("a", MARKED)
        assert await prune(cluster, **more) == ["a"] * prunes
        assert await marked(cluster) is not prunes


@pytest.mark.parametrize("age", [0.0, 50.0, -HOUR], ids=["now", "late clock", "early clock"])
async def test_marks_stay_if_the_lease_was_renewed_recently(cluster, age) -> None:
    await hold(cluster, lease(age))
    assert await prune(cluster, lease_older_than=OLD_AFTER) == []
    with pytest.raises(AtWorkError, match="pod-1"):
        await prune(cluster)
    assert await prune(cluster, dry_run=True) == ["a"]
    assert await marked(cluster)
    assert [write for write in await cluster.writes() if write.manager == "dynsched"] == []


async def test_an_instance_that_sets_no_marks_does_not_prevent_pruning(cluster, tmp_path) -> None:
    """The mark that the annotation records is removed; a label alone may be somebody else's."""
    await hold(cluster, lease())
    notes = {"dynsched.io/pressure": '{"label":"status=presure"}'}
    node = make_node("b", 1, labels={"status": "presure"})
    node["metadata"]["annotations"] = notes
    await cluster.create_node(node)
    content = {"mark": "none", "rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}]}
    assert await prune(cluster, rules=write_rules(tmp_path, content)) == ["b"]


EVIDENCE = "dynsched.io/pressure"
TAINT = {"key": EVIDENCE, "value": "true", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize("rules", ["treshold: 80", None, "none named"], ids=["bad", "gone", "none"])
async def test_prune_finds_the_marks_of_any_rules_without_a_rules_file(
    cluster, tmp_path, caplog, rules
) -> None:
    """The janitor once failed on the same broken rules file that kept dynsched from starting."""
    text = '{"label":"load=high","taint":"dynsched.io/pressure=true:PreferNoSchedule"}'
    both = {"labels": {"load": "high"}, "annotations": {EVIDENCE: text}}
    for name, written in ("b", both), ("c", {"annotations": {EVIDENCE: text}}):
        await cluster.create_node(make_node(name, 1))
        body = {"metadata": written, "spec": {"taints": [TAINT]}}
        await cluster.patch_node(name, body, field_manager="dynsched")
    file = tmp_path / "rules.yaml"
    if rules == "treshold: 80":
        file.write_text(rules)
    named = {} if rules == "none named" else {"rules": file}
    assert sorted(await prune(cluster, lease_older_than=OLD_AFTER, **named)) == ["a", "b", "c"]
    for node in await cluster.list_nodes():
        assert not {"status", "load"} & node["metadata"]["labels"].keys()
        assert EVIDENCE not in node["metadata"].get("annotations", {})
        assert TAINT not in node["spec"].get("taints", [])
    assert (str(file) in caplog.text) is bool(named)


async def test_an_instance_is_found_in_any_namespace(cluster) -> None:
    """A person's kubeconfig may name `default` although the instance runs in `dynsched`."""
    await cluster.create_namespace("ops")
    await hold(cluster, lease(), "ops")
    with pytest.raises(AtWorkError, match="ops"):
        await prune(cluster)
    with pytest.raises(AtWorkError):
        await prune(cluster, lease_namespace="ops")
    assert await prune(cluster, lease_older_than=OLD_AFTER, lease_namespace="ops") == []
    assert await prune(cluster, lease_namespace="default", dry_run=True) == ["a"]
    assert await prune(cluster, lease_older_than=OLD_AFTER) == ["a"]


async def test_without_permission_to_list_leases_one_namespace_is_checked(sim) -> None:
    await sim.create_node(make_node("a", 0, labels={"status": "presure"}))
    await hold(sim, lease())
    sim.server.forbidden = {("list", "leases")}
    with pytest.raises(AtWorkError):
        await prune(sim)
    assert await prune(sim, lease_namespace="ops", dry_run=True) == ["a"]
    sim.server.forbidden |= {("get", "leases")}
    with pytest.raises(ForbiddenError):
        await prune(sim)
    assert await marked(sim)


@pytest.mark.slow
async def test_take_lease_stops_the_writes_of_a_running_instance(
    cluster, prometheus, tmp_path
) -> None:
    """As before an uninstall: the instance still runs and must not set the marks again."""
    await cluster.create_node(make_node("hot", 1))
    prometheus.set(load={"hot": 95, "a": 10})
    async with replica(cluster, prometheus, tmp_path) as operator:
        await operator.until_ready()
        await until(lambda: cluster.list_nodes("status=presure"), "a node is marked")
        assert await prune(cluster, dry_run=True, take_lease=True) == ["hot"]
        assert await prune(cluster, take_lease=True) == ["hot"]
        await some_ticks(operator)
        assert await cluster.list_nodes("status=presure") == []
        assert "no longer hold the Lease" in operator.log
