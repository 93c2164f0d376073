"""Runs dynsched as a child process."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GRACE: Final = 5.0
"""Seconds from SIGTERM to SIGKILL."""
_TAIL: Final = 15
"""Number of log lines that are shown."""


@dataclass(frozen=True, slots=True)
class Operator:
    process: Process
    log: Path

    def tail(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_TAIL:])


@asynccontextmanager
async def running(folder: Path, *command: str | Path) -> AsyncIterator[Operator]:
    """Run ``command`` as the operator until the block ends.

    It runs in a separate session, so Ctrl-C and the terminal's hangup reach only this process,
    which then stops the operator cleanly.
    """
    log = folder / "operator.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            # DYNSCHED_* variables of the user are meant for another dynsched instance.
            env={k: v for k, v in os.environ.items() if not k.startswith("DYNSCHED_")},
            start_new_session=True,
        )
    try:
        yield Operator(process, log)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
