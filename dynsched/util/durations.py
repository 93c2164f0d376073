"""Durations in the grammar of Prometheus's ``model.ParseDuration``, such as ``30s`` or ``1h30m``.
Units come in descending order, each at most once, with whole numbers; a bare ``0`` needs no unit.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "y": 365 * 86400.0,
    "w": 7 * 86400.0,
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
_MAX_SECONDS: Final = 2**63 // 10**9
"""292 years: Prometheus counts nanoseconds in 64 bits, and refuses longer durations."""
_GRAMMAR: Final = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)


def parse_duration(text: str) -> float:
    """A duration in seconds. ValueError with a hint if ``text`` is not a duration."""
    if text == "0":
        return 0.0
    match = _GRAMMAR.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration; write it like 30s, 2m or 1h30m")
    parts = zip(match.groups(default="0"), _UNITS.values(), strict=True)
    total = sum(float(amount) * seconds for amount, seconds in parts)
    if total > _MAX_SECONDS:
        raise ValueError("the duration is longer than 292 years")
    return total


def parse_seconds(text: str, *, at_least: float) -> float:
    """A duration or a plain number, in seconds. ValueError for others, or below ``at_least``."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text)
    if not at_least <= seconds <= _MAX_SECONDS:  # rejects NaN too
        raise ValueError(f"it must be {format_duration(at_least)} or longer, up to 292 years")
    return seconds


def format_duration(seconds: float) -> str:
    """Prometheus's spelling, to the millisecond and in units up to days: 90 -> ``1m30s``."""
    rest = round(seconds * 1000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        size = round(_UNITS[unit] * 1000)
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
