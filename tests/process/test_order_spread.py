"""On a real scheduler: the order and replicas that are created at once."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cluster import EnvtestCluster
from manifest_support import Kubectl, order_component
from operator_support import until
from scheduling_support import (
    PODS,
    clear,
    dynsched,
    make_pod,
    placed,
    replicas,
    rules,
    scheduler,
    set_loads,
)

from dynsched.rules import keys

pytestmark = pytest.mark.slow

ORDER = "/apis/dynsched.io/v1/namespaces/default/nodeorders/dynsched"
RULES = rules(order={"score": {"load": 1}})


@pytest.fixture(scope="module")
def kubectl(envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """In a cluster with the policy, for an object in `default`; no namespace asks for it."""
    folder = tmp_path_factory.mktemp("order")
    found = Kubectl(envtest.kubeconfig(folder / "kubeconfig"))
    (folder / "order.yaml").write_text(order_component("default"))
    found("apply", "-f", folder / "order.yaml")
    with scheduler(envtest, {}):
        yield found
    found("delete", "-f", folder / "order.yaml")


@pytest.fixture
async def cluster(envtest, kubectl, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as found:
        yield found
        kubectl("label", "namespace", "default", f"{keys.AVOID_LABEL}-")
        await found.delete(ORDER)
        await clear(found)


async def has_order(cluster: EnvtestCluster) -> bool:
    made = (await cluster.post(PODS, make_pod("probe"), dryRun="All")).ok
    return keys.ORDER_ANNOTATION in made["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("loads", "count"),
    [
        ((12, 35, 92), 6),
        ((30, 35, 40), 6),
        ((20, 40, 60), 12),
        ((33, 50, 60), 6),
        ((33, 45, 50, 55, 60), 6),
        (range(33, 61, 3), 6),
        (range(5, 61, 7), 16),
        (range(5, 62, 4), 10),
    ],
)
async def test_the_replicas_of_a_workload_keep_their_spread_and_a_hot_node_gets_none(
    cluster, prometheus, kubectl, tmp_path, *, loads, count: int
) -> None:
    """No node gets more than one replica beyond what the default scheduler gives it."""
    nodes = {f"n{number}": float(load) for number, load in enumerate(loads)}
    hot = {name for name, load in nodes.items() if load > 80}
    await set_loads(cluster, prometheus, nodes)
    by_default = await placed(cluster, await replicas(cluster, count, cpu="50m"))
    await cluster.delete(PODS, gracePeriodSeconds=0)
    kubectl("label", "namespace", "default", f"{keys.AVOID_LABEL}=true")
    async with dynsched(cluster, prometheus, tmp_path, RULES, "--lease-namespace", "default"):
        await until(lambda: has_order(cluster), "there is an order")
        by_order = await placed(cluster, await replicas(cluster, count, cpu="50m"))
    assert set(by_default) == set(nodes) or len(nodes) > count
    most = math.ceil(count / (len(nodes) - len(hot)))
    assert max(by_order.values()) <= most + 1, by_order
    assert not hot & by_order.keys()


async def test_a_burst_that_the_scheduler_does_not_spread_goes_to_many_nodes(
    cluster, prometheus, kubectl, tmp_path: Path
) -> None:
    """The pods of a Job, and bare ones: all went to the two coolest of twelve nodes."""
    nodes = {f"{'n' * 42}{number:02}": 5.0 * number for number in range(1, 13)}
    kubectl("label", "namespace", "default", f"{keys.AVOID_LABEL}=true")
    await set_loads(cluster, prometheus, nodes)
    async with dynsched(cluster, prometheus, tmp_path, RULES, "--lease-namespace", "default"):
        await until(lambda: has_order(cluster), "there is an order")
        names = await replicas(cluster, 24, owned=False, cpu="50m")
        found: Counter[str] = await placed(cluster, names)
    assert len(found) >= 4, found
    assert max(found.values()) <= 10, found
    hottest = list(nodes)[-3:]
    assert sum(found[name] for name in hottest) <= 1, found
