"""A watch is restarted whenever it ends, with pauses that do not overload the API server."""

import asyncio
from collections.abc import Sequence

import pytest
from virtual_loop import VirtualLoop

from dynsched.core.load.recent import RecentPods
from dynsched.kube.pod_watch import PodWatch
from dynsched.util.errors import ClusterError, ForbiddenError

Session = tuple[float, Exception | None]
DOWN = ClusterError("down")


def pauses_after(sessions: Sequence[Session]) -> list[float]:
    """The pause after each session, which is given as its duration and the error that ends it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop, stop = runner.get_loop(), asyncio.Event()
        begun: list[float] = []
        ended: list[float] = []

        class Sessions(PodWatch):
            async def begin(self) -> str:
                begun.append(loop.time())
                return "1"

            async def follow(self, version: str) -> None:
                if len(begun) > len(sessions):
                    stop.set()
                    return
                lasts, error = sessions[len(begun) - 1]
                await asyncio.sleep(lasts)
                ended.append(loop.time())
                if error is not None:
                    raise error

        runner.run(Sessions(None, RecentPods(), loop.time).run(stop))  # type: ignore[arg-type]
        return [after - end for end, after in zip(ended, begun[1:], strict=True)]


@pytest.mark.parametrize("error", [DOWN, ForbiddenError("down")], ids=["down", "forbidden"])
def test_failures_in_a_row_are_followed_by_longer_pauses(error, caplog):
    """A 403 is retried too: an API server that has just started forbids everything for seconds."""
    pauses = pauses_after([(0.0, error)] * 8)
    for pause, most in zip(pauses, (1, 2, 4, 8, 16, 30, 30, 30), strict=True):
        assert most / 2 <= pause <= most
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["recently bound pods are not counted: down"]


@pytest.mark.parametrize("well", [(300.0, None), (31.0, DOWN)], ids=["ended", "lasted"])
def test_the_pauses_are_short_again_after_a_watch_that_worked(well):
    pauses = pauses_after([*[(0.0, DOWN)] * 5, well, (0.0, DOWN)])
    assert pauses[4] >= 8
    assert pauses[-1] <= 2


def test_a_watch_is_restarted_at_once_unless_it_ended_at_once():
    pauses = pauses_after([(290.0, None), (0.0, None)])
    assert pauses[0] == 0.0
    assert 0.5 <= pauses[1] <= 1.0


def test_an_unexpected_exception_is_raised():
    with pytest.raises(ZeroDivisionError):
        pauses_after([(0.0, ZeroDivisionError())])
