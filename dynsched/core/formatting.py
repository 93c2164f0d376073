"""Values and thresholds as a person reads them."""

from __future__ import annotations

from typing import Final

_WHOLE_FROM: Final = 10_000
"""From here on fractions say nothing, and four digits would turn bytes into ``1.074e+09``."""


def format_value(value: float | None) -> str:
    """A measured value, to four digits: ``91.2``, ``1073741824``; ``?`` when nothing is known."""
    if value is None:
        return "?"
    return f"{value:.4g}" if abs(value) < _WHOLE_FROM else f"{value:.0f}"


def format_threshold(value: float) -> str:
    """A configured value, all of it: ``80``, ``0.25``, ``1073741824``."""
    return f"{value:.15g}"
