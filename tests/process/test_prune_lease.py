"""`dynsched prune`: not beside an instance that is running, and with `--if-lease-older-than` when
nobody is there any more to see to the marks.
"""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from api_support import stranger
from cluster import LEASES, Cluster, SimCluster
from operator_support import write_rules

from dynsched.controller import single_pass
from dynsched.controller.single_pass import AtWorkError
from dynsched.kube import leases
from dynsched.kube.election import LeaseTimes, given_up, held_by, read_lease
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched_sim.examples import make_node

NOW = 1_800_000_000.0
"""It stands still: on a busy machine a Lease that was just renewed would be an old one."""
OLD_AFTER = 600.0
HOUR = 3600.0
LOOKED_AGAIN = [leases.LOOK_AGAIN]
AT_WORK = r"""pod-1 holds the Lease default/dynsched, renewed \d+s ago: an instance is running and \
puts marks back; nothing was removed\. Stop it first, for example with `kubectl -n \
default scale deployment/dynsched --replicas=0`, or use --force; where it is another \
installation's, use --lease-namespace$""".replace("\\\n", "")


@pytest.fixture
async def cluster(cluster) -> Cluster:
    """With a node that is marked."""
    await cluster.create_node(make_node("a", 0, labels={"status": "presure"}))
    return cluster


class Meanwhile:
    """Instead of waiting: ``waited`` says for how long, and ``happens`` is done."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.happens: Callable[[], Awaitable[Any]] | None = None

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        if self.happens is not None:
            await self.happens()


@pytest.fixture(autouse=True)
def meanwhile(monkeypatch) -> Meanwhile:
    assert LeaseTimes().renew_every < leases.LOOK_AGAIN
    waiting = Meanwhile()
    monkeypatch.setattr(leases, "asyncio", SimpleNamespace(sleep=waiting.sleep))
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=lambda: NOW))
    return waiting


async def marked(cluster: Cluster) -> bool:
    return "status" in (await cluster.get_node("a"))["metadata"]["labels"]


async def prune(cluster: Cluster, **more: Any) -> list[str]:
    """The nodes from which marks were taken."""
    written = await single_pass.prune(kubeconfig=cluster.kubeconfig, **more)
    return [patch.node for patch in written.applied]


def lease(age: float, *, released: bool = False) -> dict[str, Any]:
    """One that was renewed, or let go of, ``age`` seconds ago."""
    wall = NOW - age
    spec = held_by("pod-1", None, LeaseTimes(), wall)
    if released:
        spec = given_up(read_lease({"spec": spec}, None, 0.0, least=15.0), wall)
    return {"metadata": {"name": "dynsched"}, "spec": spec}


async def hold(cluster: Cluster, body: Any, namespace: str = "default") -> None:
    _ = (await cluster.post(LEASES.replace("/default/", f"/{namespace}/"), body)).ok


def renewing(cluster: Cluster, age: float) -> Callable[[], Awaitable[Any]]:
    """The holder renews it, by a clock that is ``age`` seconds late."""
    return lambda: cluster.patch(f"{LEASES}/dynsched", {"spec": lease(age)["spec"]})


BY_HAND = {"metadata": {"name": "dynsched"}, "spec": {"holderIdentity": "by-hand"}}


@pytest.mark.parametrize(
    ("found", "waited"),
    [
        pytest.param(lambda: lease(-HOUR), [], id="renewed, by an early clock"),
        pytest.param(lambda: lease(0), [], id="renewed now"),
        pytest.param(lambda: lease(590), [], id="renewed of late"),
        pytest.param(lambda: lease(590, released=True), [], id="let go of of late"),
        pytest.param(lambda: lease(HOUR + 1), LOOKED_AGAIN, id="renewed, by a late clock"),
    ],
)
async def test_a_lease_that_was_renewed_of_late_keeps_the_marks(
    cluster, caplog, meanwhile, found, waited
) -> None:
    caplog.set_level("INFO")
    await hold(cluster, found())
    meanwhile.happens = renewing(cluster, HOUR)
    assert await prune(cluster, lease_older_than=OLD_AFTER) == []
    assert (await marked(cluster), meanwhile.waited) == (True, waited)
    assert "nothing is pruned: the Lease " in caplog.text
    assert ("although its renewTime looks old; check the clocks" in caplog.text) is bool(waited)
    assert [write for write in await cluster.writes() if write.manager == "dynsched"] == []


@pytest.mark.parametrize(
    ("found", "waited"),
    [
        pytest.param(lambda: lease(610), LOOKED_AGAIN, id="nobody renews it"),
        pytest.param(lambda: lease(610, released=True), [], id="let go of"),
        pytest.param(lambda: BY_HAND, LOOKED_AGAIN, id="without a time"),
        pytest.param(lambda: None, [], id="none"),
    ],
)
async def test_without_a_holder_at_work_the_marks_go(cluster, meanwhile, found, waited) -> None:
    if (body := found()) is not None:
        await hold(cluster, body)
    assert await prune(cluster, lease_older_than=OLD_AFTER, dry_run=True) == ["a"]
    assert (await marked(cluster), meanwhile.waited) == (True, waited)
    assert await prune(cluster, lease_older_than=OLD_AFTER) == ["a"]
    assert not await marked(cluster)
    assert await prune(cluster, lease_older_than=OLD_AFTER) == []  # and there is nothing left


async def test_who_cannot_read_the_lease_prunes_nothing(cluster, tmp_path) -> None:
    kubeconfig = stranger(cluster, tmp_path, {("get", "leases")})
    with pytest.raises(ForbiddenError, match="may not get leases: "):
        await single_pass.prune(kubeconfig=kubeconfig, lease_older_than=OLD_AFTER)
    if isinstance(cluster, SimCluster):
        cluster.server.forbidden = set()
        cluster.server.faults.answer(500, resource="leases")
        with pytest.raises(ClusterError, match="cannot get leases dynsched: "):
            await prune(cluster, lease_older_than=OLD_AFTER)
    assert await marked(cluster)


async def test_beside_an_instance_that_is_at_work_nothing_is_pruned_but_by_force(
    cluster, caplog
) -> None:
    """Its marks were taken, and back 5 s later."""
    await hold(cluster, lease(0))
    with pytest.raises(AtWorkError, match=AT_WORK):
        await prune(cluster)
    assert await marked(cluster)
    assert [write for write in await cluster.writes() if write.manager == "dynsched"] == []
    for more in ({"dry_run": True}, {"force": True}):
        caplog.clear()
        assert await prune(cluster, **more) == ["a"]
        assert "pod-1 holds the Lease default/dynsched" in caplog.text
        assert await marked(cluster) == ("dry_run" in more)


async def test_an_instance_that_sets_no_marks_is_in_nobodys_way(cluster, tmp_path) -> None:
    """What the annotation names is removed; of the label alone nothing says that it is ours."""
    await hold(cluster, lease(0))
    notes = {"dynsched.io/pressure": '{"label":"status=presure"}'}
    node = make_node("b", 1, labels={"status": "presure"})
    node["metadata"]["annotations"] = notes
    await cluster.create_node(node)
    content = {"mark": "none", "rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}]}
    assert await prune(cluster, rules=write_rules(tmp_path, content)) == ["b"]


EVIDENCE = "dynsched.io/pressure"
TAINT = {"key": EVIDENCE, "value": "true", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize("rules", ["treshold: 80", None, "none named"], ids=["bad", "gone", "none"])
async def test_it_needs_no_rules_to_find_what_any_rules_have_put(
    cluster, tmp_path, caplog, rules
) -> None:
    """The janitor read the file by which dynsched does not start, and failed each time."""
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


@pytest.mark.parametrize(
    ("found", "renewed", "waited"),
    [
        pytest.param(lambda: lease(1, released=True), None, [], id="let go of"),
        pytest.param(lambda: lease(20), None, LOOKED_AGAIN, id="killed"),
        pytest.param(lambda: lease(HOUR + 1), HOUR, LOOKED_AGAIN, id="its clock is late"),
        pytest.param(lambda: lease(1 - HOUR), -HOUR, LOOKED_AGAIN, id="its clock is early"),
    ],
)
async def test_a_lease_that_is_not_renewed_is_in_nobodys_way(
    cluster, meanwhile, found, renewed, waited
) -> None:
    await hold(cluster, found())
    if renewed is None:
        assert await prune(cluster) == ["a"]
    else:
        meanwhile.happens = renewing(cluster, renewed)
        with pytest.raises(AtWorkError, match="renewed just now"):
            await prune(cluster)
    assert (await marked(cluster), meanwhile.waited) == (renewed is not None, waited)


async def test_an_instance_is_found_in_whatever_namespace_it_is(cluster) -> None:
    """A person's kubeconfig names `default`, and the instance runs in `dynsched`."""
    await cluster.create_namespace("ops")
    await hold(cluster, lease(0), "ops")
    with pytest.raises(AtWorkError, match="kubectl -n ops scale"):
        await prune(cluster)
    with pytest.raises(AtWorkError, match=r"--force$"):
        await prune(cluster, lease_namespace="ops")
    assert await prune(cluster, lease_older_than=OLD_AFTER, lease_namespace="ops") == []
    assert await prune(cluster, lease_namespace="default", dry_run=True) == ["a"]
    assert await prune(cluster, lease_older_than=OLD_AFTER) == ["a"]


async def test_who_may_not_list_leases_looks_into_one_namespace_and_else_into_none(sim) -> None:
    await sim.create_node(make_node("a", 0, labels={"status": "presure"}))
    await hold(sim, lease(0))
    sim.server.forbidden = {("list", "leases")}
    with pytest.raises(AtWorkError):
        await prune(sim)
    sim.server.forbidden |= {("get", "leases")}
    with pytest.raises(ForbiddenError, match=r"determined .*: may not get leases: .* --force$"):
        await prune(sim)
    assert await marked(sim)
    assert await prune(sim, force=True) == ["a"]
    await sim.patch_node("a", {"metadata": {"labels": {"status": "presure"}}})
    sim.server.forbidden = {("list", "leases")}
    assert await prune(sim, lease_namespace="ops") == ["a"]
