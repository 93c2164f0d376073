"""How often the order is written."""

import itertools
from collections.abc import Callable
from typing import cast

import pytest
from store_support import Clock

from dynsched.api.order_status import OrderStatus
from dynsched.controller.ordering import LASTS, RENEW, Ordering
from dynsched.engine.model import Level, Order
from dynsched.kube.transport import KubeApi


class Written:
    """In place of the object in the cluster: each write takes ``takes`` seconds."""

    is_disputed = False

    def __init__(self, clock: Clock) -> None:
        self.clock, self.takes, self.at = clock, 0.0, list[float]()

    async def write(self, _order: Order, lasts: float) -> float:
        self.at.append(self.clock.now)
        self.clock.now += self.takes
        return self.clock.now + lasts


def scene(clock: Clock, weight: Callable[[], int]) -> tuple[Ordering, Written]:
    """``weight``: of the only node, at each look."""

    def wanted() -> Order:
        return Order({"": ((Level(weight(), ("a",)),),)})

    status, api = OrderStatus(lambda: None), cast("KubeApi", None)
    ordering = Ordering(api, "dynsched", wanted, status, lambda: True, clock=clock)
    written = Written(clock)
    ordering._cluster = written  # type: ignore[assignment]
    return ordering, written


@pytest.mark.parametrize(
    ("takes", "apart"),
    [(0.01, 1.0), (0.2, 2.0), (LASTS, LASTS)],
    ids=["at once", "a large object or a slow API server", "longer than it is in force"],
)
async def test_a_write_takes_a_tenth_of_the_time(takes: float, apart: float) -> None:
    clock = Clock()
    number = itertools.count()
    ordering, written = scene(clock, lambda: next(number))  # another one at each look
    written.takes = takes
    for _ in range(400):
        await ordering._follow()
        clock.now += 0.1
    (first, second, *_) = written.at
    assert second - first == pytest.approx(apart, abs=0.2)


async def test_an_order_that_stays_the_same_is_renewed() -> None:
    clock = Clock()
    ordering, written = scene(clock, lambda: 5)
    for _ in range(250):
        await ordering._follow()
        clock.now += 0.1
    assert written.at == pytest.approx([0.0, RENEW, 2 * RENEW], abs=0.2)
