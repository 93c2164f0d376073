"""How often the order is written, in virtual time."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
from virtual_loop import VirtualLoop

from dynsched.api.order_status import OrderStatus
from dynsched.controller.ordering import RENEW, Ordering
from dynsched.engine.model import Level, Order
from dynsched.kube.failures import Call
from dynsched.kube.leader_writer import LeaderWriter
from dynsched.kube.transport import Answer, KubeApi


def writes(takes: float, weight: Callable[[], int]) -> list[float]:
    """When the order is written within 25 s, where a write takes so many seconds and the only node
    has this weight at each look.
    """
    at: list[float] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        clock = runner.get_loop().time

        class Api:
            async def call(self, call: Call, **_: Any) -> Answer:
                if call.verb == "patch":
                    at.append(clock())
                    await asyncio.sleep(takes)
                return Answer(200, {"metadata": {"uid": "u", "generation": len(at)}})

        async def run() -> None:
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(25, stop.set)
            api = cast("KubeApi", Api())
            status = OrderStatus(lambda: None)

            def wanted() -> Order:
                return Order({"": ((Level(weight(), ("a",)),),)})

            await Ordering(api, "d", wanted, status, LeaderWriter(), clock=clock).run(stop)

        runner.run(run())
    return at


@pytest.mark.parametrize(("takes", "apart"), [(0.01, 1.0), (0.2, 2.0)])
def test_a_write_of_an_order_that_changes_takes_a_tenth_of_the_time(takes, apart) -> None:
    number = itertools.count()
    first, second, *_ = writes(takes, lambda: next(number))
    assert second - first == pytest.approx(apart, abs=0.5)


def test_an_order_that_stays_the_same_is_renewed() -> None:
    assert writes(0.0, lambda: 5) == pytest.approx([0.0, RENEW, 2 * RENEW], abs=0.5)
