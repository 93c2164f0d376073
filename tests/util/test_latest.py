"""`Latest` gives its newest value to subscribers of any speed."""

import asyncio

import pytest

from dynsched.util.latest import Latest


async def test_a_slow_subscriber_may_miss_values_but_never_the_newest() -> None:
    latest, seen = Latest[str](), list[str]()

    async def subscribe() -> None:
        last = None
        while True:
            last = await latest.after(last)
            seen.append(last)
            await asyncio.sleep(0.05)

    subscriber = asyncio.create_task(subscribe())
    for value in ("first", "missed", "last"):
        await latest.publish(value)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    subscriber.cancel()
    assert seen == ["first", "last"]


async def test_a_subscriber_that_stops_waiting_loses_no_value() -> None:
    latest = Latest[str]()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await latest.after(None)
    await latest.publish("first")
    assert await latest.after(None) == "first"
    assert latest.value == "first"
