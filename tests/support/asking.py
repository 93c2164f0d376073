"""Asking a running dynsched by its URL, as the commands do; and one that answers by a script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dynsched.tools.client import TIMEOUT, ByUrl, Response, Running


def fetch(
    server: str, path: str, *, timeout: float = TIMEOUT, token_file: Path | None = None
) -> dict[str, Any]:
    """What the dynsched at ``server`` answers at a path that is not quoted."""
    running = ByUrl(server, timeout, token_file)
    return running.read(running.ask(quote(path, safe="/?=&")))


Step = Response | Exception


class Scripted(Running):
    """Answers as the script says, and then Ctrl-C is pressed."""

    shown = "http://dynsched"

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        self.asked: list[tuple[str, str | None]] = []

    def raw(self, path: str, etag: str | None = None) -> Response:
        self.asked.append((path, etag))
        if not self._steps:
            raise KeyboardInterrupt
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step
