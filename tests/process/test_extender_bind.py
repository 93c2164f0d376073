"""A real kube-scheduler binds through dynsched, and something comes between: no pod is bound twice,
none is lost, and what can be tried again is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cluster import EnvtestCluster
from envtest import Envtest
from extender_recorder import Recorder
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
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


def config(address: str, *, ignorable: bool = False) -> dict[str, Any]:
    """The shipped configuration, and binding. Where errors are ``ignorable``, the scheduler binds
    by itself what dynsched did not."""
    found = extended("extender", address)
    for extender in found["extenders"]:
        extender |= {"bindVerb": "bind", "ignorable": ignorable}
    return found


@asynccontextmanager
async def binding(
    cluster: EnvtestCluster, prometheus: FakePrometheus, folder: Path
) -> AsyncIterator[tuple[Operator, Recorder]]:
    """`dynsched run --bind`, ready."""
    flags = ("--bind", "--no-leader-elect")
    async with (
        dynsched(cluster, prometheus, folder, rules(extender={}), *flags) as operator,
        Recorder(operator.address) as recorder,
    ):
        yield operator, recorder


class Meddler:
    """What comes between the scheduler and dynsched: the method of the pod's name."""

    def __init__(self, cluster: EnvtestCluster, operator: Operator) -> None:
        self.cluster = cluster
        self.operator = operator
        self.asked: dict[str, str] = {}

    async def __call__(self, path: str, asked: Any) -> web.Response | None:
        if path != "/bind" or asked["PodName"] in self.asked:
            return None
        name, node = asked["PodName"], asked["Node"]
        self.asked[name] = node
        befalls = getattr(self, name.replace("-", "_"), None)
        return await befalls(name, node, asked) if befalls else None

    async def deleted(self, name: str, *_: Any) -> None:
        _ = (await self.cluster.delete(f"{PODS}/{name}", gracePeriodSeconds=0)).ok

    async def made_again(self, name: str, *_: Any) -> None:
        await self.deleted(name)
        _ = (await self.cluster.post(PODS, make_pod(name))).ok

    async def bound_elsewhere(self, name: str, node: str, *_: Any) -> None:
        await self._bind(name, next(other for other in LOADS if other != node))

    async def bound_there(self, name: str, node: str, *_: Any) -> None:
        await self._bind(name, node)

    async def _bind(self, name: str, node: str) -> None:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        _ = (await self.cluster.post(f"{PODS}/{name}/binding", body)).ok

    async def answer_lost(self, _: str, __: str, asked: Any) -> web.Response:
        url = f"http://{self.operator.address}/bind"
        async with aiohttp.ClientSession() as session, session.post(url, json=asked) as answer:
            assert await answer.json() == {"Error": ""}
        return web.Response(status=502)

    async def node_gone(self, _: str, node: str, __: Any) -> None:
        await self.cluster.delete_node(node)

        async def forgotten() -> bool:
            known = (await self.operator.nodes())["nodes"]
            return node not in [found["name"] for found in known]

        await until(forgotten, "the watch has told")


@pytest.mark.parametrize("ignorable", [False, True])
async def test_whatever_comes_between_no_pod_is_bound_twice_or_lost(
    envtest: Envtest, tmp_path: Path, *, ignorable: bool
) -> None:
    names = ["deleted", "made-again", "bound-elsewhere", "bound-there", "answer-lost"]
    if not ignorable:  # else the scheduler itself binds it to the node that is gone
        names.append("node-gone")
    async with (
        EnvtestCluster(envtest, tmp_path) as cluster,
        FakePrometheus() as prometheus,
    ):
        await set_loads(cluster, prometheus, LOADS)
        async with binding(cluster, prometheus, tmp_path) as (operator, recorder):
            meddler = recorder.meddle = Meddler(cluster, operator)
            with scheduler(envtest, config(recorder.address, ignorable=ignorable)):
                for name in names:
                    _ = (await cluster.post(PODS, make_pod(name))).ok

                async def all_asked() -> bool:
                    return len(meddler.asked) == len(names)

                await until(all_asked, "each was to be bound")
                _ = (await cluster.post(PODS, make_pod("next"))).ok
                await placed(cluster, [*names[1:], "next"])
                # Whatever the scheduler was to try again, it has tried when this one is bound.
                _ = (await cluster.post(PODS, make_pod("last"))).ok
                await placed(cluster, ["last"])
        pods = (await cluster.get(PODS)).ok["items"]
        at = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
        said = {
            exchange.asked["PodName"]: exchange.said["Error"]
            for exchange in reversed(recorder.of("bind"))
            if exchange.status == 200
        }
        bound = Counter(
            write.body["metadata"].get("uid", write.name)  # a name may come again
            for write in await cluster.writes("pods")
            if (write.subresource, write.status) == ("binding", 201)
        )

    assert max(bound.values()) == 1
    assert set(at) == {*names[1:], "next", "last"}
    assert at["bound-elsewhere"] != meddler.asked["bound-elsewhere"]
    assert at["bound-there"] == meddler.asked["bound-there"]
    assert at["answer-lost"] == meddler.asked["answer-lost"]
    assert "it is gone (404)" in said["deleted"]
    assert "UID in precondition" in said["made-again"]
    assert "already assigned to node" in said["bound-elsewhere"]
    assert "already assigned to node" in said["bound-there"]
    assert said["next"] == said["last"] == ""
    if not ignorable:
        gone = meddler.asked["node-gone"]
        assert at["node-gone"] != gone
        assert said["node-gone"] == f"cannot bind to node {gone}: it is gone (404)"
