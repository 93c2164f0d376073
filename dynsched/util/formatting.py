"""Formats numbers, times and foreign text, and parses times. A time is a number of Unix seconds; as
text it is RFC 3339, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

MAX_FOREIGN: Final = 200
"""Maximum characters of foreign text in a log line, an error or a response."""
MAX_ROWS: Final = 20
"""Rows of a long table that are shown by default."""
_WHOLE_FROM: Final = 10_000
"""From here on, fractions do not matter, and ``.4g`` would turn bytes into ``1.074e+09``."""


def format_value(value: float | None) -> str:
    """A measured value, to four digits or whole: ``91.2``, ``1073741824``; ``?`` if None."""
    if value is None:
        return "?"
    return f"{value:.4g}" if abs(value) < _WHOLE_FROM else f"{value:.0f}"


def format_threshold(value: float) -> str:
    """A configured value in full precision: ``80``, ``0.25``, ``1073741824``."""
    return f"{value:.15g}"


def format_time(seconds: float) -> str:
    """``2026-11-20T12:02:00Z``. OverflowError, OSError or ValueError outside of years 1 to 9999."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(micros: int) -> str:
    """Kubernetes's MicroTime, from Unix microseconds: with exactly six decimals."""
    seconds, rest = divmod(micros, 1_000_000)
    return format_time(seconds).replace("Z", f".{rest:06d}Z")


def parse_time(text: object) -> float | None:
    """Unix seconds; None if ``text`` is not RFC 3339 with a time zone.

    Years before 1970 and from 9000 on give None too: callers shift times after a clock was set, and
    `format_time` must be able to write the result.
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None or moment.tzinfo is None:
            return None
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC it may lie outside the years 1 to 9999
        return None
    return moment.timestamp() if 1970 <= moment.year < 9000 else None  # noqa: PLR2004


def one_line(text: str, limit: int = MAX_FOREIGN) -> str:
    """Foreign text as one line of printable characters, cut at ``limit``."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def label_name(name: str) -> str:
    """A label name in PromQL, quoted if it has dots or similar characters (OpenTelemetry)."""
    return name if name.isascii() and name.isidentifier() else f'"{escaped(name)}"'


def escaped(text: str) -> str:
    """A label value, escaped for double quotes in PromQL and in the exposition format."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is a mapping, else an empty one: foreign JSON may contain anything."""
    return value if isinstance(value, Mapping) else {}


def as_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
