"""Numbers, moments and foreign text as text of ours; moments read from text. Moments are
Unix seconds, and their text is RFC 3339, as Kubernetes writes and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

MAX_FOREIGN: Final = 200
"""Characters of text that others wrote, in a log line, an error or an answer."""
MAX_ROWS: Final = 20
"""Rows of a long table that people are shown unless they want all."""
_WHOLE_FROM: Final = 10_000
"""From here on fractions do not matter, and four digits would turn bytes into ``1.074e+09``."""


def format_value(value: float | None) -> str:
    """A measured value, to four digits: ``91.2``, ``1073741824``; ``?`` when nothing is known."""
    if value is None:
        return "?"
    return f"{value:.4g}" if abs(value) < _WHOLE_FROM else f"{value:.0f}"


def format_threshold(value: float) -> str:
    """A configured value, all of it: ``80``, ``0.25``, ``1073741824``."""
    return f"{value:.15g}"


def format_time(seconds: float) -> str:
    """``2026-11-20T12:02:00Z``. OverflowError, OSError or ValueError outside of years 1 to 9999."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(micros: int) -> str:
    """Kubernetes's MicroTime, of microseconds: exactly six digits after the seconds."""
    seconds, rest = divmod(micros, 1_000_000)
    return format_time(seconds).replace("Z", f".{rest:06d}Z")


def parse_time(text: object) -> float | None:
    """None for anything that is not RFC 3339, a time without a zone among it; and for years in
    which nothing happens: after a clock was set, times are moved, which `format_time` must be able
    to write.
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None or moment.tzinfo is None:
            return None
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):  # by its zone it may lie outside of years 1 to 9999
        return None
    return moment.timestamp() if 1970 <= moment.year < 9000 else None  # noqa: PLR2004


def one_line(text: str, limit: int = MAX_FOREIGN) -> str:
    """Text that others wrote: printable characters in one line, cut at ``limit``."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def label_name(name: str) -> str:
    """The name of a label in PromQL: in quotes where it has dots or the like (OpenTelemetry)."""
    return name if name.isascii() and name.isidentifier() else f'"{escaped(name)}"'


def escaped(text: str) -> str:
    """The value of a label between double quotes, in PromQL and in the exposition format."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Of JSON that others wrote, where anything may stand."""
    return value if isinstance(value, Mapping) else {}


def as_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
