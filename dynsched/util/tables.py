"""Tables for people: text without control characters, columns, ages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dynsched.util.durations import format_duration

STYLES: Final[Mapping[str, str]] = {
    "firing": "bold red",
    "pending": "yellow",
    "mark": "bold red",
    "release": "green",
    "repair": "yellow",
}
_UNLIMITED: Final = 100_000
"""Width of a file or a pipe, in columns."""


def show(console: Console, *shown: str | Text | Table) -> None:
    """Print each item at the terminal's width, or at its own width if a word would not fit. Empty
    tables are not printed.
    """
    # For a file, rich assumes 80 columns, and would fold or cut node names. On a terminal that is
    # too narrow for the words of a table, lines wrap, as in kubectl.
    wide = Console(file=console.file, width=_UNLIMITED)
    for each in shown:
        if isinstance(each, Table) and not each.rows:
            continue
        found = plain(each) if isinstance(each, str) else each
        fits = console.is_terminal and wide.measure(found).minimum <= console.width
        (console if fits else wide).print(found)


def make_table(titles: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        # In a narrow terminal, names are the last columns to be folded.
        table.add_column(title, overflow="fold", no_wrap=title in ("NODE", "RULE"))
    for row in rows:
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def plain(text: str, style: str = "") -> Text:
    # Text instead of markup, so that brackets in a message stay brackets. Foreign text may contain
    # control characters, which could move the cursor. A line break becomes a space, because each
    # text is one line.
    shown = (c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    return Text("".join(shown), style=style)


def named(rule: Mapping[str, Any]) -> str:
    return f"{rule['rule']} (shadow)" if rule.get("shadow") else str(rule["rule"])


def ago(since: str | None, now: str) -> str:
    """The time from ``since`` to ``now``, both RFC 3339; ``-`` if ``since`` is None."""
    if since is None:
        return "-"
    elapsed = datetime.fromisoformat(now) - datetime.fromisoformat(since)
    return format_duration(max(0.0, elapsed.total_seconds()))


def sample_age(rule: Mapping[str, Any]) -> str:
    """The age of a rule's last good sample on a node, and what is wrong with the newest one."""
    age = rule["sample_age_seconds"]
    if age is None:
        return f"{rule['quality']}; no sample so far"
    last = f"{format_duration(round(age))} ago"
    return last if rule["quality"] == "ok" else f"{rule['quality']}; last {last}"
