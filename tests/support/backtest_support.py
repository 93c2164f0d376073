"""How the tests of the backtest call it, and which rules they give it."""

from collections.abc import Awaitable, Callable
from typing import Any

from builders import rule
from command_line import Ended

Call = Callable[..., Awaitable[Ended]]
"""``call(url, rules, *flags)`` -> exit code, standard output, standard error."""
Reported = Callable[..., Awaitable[Any]]
"""``reported(url, rules, *flags)`` -> the report of a run that succeeded, from JSON."""

SERIES = ("--nodes-from-series", "--since", "1h", "--step", "30s")


def rules(*given: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A rules file that limits nothing."""
    return {"guard": {"max_marked": "100%"}, "rules": list(given), **sections}


CPU = rule("cpu", expr="cpu")
MEM = rule("mem", expr="mem")
