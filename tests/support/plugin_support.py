"""kubectl with the project's scripts on PATH, as after an installation."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable

from programs import need

Ended = tuple[int, str, str]
Kubectl = Callable[..., Awaitable[Ended]]


@contextlib.asynccontextmanager
async def started(environment: dict[str, str], *words: str) -> AsyncIterator[Process]:
    """`kubectl dynsched ...` while it runs, in a process group of its own, as in a terminal."""
    process = await asyncio.create_subprocess_exec(
        need("kubectl", "kubernetes-client"),
        *("dynsched", *words),
        env=environment,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await process.communicate()


async def line_of(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().rstrip("\n")


async def ended_by_ctrl_c(process: Process) -> Ended:
    """Its end after the signal that a terminal sends to the whole group."""
    os.killpg(process.pid, signal.SIGINT)
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()
