"""Two replicas, of which the leader is lost."""

from collections.abc import Iterator

import pytest
from kubelets import kill
from site_support import Site, hot, until, without_a_writer


@pytest.fixture(scope="module")
def two(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two replicas with web-auth, so that RBAC decides who may read."""
    rules = hot(site.node(0))
    folder = tmp_path_factory.mktemp("two") / "mine"
    site.example(folder, ("order", "guardrail", "ha", "web-auth"), rules)
    with site.installed("-k", folder):
        until("the first mark", lambda: site.marked() == {site.node(0)})
        yield site


def delete(site: Site, leader: str) -> None:
    site.ours("delete", "pod", leader, "--wait=false")


def kill_container(site: Site, leader: str) -> None:
    (pod,) = (pod for pod in site.pods() if pod["metadata"]["name"] == leader)
    if not kill(pod["metadata"]["uid"]):
        pytest.skip("its processes are not on this machine")


def drain(site: Site, leader: str) -> None:
    (node,) = (p["spec"]["nodeName"] for p in site.pods() if p["metadata"]["name"] == leader)
    site.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")


@pytest.mark.parametrize("lose", [delete, kill_container, drain])
def test_the_other_replica_writes_when_the_leader_is_lost(lose, two: Site):
    try:
        gap = without_a_writer(two, lambda: lose(two, holder(two)))
        assert gap < 30
        two.rolled_out()
    finally:
        for node in two.get("nodes"):
            two.kubectl("uncordon", node["metadata"]["name"])


def test_only_a_token_with_the_permission_may_read(two: Site):
    with pytest.raises(AssertionError, match="HTTP Error 401"):
        two.ask("/nodes")
    assert two.node(0) in two.ours("exec", "deploy/dynsched", "--", "dynsched", "nodes")


def holder(site: Site) -> str:
    """The pod that leads; "" while none does."""
    name = site.lease()["spec"].get("holderIdentity") or ""
    return next((p["metadata"]["name"] for p in site.pods() if p["metadata"]["name"] in name), "")
