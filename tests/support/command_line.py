"""Runs the command line in this process and captures its output."""

import io
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from programs import ROOT
from rich.console import Console

from dynsched.cli import commands

Ended = tuple[int, str, str]
"""Exit code, standard output, standard error."""
Call = Callable[..., Awaitable[Ended]]


def call_of(
    capsys: pytest.CaptureFixture[str],
    *words: object,
    main: Callable[[list[str]], Any] = commands.main,
) -> Ended:
    """Run a command to its end; returns exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0), *capsys.readouterr()


def shown(render: Callable[[Any, Console], None], payload: Any, **console: Any) -> list[str]:
    """The lines that ``render`` prints."""
    out = io.StringIO()
    render(payload, Console(file=out, **console))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def compare(command: str, scenes: Iterable[tuple[str, list[str]]]) -> None:
    """Compare with the reviewed golden file. UPDATE_DOCS=1 rewrites it."""
    file = ROOT / f"tests/cli/golden/{command}.txt"
    text = "\n".join("\n".join((f"--- {title}", *lines, "")) for title, lines in scenes)
    if os.environ.get("UPDATE_DOCS"):
        file.write_text(text)
    assert file.read_text() == text
