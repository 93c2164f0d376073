"""The bytes that all questions share."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from dynsched.web.transport import room
from dynsched.web.transport.room import Room


async def soon(*tasks: asyncio.Task[None]) -> list[bool]:
    """Which of them are done once everybody had a turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_who_finds_no_room_waits_and_the_smaller_do_not_wait_behind_the_larger() -> None:
    shared = Room(10)
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
    shared = Room(10)
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
    shared = Room(10)
    shared.take_at_once(15)
    other = asyncio.create_task(shared.take(1))
    assert await soon(other) == [False]
    shared.give(5)
    assert await soon(other) == [False]
    shared.give(1)
    assert await soon(other) == [True]


async def test_a_caller_is_waited_for_as_long_as_nobody_else_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    shared = Room(10)
    ended = asyncio.Event()

    async def dawdle() -> None:
        await shared.take(10)
        try:
            async with shared.waiting_for_caller(60):
                await asyncio.sleep(60)
        except TimeoutError:
            shared.give(10)
            ended.set()

    slow = asyncio.create_task(dawdle())
    await asyncio.sleep(0.1)
    assert not ended.is_set()
    await asyncio.wait_for(shared.take(10), 5)
    assert ended.is_set()
    await slow
    waiting = asyncio.create_task(shared.take(1))
    await soon(waiting)
    with pytest.raises(TimeoutError):  # also where others wait already
        async with shared.waiting_for_caller(60):
            await asyncio.sleep(60)
    shared.give(10)
    await waiting
