"""The real `dynsched run` as a child process."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from prometheus_support import free_port


class Operator:
    """``async with Operator(folder, arguments): ...`` runs until the block ends.

    ``arguments`` follow ``dynsched`` (or another ``program``); a free address to listen on is
    added. ``stderr``: file descriptor for standard error, by default the log.
    """

    process: asyncio.subprocess.Process

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        flag: str = "--webaddr",
        stderr: int | None = None,
        program: Sequence[str] = ("-m", "dynsched"),
    ) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._command = [sys.executable, *program, *arguments, flag, self.address]
        self._log = folder / f"dynsched-{time.monotonic_ns()}.log"
        self._stderr = stderr

    async def __aenter__(self) -> Self:
        quiet = {name: text for name, text in os.environ.items() if "DYNSCHED" not in name}
        with self._log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=self._stderr or log, env=quiet
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def get(self, path: str, accept: str = "*/*", token: str = "") -> tuple[int, str]:
        """Status and text; status 0 while nothing listens."""
        headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{self.address}{path}", headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def nodes(self) -> dict[str, Any]:
        """The answer of `/nodes` once a tick is published; marks may be written earlier."""
        await self.until_ready()
        status, text = await self.get("/nodes")
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    async def until_ready(self) -> None:
        await self.until(lambda status: status == 200, "/readyz")

    async def until(self, fits: Callable[[int], bool], path: str, seconds: float = 90) -> None:
        limit = time.monotonic() + seconds
        while not fits((await self.get(path))[0]):
            assert self.process.returncode is None, f"dynsched ended:\n{self.log}"
            assert time.monotonic() < limit, f"{path} did not answer as expected:\n{self.log}"
            await asyncio.sleep(0.05)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(90):
            return await self.process.wait()


async def until(condition: Callable[[], Any], what: str, seconds: float = 90) -> Any:
    """Wait until ``condition``, which may be asynchronous, returns something true; returns that.

    The bound only ends a test that has failed; it is long enough for a busy machine.
    """
    limit = time.monotonic() + seconds
    while True:
        found = condition()
        if isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < limit, f"{what}: not within {seconds:g} s"
        await asyncio.sleep(0.05)


def write_rules(folder: Path, rules: Mapping[str, Any]) -> Path:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(dict(rules)), encoding="utf-8")
    return path


async def dynsched(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dynsched", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
