"""Waits that end early when the process should stop, in virtual time, and backoffs."""

import asyncio

import pytest
from virtual_loop import VirtualLoop

from dynsched.util.stopping import Backoff, pause, run_until_stopped, until_done


def passed(coroutine) -> float:
    """The virtual seconds that the coroutine takes."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        began = loop.time()
        runner.run(coroutine)
        return loop.time() - began


def stops_in(seconds: float) -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    return stop


async def slow(answer: str = "done") -> str:
    await asyncio.sleep(10)
    return answer


def test_a_pause_ends_after_its_time_or_at_the_stop():
    async def main(stop_in, seconds):
        await pause(stops_in(stop_in), seconds)

    assert passed(main(1000.0, 3.0)) == pytest.approx(3.0)
    for seconds in (3.0, 0.0):
        assert passed(main(seconds, 1000.0)) == pytest.approx(seconds)


def test_work_that_ends_before_the_stop_returns_its_result_or_raises():
    async def fails() -> None:
        raise OSError("broken")

    async def main():
        assert await run_until_stopped(stops_in(11), slow("it")) == "it"
        with pytest.raises(OSError, match="broken"):
            await run_until_stopped(asyncio.Event(), fails())

    assert passed(main()) == pytest.approx(10.0)


def test_work_is_cancelled_at_the_stop_and_its_cleanup_is_awaited():
    async def main():
        ended = asyncio.Event()

        async def cleans_up() -> str:
            try:
                return await slow()
            finally:
                await asyncio.sleep(1)
                ended.set()

        assert await run_until_stopped(stops_in(2), cleans_up()) is None
        assert ended.is_set()

    assert passed(main()) == pytest.approx(3.0)


def test_waiting_for_the_first_of_several_tasks_cancels_none_of_them():
    async def main():
        first, second = asyncio.create_task(slow()), asyncio.create_task(asyncio.sleep(20))
        await until_done(stops_in(2), first, second)
        assert not first.done()
        await until_done(asyncio.Event(), first, second)
        assert first.done()
        assert not second.done()
        await second

    assert passed(main()) == pytest.approx(20.0)


def test_the_pauses_of_a_backoff_double_up_to_a_limit_until_a_reset():
    backoff = Backoff(1.0, 5.0)
    for _ in range(2):
        for seconds in (1.0, 2.0, 4.0, 5.0, 5.0):
            assert backoff.seconds == seconds
            assert seconds / 2 <= backoff.next() <= seconds
        backoff.reset()
