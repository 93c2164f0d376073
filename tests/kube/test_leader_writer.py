"""The leader writes only while it holds the Lease, and for no longer than the others wait."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from api_support import api_of
from cluster import SimCluster
from virtual_loop import VirtualLoop

from dynsched.core.marks import Action, NodePatch
from dynsched.features.order.ranks import Order
from dynsched.features.order.resource import NodeOrder
from dynsched.features.order.tiers import PreferenceTier
from dynsched.kube.client import KubeClient, LeaderWriter
from dynsched.kube.election import LeaseTimes
from dynsched.kube.failures import ApiRequest
from dynsched.kube.leader import Elector
from dynsched.kube.transport import ApiResponse
from dynsched.util.errors import NotPermittedError
from dynsched_sim.examples import make_node

LIMIT = LeaseTimes().write_timeout
PATCH = NodePatch("a", Action.MARK, {"metadata": {"labels": {"status": "presure"}}}, "because")

Write = Callable[[Any, LeaderWriter], Awaitable[Any]]


def write_order(api: Any, writer: LeaderWriter) -> Awaitable[Any]:
    return NodeOrder(api, "default", writer).write(Order({"": ((PreferenceTier(1, ("a",)),),)}), 28)


def withdraw_order(api: Any, writer: LeaderWriter) -> Awaitable[Any]:
    return NodeOrder(api, "default", writer).withdraw()


async def patch_node(api: Any, writer: LeaderWriter) -> Any:
    async with KubeClient(api.credentials, writer) as client:
        return await client.patch(PATCH)


class SlowServer:
    """Stands in for the KubeApi. Each write takes ``takes`` seconds, except writes of the Lease."""

    def __init__(self, takes: float) -> None:
        self.config = SimpleNamespace(server="http://api")
        self.log: list[tuple[str, float]] = []
        self._takes = takes
        self._lease: Any = None

    async def call(
        self, call: ApiRequest, *, body: Any = None, may_write: Any = None, **_: Any
    ) -> ApiResponse:
        if call.resource == "leases":
            if body is not None:
                self._lease = {**body, "metadata": {"resourceVersion": f"{len(self.log)}"}}
                self._record("released" if not body["spec"]["holderIdentity"] else "renewed")
            return ApiResponse(200 if self._lease else 404, self._lease)
        if may_write is not None:
            if not may_write():
                raise NotPermittedError
            self._record("write begins")
            try:
                await asyncio.sleep(self._takes)
            finally:
                self._record("write ends")
        return ApiResponse(200, {"metadata": {"uid": "u", "generation": 1}})

    def _record(self, what: str) -> None:
        self.log.append((what, asyncio.get_running_loop().time()))


@pytest.mark.parametrize("write", [write_order, withdraw_order])
@pytest.mark.parametrize("takes", [2.0, 3600.0])
@pytest.mark.parametrize("how", ["steps down", "stops", "stops, with its tasks cancelled"])
def test_the_lease_is_released_after_the_write_in_flight(
    write: Write, takes: float, how: str
) -> None:
    server: Any = SlowServer(takes)

    async def lead() -> None:
        clock = asyncio.get_running_loop().time
        elector = Elector(server, namespace="default", identity="me", clock=clock)
        stop = asyncio.Event()
        running = asyncio.create_task(elector.run(stop))
        await asyncio.sleep(0.5)
        writing = asyncio.create_task(write(server, elector.writer))  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        if how == "steps down":
            elector.step_down()
        else:
            stop.set()
        if "cancelled" in how:
            writing.cancel()
        await asyncio.sleep(LIMIT + 2.0)
        stop.set()
        await asyncio.gather(running, writing, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(lead())
    at = dict(server.log)
    assert [what for what, _ in server.log if what != "renewed"] == [
        *("write begins", "write ends", "released")
    ]
    assert at["write ends"] - at["write begins"] == pytest.approx(min(takes, LIMIT))
    assert at["released"] - at["write ends"] <= LeaseTimes().renew_every


@pytest.mark.parametrize("write", [write_order, withdraw_order, patch_node])
async def test_nothing_is_written_once_the_lease_is_lost(sim: SimCluster, write: Write) -> None:
    await sim.create_node(make_node("a"))
    now = [1000.0]
    async with api_of(sim.kubeconfig) as api:
        elector = Elector(api, namespace="default", identity="me", clock=lambda: now[0])
        await elector.attempt()
        sim.server.requests.clear()
        now[0] += LeaseTimes().write_for
        with pytest.raises(NotPermittedError):
            await write(api, elector.writer)
    assert sim.server.requests.writes() == []


async def test_a_patch_is_not_retried_after_the_lease_is_lost(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    fault = sim.server.faults.answer(429, retry_after=1, verb="patch")
    permissions = iter([True])
    writer = LeaderWriter(lambda: next(permissions, False))
    async with api_of(sim.kubeconfig) as api:
        with pytest.raises(NotPermittedError):
            await patch_node(api, writer)
    assert fault.hits == 1
    assert "status" not in (await sim.get_node("a"))["metadata"]["labels"]
