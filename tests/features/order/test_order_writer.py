"""When the order is written, renewed and withdrawn, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from scenes import EXAMPLE_RULES, NOON, Scene
from virtual_loop import VirtualLoop

from dynsched.core.health import overdue_after
from dynsched.core.nodes import Node
from dynsched.core.tick import Tick
from dynsched.features.order.resource import NodeOrder
from dynsched.features.order.status import OrderStatus
from dynsched.features.order.writer import RENEW, NodeOrderWriter
from dynsched.kube.client import LeaderWriter
from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import ApiResponse, KubeApi
from dynsched.util.errors import ClusterError
from dynsched.util.latest import Latest

INTERVAL = 10.0
WITHOUT = {"rules": EXAMPLE_RULES["rules"]}


@dataclass
class World:
    """The surroundings of a writer. ``calls`` has the time and the verb of each write request; each
    one ``takes`` this many seconds.
    """

    takes: float = 0.0
    leads: bool = True
    fails: bool = False
    calls: list[tuple[float, str]] = field(default_factory=list)
    ticks: Latest[Tick] = field(default_factory=Latest)
    status: OrderStatus = field(default_factory=OrderStatus)
    scene: Scene = field(default_factory=lambda: Scene(EXAMPLE_RULES, [Node("a"), Node("b")]))

    async def call(self, call: ApiRequest, **_: Any) -> ApiResponse:
        """Stands in for `KubeApi.call`."""
        if call.verb in {"patch", "delete"}:
            self.calls.append((asyncio.get_running_loop().time(), call.verb))
            await asyncio.sleep(self.takes)
        if self.fails:
            raise ClusterError("no route to host")
        return ApiResponse(200, {})

    async def tick(self, seconds: float = 0.0, *, a: float = 10.0) -> None:
        """Publish a tick with this load of node a, then let time pass."""
        cpu = {"a": a, "b": 20.0}
        await self.ticks.publish(self.scene.tick(NOON, node_cpu=cpu, node_mem_usage={}))
        await asyncio.sleep(seconds)

    def reload(self, rules: Mapping[str, Any]) -> None:
        """Use other rules from the next tick on."""
        self.scene = Scene(rules, self.scene.nodes.values())


def play(
    what: Callable[[World], Awaitable[None]], world: World | None = None
) -> list[tuple[float, str]]:
    """The calls of a writer that is stopped after ``what``."""
    world = world or World()

    async def run() -> None:
        stop, clock = asyncio.Event(), asyncio.get_running_loop().time
        leader = LeaderWriter(lambda: world.leads)
        resource = NodeOrder(cast("KubeApi", world), "d", leader)
        writer = NodeOrderWriter(resource, world.status, leader.may_write, INTERVAL, clock=clock)
        running = asyncio.create_task(writer.run(stop, world.ticks))
        await what(world)
        stop.set()
        await running

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    return world.calls


@pytest.mark.parametrize(("takes", "apart"), [(0.01, 1.0), (0.2, 2.0)])
def test_writes_of_a_changing_order_take_at_most_a_tenth_of_the_time(takes, apart) -> None:
    async def changing(world: World) -> None:
        for number in range(40):
            await world.tick(0.25, a=10.0 + 20 * (number % 2))

    written = [at for at, verb in play(changing, World(takes)) if verb == "patch"]
    pauses = [later - at for at, later in pairwise(written)]
    assert apart - 0.01 <= min(pauses) <= max(pauses) <= apart + 0.5


def test_an_unchanged_order_is_renewed_and_withdrawn_at_the_end() -> None:
    async def quiet(world: World) -> None:
        for _ in range(5):
            await world.tick(5.0)

    calls = play(quiet)
    assert [verb for _, verb in calls] == ["patch", "patch", "patch", "delete"]
    assert [at for at, _ in calls] == pytest.approx([0.0, RENEW, 2 * RENEW, 25.0], abs=0.1)


def test_an_order_is_withdrawn_while_ticks_are_overdue() -> None:
    async def stuck(world: World) -> None:
        await world.tick(2 * overdue_after(INTERVAL))
        assert world.status.order is None
        await world.tick(1.0)
        assert world.status.order is not None

    times = {verb: at for at, verb in play(stuck)[:-2]}
    assert times["delete"] == pytest.approx(overdue_after(INTERVAL), abs=0.1)


def test_an_order_is_withdrawn_when_the_rules_no_longer_have_one() -> None:
    async def reloaded(world: World) -> None:
        await world.tick(5.0)
        world.reload(WITHOUT)
        await world.tick(5.0)
        assert (world.status.order, world.status.in_force) == (None, None)
        await world.tick(5.0)

    assert play(reloaded) == [(0.0, "patch"), (5.0, "delete")]


def test_a_follower_computes_an_order_and_does_not_write_it() -> None:
    async def following(world: World) -> None:
        await world.tick(5.0)
        assert world.status.order is not None
        assert world.status.in_force is None
        world.leads = True
        await world.tick(5.0)
        world.leads = False
        await world.tick(20.0)
        assert world.status.in_force is None

    assert play(following, World(leads=False)) == [(5.0, "patch")]


def test_a_failed_write_is_reported_and_retried() -> None:
    async def failing(world: World) -> None:
        await world.tick(9.0)
        assert world.status.error is not None
        world.fails = False
        await world.tick(2.0)
        assert world.status.error is None

    world = World(fails=True)
    # There is no patch before a response has the API server's time.
    assert play(failing, world) == [(10.0, "patch"), (11.0, "delete")]
    assert world.status.calls == {"ok": 2, "failed": 2}
