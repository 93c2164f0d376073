"""How the tests of the backtest call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Ended = tuple[int, str, str]
Call = Callable[..., Awaitable[Ended]]
"""``call(url, rules, *flags)`` -> exit code, standard output, standard error."""
