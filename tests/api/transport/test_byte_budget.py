"""The bytes that all questions share."""

import asyncio
import contextlib

import pytest
from virtual_loop import VirtualLoop

from dynsched.api.transport.bodies import PATIENCE, ByteBudget


async def soon(*tasks: asyncio.Task[None]) -> list[bool]:
    """Which of them are done once everybody had a turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_who_finds_no_room_waits_and_the_smaller_do_not_wait_behind_the_larger() -> None:
    shared = ByteBudget(10)
    await shared.take(8)
    large = asyncio.create_task(shared.take(9))
    small = asyncio.create_task(shared.take(2))
    late = asyncio.create_task(shared.take(1))
    assert await soon(large, small, late) == [False, True, False]
    shared.give(2)
    assert await soon(large, late) == [False, True]
    shared.give(8)
    assert await soon(large) == [True]


async def test_who_goes_away_while_waiting_holds_nothing() -> None:
    shared = ByteBudget(10)
    await shared.take(10)
    gone, let_in = (asyncio.create_task(shared.take(5)) for _ in range(2))
    await soon(gone)
    gone.cancel()
    shared.give(10)
    let_in.cancel()  # in the moment in which it was let in
    with contextlib.suppress(asyncio.CancelledError):
        await let_in
    await asyncio.wait_for(shared.take(10), 1)


async def test_what_is_held_at_once_is_paid_back_before_others_get_in() -> None:
    shared = ByteBudget(10)
    shared.give(-15)
    other = asyncio.create_task(shared.take(1))
    assert await soon(other) == [False]
    shared.give(5)
    assert await soon(other) == [False]
    shared.give(1)
    assert await soon(other) == [True]


@pytest.mark.parametrize("others_wait_already", [False, True])
def test_a_caller_is_waited_for_as_long_as_nobody_else_waits(others_wait_already: bool) -> None:
    async def run() -> None:
        loop, shared = asyncio.get_running_loop(), ByteBudget(10)
        await shared.take(10)
        other: asyncio.Task[None] | None = None
        if others_wait_already:
            other = asyncio.create_task(shared.take(10))
            await soon(other)

        async def dawdle() -> None:
            with pytest.raises(TimeoutError):
                async with shared.waiting_for_caller(60):
                    await asyncio.sleep(600)
            shared.give(10)

        slow = asyncio.create_task(dawdle())
        if other is None:
            await asyncio.sleep(30)
            assert not slow.done()
            other = asyncio.create_task(shared.take(10))
        began = loop.time()
        await other
        assert loop.time() - began == (PATIENCE if others_wait_already else 0)
        await slow

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
