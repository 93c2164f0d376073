"""The operator as a child process, and its folder: neither outlives this process."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GRACE: Final = 5.0
"""Seconds that the operator has to end by itself after SIGTERM."""
_TAIL: Final = 15
"""Lines of its log that are shown."""

# Reads the operator's id, then waits until its standard input closes: which it does when the demo
# is gone, even by SIGKILL. Then it ends what the demo could not, and clears the folder away.
_WARDEN: Final = """
read -r operator
while read -r _; do :; done
kill -s KILL -- "-$operator"
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"""


@dataclass(frozen=True, slots=True)
class Operator:
    process: Process
    log: Path

    def tail(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_TAIL:])


@asynccontextmanager
async def running(folder: Path, *command: str | Path) -> AsyncIterator[Operator]:
    """The command as the operator until the block ends.

    It has a session of its own: Ctrl-C and the terminal's end reach this process only, which then
    ends it in order. When this process is killed, a small shell that waits for that does it.
    """
    warden = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _WARDEN, "warden", folder),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        log = folder / "operator.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                # What is set for another dynsched is not for this one.
                env={k: v for k, v in os.environ.items() if not k.startswith("DYNSCHED_")},
                start_new_session=True,
            )
        try:
            if warden.stdin is not None:
                warden.stdin.write(f"{process.pid}\n".encode())
            yield Operator(process, log)
        finally:
            await _end(process)
    finally:
        # Not by closing its input: the id that it knows may be another's by now.
        _signal(warden, signal.SIGKILL)
        await warden.wait()


async def _end(process: Process) -> None:
    """SIGTERM; after a while, SIGKILL to it and to what it started."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    """To the whole process group, as the child leads one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
