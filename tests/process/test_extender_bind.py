"""A real kube-scheduler binds through dynsched: no pod is bound twice, and none is lost. What comes
between is in `tests/kube/test_binding.py`.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from cluster import EnvtestCluster, Write
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


async def bindings(cluster: EnvtestCluster) -> list[Write]:
    writes = await cluster.writes("pods")
    return [each for each in writes if each.subresource == "binding" and each.status == 201]


@pytest.mark.parametrize("ignorable", [False, True])
async def test_each_pod_is_bound_once_whoever_else_binds(
    envtest, prometheus, tmp_path, ignorable
) -> None:
    """Where errors are ``ignorable``, the scheduler binds by itself what dynsched did not."""
    content, flags = rules(extender={}), ("--bind", "--no-leader-elect")
    async with EnvtestCluster(envtest, tmp_path) as cluster, AsyncExitStack() as running:
        await set_loads(cluster, prometheus, LOADS)
        operator = await running.enter_async_context(
            dynsched(cluster, prometheus, tmp_path, content, *flags)
        )
        config = extended("extender", operator.address)
        for extender in config["extenders"]:
            extender |= {"bindVerb": "bind", "ignorable": ignorable}
        running.enter_context(scheduler(envtest, config))

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
