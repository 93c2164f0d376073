"""The order on a real API server and scheduler: what new pods get, where they go, when it ends.

test_order_webhook.py tests which pods get which part of it, with the same policies.
"""

import asyncio
import json
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from api_support import api_of
from cluster import EnvtestCluster
from fake_prometheus import FakePrometheus
from manifest_support import BASE, COMPONENTS, Kubectl, order_component
from operator_support import until
from order_cases import (
    BEFORE,
    GATES,
    GOT,
    LEVELS,
    OLD,
    OWNED,
    own_and_order,
    preferring,
    told,
    until_told,
)
from programs import run
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

from dynsched.features.order.resource import spec_of
from dynsched.features.order.writer import LASTS
from dynsched.rules import keys
from dynsched.tools.policies import order_problems
from dynsched.util.formatting import format_time, parse_time
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

ORDERS = "/apis/dynsched.io/v1/namespaces/default/nodeorders"
ORDER = f"{ORDERS}/dynsched"
LONG = "n" * 70
"""The name of the coolest node, which is too long for a preference."""
LOADS = {"hot": 95.0} | {f"n{number}": 45.0 + 5 * number for number in range(5)}
RULES = rules(order={"score": {"load": 1}})
FLAGS = ("--lease-namespace", "default")


def called(*words: str | Path) -> CompletedProcess[str]:
    return run(sys.executable, "-m", "dynsched", *words)


async def of_pod(cluster: EnvtestCluster, name: str) -> dict[str, Any]:
    """The JSON output of `dynsched order`."""
    words = ("order", name, "--kubeconfig", cluster.kubeconfig, "-o", "json")
    found: dict[str, Any] = json.loads((await asyncio.to_thread(called, *words)).stdout)
    return found


@pytest.fixture(scope="module")
def policy(envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The components order, for an object in `default`, and inject."""
    folder = tmp_path_factory.mktemp("order")
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as kubectl:
        kubectl.apply(docs=yaml.safe_load_all(order_component("default")))
        kubectl.apply("-k", COMPONENTS / "inject")
        kubectl("label", "namespace", "default", f"{keys.AVOID_LABEL}=true")
        yield kubectl
        kubectl("label", "namespace", "default", f"{keys.AVOID_LABEL}-")


@pytest.fixture
async def cluster(envtest, policy, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as empty:
        yield empty
        await clear(empty)


@pytest.fixture
async def prometheus(cluster) -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as running:
        await set_loads(cluster, running, LOADS)
        nameless = make_node(LONG)
        del nameless["metadata"]["labels"][keys.HOSTNAME_LABEL]
        await cluster.create_node(nameless)
        running.set(load=LOADS | {LONG: 1.0})
        yield running


async def problems(cluster: EnvtestCluster) -> list[str]:
    """The reasons that doctor finds why pods do not get the order."""
    async with api_of(cluster.kubeconfig) as api:
        return [f"{what}: {fix}" for what, fix in await order_problems(api)]


async def test_new_pods_prefer_the_coolest_until_dynsched_is_gone(
    cluster, prometheus, envtest, tmp_path: Path
) -> None:
    order = [[f"n{number}"] for number in range(5)]
    assert await told(cluster) is None
    async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS) as operator:
        await until_told(cluster, order, "a pod prefers the coolest, and the hot one not at all")
        answer = json.loads((await operator.get("/order"))[1])
        shown = [(each["node"], each["load"]) for each in answer["pools"][0]["nodes"]]
        assert shown == [(name, load) for name, load in LOADS.items() if name != "hot"]
        kinds = {"unknown": 0, "hot": 1, "closed": 0, "full": 0, "unnamed": 1}
        assert answer["counts"] == {"ranked": 5, **kinds}
        spec = (await cluster.get(ORDER)).ok["spec"]
        assert parse_time(spec["until"]) - parse_time(answer["until"]) <= LASTS
        assert answer["until"] > answer["written_at"]
        with scheduler(envtest, {}):
            names = [f"pod-{number}" for number in range(3)]
            for name in names:
                pod = make_pod(name)
                pod["metadata"] |= OWNED
                _ = (await cluster.post(PODS, pod)).ok

            assert not {"hot", "n4", "n3"} & (await placed(cluster, names)).keys()
        pod = (await cluster.get(f"{PODS}/pod-0")).ok["spec"]
        assert "'status'" in str(pod["affinity"])  # the soft affinity too
        shown_order = await of_pod(cluster, "pod-0")
        assert [level["nodes"] for level in shown_order["levels"]] == order
        assert shown_order["node"] == pod["nodeName"] == order[shown_order["level"] - 1][0]
        assert await problems(cluster) == []

        async def is_counted() -> bool:
            text = (await operator.get("/metrics"))[1]
            assert 'dynsched_order_nodes{pool=""} 5.0' in text
            assert 'dynsched_order_writes_total{result="failed"} 0.0' in text
            return "dynsched_order_pods 3.0" in text

        await until(is_counted, "the metrics have the pods that carry the order")
        prometheus.set(load=LOADS | {LONG: 1.0, "n0": 75.0})
        await until_told(cluster, [*order[1:], ["n0"]], "the order follows the load")
        await operator.stop()
        assert (await cluster.get(ORDER)).status == 404  # withdrawn
        await until_told(cluster, None, "pods are created as always")
    async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS) as operator:
        await until_told(cluster, [*order[1:], ["n0"]], "it leads again")
        await operator.stop(signal.SIGKILL)
        assert (await cluster.get(ORDER)).status == 200
        await until_told(cluster, None, "the order ends by itself")
        (ended,) = await problems(cluster)
        assert ended.startswith("the object nodeorders/dynsched in namespace default has ended: ")
    # The Lease may not have expired yet, hence --take-lease.
    for more, status in ((("--dry-run",), 200), ((), 404)):
        words = ("prune", "--take-lease", "--kubeconfig", cluster.kubeconfig, *more)
        done = await asyncio.to_thread(called, *words)
        assert f"{'would be ' if more else ''}deleted" in done.stderr
        assert (done.returncode, (await cluster.get(ORDER)).status) == (0, status)


async def test_nodes_below_equal_below_are_equal_and_those_above_are_named(
    cluster, envtest, tmp_path: Path
) -> None:
    loads = {"n0": 10.0, "n1": 30.0, "warm": 60.0, "hot": 90.0}
    content = {**RULES, "order": {"score": {"load": 1}, "equal_below": 50}}
    async with FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, loads)
        async with dynsched(cluster, prometheus, tmp_path, content, *FLAGS) as operator:
            await until_told(cluster, [["hot", "warm"], ["warm"]], "all but these")
            with scheduler(envtest, {}):
                pod = make_pod("web")
                pod["metadata"] |= OWNED
                _ = (await cluster.post(PODS, pod)).ok
                await placed(cluster, ["web"])
                shown_order = await of_pod(cluster, "web")
            levels = [(each["all_but"], each["nodes"]) for each in shown_order["levels"]]
            assert levels == [(True, ["hot", "warm"]), (False, ["warm"])]
            assert (shown_order["node"] in {"n0", "n1"}, shown_order["level"]) == (True, 1)
            prometheus.set(load=dict.fromkeys(loads, 30.0))
            await until_told(cluster, None, "all are equal: kube-scheduler decides alone")
            assert (await cluster.get(ORDER)).status == 200
            await operator.stop()


@pytest.mark.parametrize(
    ("loads", "count"),
    [((12, 35, 92), 6), ((20, 40, 60), 12), (range(33, 61, 3), 6), (range(5, 62, 4), 10)],
)
async def test_the_replicas_of_a_workload_keep_their_spread_and_a_hot_node_gets_none(
    cluster, envtest, tmp_path, *, loads, count: int
) -> None:
    """A node gets at most one replica more than an even spread over the nodes that are not hot."""
    nodes = {f"n{number}": float(load) for number, load in enumerate(loads)}
    hot = {name for name, load in nodes.items() if load > 80}
    async with FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, nodes)
        with scheduler(envtest, {}):
            by_default = await placed(cluster, await replicas(cluster, count, cpu="50m"))
            await cluster.delete(PODS, gracePeriodSeconds=0)
            async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS):
                await until(lambda: told(cluster), "there is an order")
                by_order = await placed(cluster, await replicas(cluster, count, cpu="50m"))
    assert set(by_default) == set(nodes) or len(nodes) > count
    most = math.ceil(count / (len(nodes) - len(hot)))
    assert max(by_order.values()) <= most + 1, by_order
    assert not hot & by_order.keys()


async def test_a_burst_of_pods_that_the_scheduler_does_not_spread_goes_to_many_nodes(
    cluster, envtest, tmp_path: Path
) -> None:
    """The pods of a Job and bare pods once all went to the two coolest of twelve nodes."""
    nodes = {f"{'n' * 42}{number:02}": 5.0 * number for number in range(1, 13)}
    async with FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, nodes)
        async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS):
            await until(lambda: told(cluster), "there is an order")
            with scheduler(envtest, {}):
                names = await replicas(cluster, 24, owned=False, cpu="50m")
                found: Counter[str] = await placed(cluster, names)
    assert len(found) >= 4, found
    assert max(found.values()) <= 10, found
    hottest = list(nodes)[-3:]
    assert sum(found[name] for name in hottest) <= 1, found


def ahead(seconds: float) -> dict[str, str]:
    return {"until": format_time(time.time() + seconds)}


def listed(node: str) -> list[dict[str, Any]]:
    return [{"levels": [{"weight": 50, "nodes": [node]}]}]


@asynccontextmanager
async def in_force(cluster: EnvtestCluster, **spec: Any) -> AsyncIterator[None]:
    """A NodeOrder that is in force for almost a minute and that dynsched has not written."""
    head = {"apiVersion": keys.ORDER_API, "kind": "NodeOrder"}
    body = head | {"metadata": {"name": keys.ORDER_NAME}, "spec": {**spec, **ahead(55)}}
    await cluster.delete(ORDER)  # left by the dynsched of the previous test
    _ = (await cluster.post(ORDERS, body)).ok
    try:
        await until(lambda: told(cluster), "there is an order")
        yield
    finally:
        await cluster.delete(ORDER)


async def test_the_definition_refuses_names_that_are_no_label_value(cluster) -> None:
    """kube-scheduler would never place a pod that prefers such a name."""
    for node in (LONG[:64], "", "a b", "-a", "a\n"):
        spec = {"until": "2100-01-01T00:00:00Z", "lists": {"": listed(node)}}
        body = {"apiVersion": keys.ORDER_API, "kind": "NodeOrder", "spec": spec}
        body["metadata"] = {"name": keys.ORDER_NAME}
        answer = await cluster.post(ORDERS, body)
        assert (answer.status, ".levels[0].nodes[0]" in answer.text) == (422, True), answer.text


async def hold(cluster: EnvtestCluster, name: str, metadata: Any, terms: list[Any]) -> None:
    pod = preferring(name, metadata, terms, schedulingGates=GATES)
    assert own_and_order((await cluster.post(PODS, pod)).ok) == terms


async def release(cluster: EnvtestCluster, name: str, metadata: Any = None) -> dict[str, Any]:
    """Remove all scheduling gates; return the pod."""
    change = {"metadata": metadata or {}, "spec": {"schedulingGates": []}}
    pod: dict[str, Any] = (await cluster.patch(f"{PODS}/{name}", change)).ok
    return pod


@pytest.mark.parametrize("seconds", [-1, 90, 10**9])
async def test_an_order_that_has_ended_or_lasts_more_than_a_minute_does_not_count(
    cluster, seconds
) -> None:
    """A wrong clock or a stolen token could write such an order, and it would stay in force after
    dynsched is gone. A gated pod keeps the order that it has.
    """
    await hold(cluster, "held", GOT, OLD)
    async with in_force(cluster, **spec_of(LEVELS, 0.0)):
        _ = (await cluster.patch(ORDER, {"spec": ahead(seconds)})).ok
        await until_told(cluster, None, "no order is in force")
        (why,) = await problems(cluster)
        assert ("has ended" if seconds < 0 else "in force for more than a minute") in why
        released = await release(cluster, "held", metadata={"labels": {"a": "b"}})
        assert own_and_order(released) == OLD
        _ = (await cluster.patch(ORDER, {"spec": ahead(45)})).ok
        await until_told(cluster, [["n0"], ["n1"]], "it is in force again")


async def test_a_gated_pod_is_placed_according_to_the_order_at_its_release(
    cluster, prometheus, envtest, tmp_path: Path
) -> None:
    async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS):
        await until(lambda: told(cluster), "the order is in force")
        await hold(cluster, "held", OWNED, BEFORE)
        assert "it is held by scheduling gates" in (await of_pod(cluster, "held"))["why_not"]
        prometheus.set(load=LOADS | {LONG: 1.0, "n0": 75.0})
        order = [["n1"], ["n2"], ["n3"], ["n4"], ["n0"]]
        await until_told(cluster, order, "the order follows the load")
        ends = [(await cluster.get(ORDER)).ok["spec"]["until"]]
        released = await release(cluster, "held")
        ends.append((await cluster.get(ORDER)).ok["spec"]["until"])
        assert own_and_order(released)[:3] == BEFORE
        with scheduler(envtest, {}):
            await placed(cluster, ["held"])
            shown_order = await of_pod(cluster, "held")
        assert ends[0] <= shown_order["until"] <= ends[1]
        assert [level["nodes"] for level in shown_order["levels"]] == order
        assert shown_order["node"] in {"n1", "n2"}


async def test_the_order_is_written_again_after_its_definition_is_restored(
    cluster, prometheus, policy, tmp_path
) -> None:
    crd = BASE / "order/crd.yaml"
    async with dynsched(cluster, prometheus, tmp_path, RULES, *FLAGS) as operator:
        await until(lambda: told(cluster), "the order is in force")
        await asyncio.to_thread(policy, "delete", "-f", crd)
        try:

            async def is_reported() -> bool:
                # At first the error is that the definition is being deleted.
                error = json.loads((await operator.get("/order"))[1])["error"] or ""
                is_missing = "the definition of NodeOrder is missing (404); install it with "
                return error.startswith(is_missing) and (await operator.get("/status"))[0] == 503

            await until(is_reported, "the failed write is reported")
            assert await told(cluster) is None
        finally:
            await asyncio.to_thread(policy, "apply", "-f", crd)
        await until(lambda: told(cluster), "it is in force again")
        assert await operator.get("/status") == (200, "ok")


async def test_the_order_is_withdrawn_if_no_load_is_known(cluster, prometheus, tmp_path) -> None:
    content = {**RULES, "stale_after": "2s"}
    async with dynsched(cluster, prometheus, tmp_path, content, *FLAGS):

        async def exists(status: int) -> bool:
            return (await cluster.get(ORDER)).status == status

        await until(lambda: exists(200), "there is an order")
        prometheus.set(load={})
        await until(lambda: exists(404), "no load is known")
        (gone,) = await problems(cluster)
        assert gone.startswith("the object nodeorders/dynsched in namespace default is not there")
