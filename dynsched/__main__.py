"""Entry points: ``dynsched``, ``python -m dynsched``, and the kubectl plugin."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Final

_KILLED_BY: Final = 128
"""A shell reports a process that was ended by signal N with exit code 128 + N."""


def main() -> None:
    """Run the command line.

    The SIGTERM handler is set before the imports, which take up to a second. In a container this
    process is PID 1, to which the kernel delivers no signal without a handler: it would run on
    until it is killed.
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
