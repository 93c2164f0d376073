"""Text that others wrote, inside one of our lines: of a log, an error or an answer."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """``text`` as one line of printable characters, cut at ``limit``."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
