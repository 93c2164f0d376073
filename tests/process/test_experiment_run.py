"""An experiment on a real API server: what is there in each block, whoever leads."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from cluster import EnvtestCluster
from fake_prometheus import FakePrometheus
from manifest_support import COMPONENTS, Doc, Kubectl
from operator_support import Operator, until, write_rules
from replica_support import leads, some_ticks, status
from scheduling_support import dynsched, rules, set_loads

from dynsched.engine.experiment import OFF, is_on
from dynsched.rules.file import parse_rules

pytestmark = pytest.mark.slow

ORDER = "/apis/dynsched.io/v1/namespaces/default/nodeorders/dynsched"
FLAGS = ("--lease-namespace", "default")


def arm(*, on: bool) -> Doc:
    """Rules by which the block of this century is on, or off."""
    for seed in range(100):
        experiment = {"until": "2069-01-01T00:00:00Z", "block": "36500d", "seed": seed}
        found = rules(order={"score": {"load": 1}}, experiment=experiment)
        parsed = parse_rules(found).experiment
        if parsed is not None and is_on(parsed, 0) is on:
            return found
    raise AssertionError("no seed of a hundred")


@pytest.fixture(scope="module")
def kind(envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The order's."""
    kubectl = Kubectl(envtest.kubeconfig(tmp_path_factory.mktemp("kind") / "kubeconfig"))
    kubectl("apply", "-f", COMPONENTS / "order/crd.yaml")
    kubectl("wait", "--for=condition=Established", "crd/nodeorders.dynsched.io")
    yield
    kubectl("delete", "-f", COMPONENTS / "order/crd.yaml")


@pytest.fixture
async def cluster(envtest, kind, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as empty:
        yield empty


async def test_what_a_block_has_off_is_not_there_whoever_leads_and_the_rest_goes_on(
    cluster, tmp_path: Path
) -> None:
    async def is_there(*, on: bool) -> bool:
        marked = [node["metadata"]["name"] for node in await cluster.list_nodes("status=presure")]
        there = (await cluster.get(ORDER)).status, marked
        return there == ((200, ["hot"]) if on else (404, []))

    async with FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, {"hot": 95.0, "n1": 20.0, "n2": 30.0})

        def replica(*, on: bool) -> AbstractAsyncContextManager[Operator]:
            return dynsched(cluster, prometheus, tmp_path, arm(on=on), *FLAGS)

        async with replica(on=True) as first:
            await until(lambda: is_there(on=True), "the order and the mark are there")
            write_rules(tmp_path, arm(on=False))
            await until(lambda: is_there(on=False), "both have gone")
            async with replica(on=False) as second:
                await first.stop()
                await until(lambda: leads(second), "the other one leads")
                await some_ticks(second)
                assert await is_there(on=False)
                assert await second.get("/status") == (200, "ok")
                assert (await status(second))["experiment"]["arm"] == "off"
                (hot,) = [each for each in (await second.nodes())["nodes"] if each["pressured"]]
                assert (hot["name"], hot["withheld"]) == ("hot", OFF)
                assert '"node":"n1","rank":1' in (await second.get("/order"))[1]
                arms = [x for x in (await second.get("/metrics"))[1].split("\n") if "arm{" in x]
                assert [x.rpartition("} ")[2] for x in arms] == ["0.0"]
                write_rules(tmp_path, arm(on=True))
                await until(lambda: is_there(on=True), "both are there again")
        async with replica(on=True) as third:
            await until(lambda: leads(third), "it leads after a restart")
            await some_ticks(third)
            assert await is_there(on=True)
