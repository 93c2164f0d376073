"""The command line, called in this process."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dynsched.cli import commands

Ended = tuple[int, str, str]
"""Exit code, standard output, standard error."""
Call = Callable[..., Awaitable[Ended]]


def call_of(
    capsys: pytest.CaptureFixture[str],
    *words: object,
    main: Callable[[list[str]], Any] = commands.main,
) -> Ended:
    """Run a command to its end."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0), *capsys.readouterr()
