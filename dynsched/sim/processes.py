"""Child processes and a folder that do not outlive this process, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

GRACE: Final = 5.0
"""Seconds that a child has to end by itself after SIGTERM."""

# Reads the children's ids until its standard input closes: which it does when the parent is gone,
# even by SIGKILL. Then it ends what the parent could not, and clears the folder away.
_WARDEN: Final = """
children=
while read -r child; do children="$children -$child"; done
test -z "$children" || kill -s KILL -- $children
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"""


@dataclass(frozen=True, slots=True)
class Child:
    """A started process. What it prints is in ``log``."""

    name: str
    process: Process
    log: Path

    async def ended(self) -> int:
        """Wait for its end; the exit code (negative: the signal that ended it)."""
        return await self.process.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines of what it printed."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


class Workspace:
    """A temporary folder and the processes that live in it, inside ``async with``.

    At the end all are ended, the last one first, and the folder is removed. Each process has its
    own session: Ctrl-C and the terminal's end reach this process only, which then ends the others
    in order. When this process is killed, a small shell that waits for that does it.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._children: list[Child] = []
        self._warden: Process | None = None
        self.folder = Path()

    async def __aenter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=self._prefix))
        try:
            self._warden = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _WARDEN, "warden", self.folder),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # To the end, even when cancelled meanwhile: what is left undone here stays behind for good.
        leaving = asyncio.ensure_future(self._leave())
        try:
            await asyncio.wait([leaving])
        finally:
            if not leaving.done():
                await leaving

    async def start(
        self, name: str, *command: str | Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a program; its output goes to ``<folder>/<name>.log``."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        if self._warden is not None and self._warden.stdin is not None:
            self._warden.stdin.write(f"{process.pid}\n".encode())
        return child

    async def _leave(self) -> None:
        for child in reversed(self._children):
            await _end(child.process)
        if self._warden is not None:
            # Not by closing its input: the ids that it knows may be others' by now.
            _signal(self._warden, signal.SIGKILL)
            await self._warden.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _end(process: Process) -> None:
    """SIGTERM; after GRACE, SIGKILL to it and to what it started."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    """To the whole process group, as the child leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
