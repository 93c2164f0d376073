"""The processes' entries: ``dynsched``, ``python -m dynsched``, and the plugin of kubectl."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Final

_KILLED_BY: Final = 128
"""What a shell adds to a signal's number for the exit code of a process that it ended."""


def main() -> None:
    """Run the command line.

    SIGTERM has a handler before anything else is imported, which takes up to a second: the kernel
    does not deliver a signal without handler to the first process of a container, which would then
    run on until it is killed.
    """
    signal.signal(signal.SIGTERM, _end)
    from dynsched.cli.commands import main as run_command_line

    run_command_line()


def kubectl() -> None:
    """Run `kubectl dynsched`."""
    signal.signal(signal.SIGTERM, _end)
    from dynsched.cli.commands import cli

    cli(prog_name="kubectl dynsched")


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(_KILLED_BY + number)


if __name__ == "__main__":
    main()
