"""A real kube-scheduler binds through dynsched: no pod is bound twice, and none is lost. What comes
between is in `tests/kube/test_binding.py`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster import EnvtestCluster, Write
from envtest import Envtest
from fake_prometheus import FakePrometheus
from scheduling_support import (
    PODS,
    dynsched,
    extended,
    make_pod,
    placed,
    rules,
    scheduler,
    set_loads,
)

pytestmark = pytest.mark.slow

LOADS = {f"n{number}": 20.0 + number for number in range(6)}
BURST = [f"burst-{number}" for number in range(20)]


@asynccontextmanager
async def binding(
    envtest: Envtest, folder: Path, *, ignorable: bool
) -> AsyncIterator[EnvtestCluster]:
    """`dynsched run --bind`, and a scheduler that asks it by the shipped configuration and binds
    by it. Where errors are ``ignorable``, it binds by itself what dynsched did not.
    """
    async with EnvtestCluster(envtest, folder) as cluster, FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, LOADS)
        content, flags = rules(extender={}), ("--bind", "--no-leader-elect")
        async with dynsched(cluster, prometheus, folder, content, *flags) as operator:
            config = extended("extender", operator.address)
            for extender in config["extenders"]:
                extender |= {"bindVerb": "bind", "ignorable": ignorable}
            with scheduler(envtest, config):
                yield cluster


async def bindings(cluster: EnvtestCluster) -> list[Write]:
    writes = await cluster.writes("pods")
    return [each for each in writes if each.subresource == "binding" and each.status == 201]


@pytest.mark.parametrize("ignorable", [False, True])
async def test_each_pod_is_bound_once_whoever_else_binds(envtest, tmp_path, ignorable) -> None:
    async with binding(envtest, tmp_path, ignorable=ignorable) as cluster:

        async def make(number: int, name: str) -> None:
            _ = (await cluster.post(PODS, make_pod(name))).ok
            if number % 3 == 0:  # somebody binds it in the same moment, and one of the two is late
                body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n0"}}
                await cluster.post(f"{PODS}/{name}/binding", body)
            elif number % 3 == 1:  # a namesake: the scheduler may have been asked for the first one
                await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
                _ = (await cluster.post(PODS, make_pod(name))).ok

        await asyncio.gather(*(make(*each) for each in enumerate(BURST)))
        await placed(cluster, BURST)
        _ = (await cluster.post(PODS, make_pod("last"))).ok
        await placed(cluster, ["last"])
        done = await bindings(cluster)
    times = Counter(each.body["metadata"].get("uid") or each.name for each in done)
    assert set(times.values()) == {1}
    assert any(each.user_agent.startswith("dynsched/") for each in done)
