"""A real kube-scheduler binds through dynsched, and something comes between: no pod is bound twice,
none is lost, and what can be tried again is."""

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from cluster import EnvtestCluster, Write
from envtest import Envtest
from extender_recorder import Recorder
from fake_prometheus import FakePrometheus
from operator_support import Operator, until, write_rules
from scheduling_support import PODS, extended, make_pod, placed, rules, scheduler, set_loads
from tcp_relay import Relay

pytestmark = pytest.mark.slow

LOADS = {f"n{number}": 20.0 + number for number in range(6)}
BURST = 20


def config(address: str, *, ignorable: bool = False) -> dict[str, Any]:
    """The shipped configuration, and binding. Where errors are ``ignorable``, the scheduler binds
    by itself what dynsched did not."""
    found = extended("extender", address)
    for extender in found["extenders"]:
        extender |= {"bindVerb": "bind", "ignorable": ignorable}
    return found


class Scene(NamedTuple):
    cluster: EnvtestCluster
    relay: Relay
    operator: Operator
    recorder: Recorder


@asynccontextmanager
async def binding(
    envtest: Envtest, folder: Path, *, ignorable: bool = False
) -> AsyncIterator[Scene]:
    """`dynsched run --bind`, ready, behind a relay to its API server, and a scheduler that asks it.
    In the end no pod is bound twice."""
    async with (
        EnvtestCluster(envtest, folder) as cluster,
        FakePrometheus() as prometheus,
        Relay(envtest.url) as relay,
    ):
        await set_loads(cluster, prometheus, LOADS)
        kubeconfig = json.loads(cluster.kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = relay.url
        file = folder / "kubeconfig-bind"
        file.write_text(json.dumps(kubeconfig))
        flags = ["--kubeconfig", str(file), "--prom", prometheus.url, "--bind", "--no-leader-elect"]
        flags += ["-r", str(write_rules(folder, rules(extender={}))), "-s", "0.5"]
        async with (
            Operator(folder, "run", *flags) as operator,
            Recorder(operator.address) as recorder,
        ):
            await operator.until_ready()
            with scheduler(envtest, config(recorder.address, ignorable=ignorable)):
                yield Scene(cluster, relay, operator, recorder)
        assert await bound_twice(cluster) == []


async def burst(cluster: EnvtestCluster) -> list[str]:
    """Create BURST pods, one after the other; their names."""
    names = [f"burst-{number}" for number in range(BURST)]
    for name in names:
        _ = (await cluster.post(PODS, make_pod(name))).ok
    return names


async def bindings(cluster: EnvtestCluster) -> list[Write]:
    return [write for write in await cluster.writes("pods") if write.subresource == "binding"]


async def bound_twice(cluster: EnvtestCluster) -> list[str]:
    """By uid, as a name may come again."""
    taken = Counter(
        write.body["metadata"].get("uid", write.name)
        for write in await bindings(cluster)
        if write.status == 201
    )
    return [uid for uid, times in taken.items() if times > 1]


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
    envtest, tmp_path, ignorable
) -> None:
    names = ["deleted", "made-again", "bound-elsewhere", "bound-there", "answer-lost"]
    if not ignorable:  # else the scheduler itself binds it to the node that is gone
        names.append("node-gone")
    async with binding(envtest, tmp_path, ignorable=ignorable) as (cluster, _, operator, recorder):
        meddler = recorder.meddle = Meddler(cluster, operator)
        for name in names:
            _ = (await cluster.post(PODS, make_pod(name))).ok
        await until(lambda: len(meddler.asked) == len(names), "each was to be bound")
        _ = (await cluster.post(PODS, make_pod("next"))).ok
        await placed(cluster, [*names[1:], "next"])
        # Whatever the scheduler was to try again, it has tried when this one is bound.
        _ = (await cluster.post(PODS, make_pod("last"))).ok
        await placed(cluster, ["last"])

        def all_answered() -> bool:
            done = {each.asked["PodName"] for each in recorder.of("bind") if each.status == 200}
            return {"next", "last"} <= done

        await until(all_answered, "the answers for the pods that nobody troubled")
        pods = (await cluster.get(PODS)).ok["items"]
    at = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    # A pod that is made again may be asked for, and bound, before the first answer has come.
    said: dict[str, list[str]] = defaultdict(list)
    for exchange in recorder.of("bind"):
        if exchange.status == 200:
            said[exchange.asked["PodName"]].append(exchange.said["Error"])

    assert set(at) == {*names[1:], "next", "last"}
    assert at["bound-elsewhere"] != meddler.asked["bound-elsewhere"]
    assert at["bound-there"] == meddler.asked["bound-there"]
    assert at["answer-lost"] == meddler.asked["answer-lost"]
    assert "it is gone (404)" in " ".join(said["deleted"])
    assert "UID in precondition" in " ".join(said["made-again"])
    assert "already assigned to node" in " ".join(said["bound-elsewhere"])
    assert "already assigned to node" in " ".join(said["bound-there"])
    assert said["next"] == said["last"] == [""]
    if not ignorable:
        gone = meddler.asked["node-gone"]
        assert at["node-gone"] != gone
        assert f"cannot bind to node {gone}: it is gone (404)" in said["node-gone"]


async def test_a_slow_api_server_does_not_make_bindings_that_nobody_waits_for(
    envtest, tmp_path
) -> None:
    """Each answer is a second late, and the scheduler waits for two: what is still in line then
    must not be bound to a node that it was to go to a while ago."""
    async with binding(envtest, tmp_path) as (cluster, relay, _, recorder):
        relay.late = 1.0
        await placed(cluster, await burst(cluster))
        pods = (await cluster.get(PODS)).ok["items"]
    at = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}
    asked = {exchange.asked["PodUID"]: exchange.asked["Node"] for exchange in recorder.of("bind")}
    assert at == asked  # each where the scheduler wanted it last


async def test_an_api_server_that_is_away_for_a_moment_loses_no_pod(envtest, tmp_path) -> None:
    async with binding(envtest, tmp_path) as (cluster, relay, _, recorder):
        await relay.down()
        names = await burst(cluster)

        def refused() -> bool:
            found = [exchange.said["Error"] for exchange in recorder.of("bind")]
            return sum("is the API server up?" in error for error in found) >= BURST

        await until(refused, "the scheduler was told")
        await relay.up()
        await placed(cluster, names)
