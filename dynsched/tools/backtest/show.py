"""A report on the terminal, or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console

from dynsched.tools.backtest.page_sections import Section
from dynsched.util.tables import make_table, plain, show

WORDS: Final = frozenset(
    {"RULE", "SETTING", "POOL", "NODE", "STRIP", "DAY", "NAMESPACE", "WORKLOAD", "FOR", "EVENT"}
)
"""Columns of words; the others hold numbers, and stand at the right."""


def render(found: Iterable[Section], console: Console) -> None:
    """For a person at a terminal."""
    for number, section in enumerate(found):
        if number:
            show(console, plain(""))
            show(console, plain(section.title, "bold"))
        for sentence in section.sentences:
            show(console, plain(sentence))
        if section.rows:
            table = make_table(*section.columns)
            for column in table.columns:
                column.justify = "left" if str(column.header) in WORDS else "right"
                # A strip that is folded is none any more.
                column.no_wrap = column.no_wrap or str(column.header) in ("STRIP", "SETTING")
            for row in section.rows:
                table.add_row(*map(plain, row))
            show(console, table)
        if section.code:
            show(console, plain(""))
            for line in section.code.splitlines():
                show(console, plain(line))


def markdown(found: Iterable[Section]) -> str:
    """For the comment on a pull request."""
    lines: list[str] = []
    for number, section in enumerate(found):
        lines += [f"{'##' if number else '#'} {section.title}", ""]
        for sentence in section.sentences:
            lines += [_escaped(sentence), ""]
        if section.rows:
            lines.append(_row(section.columns))
            lines.append(
                "|" + "|".join("---" if name in WORDS else "--:" for name in section.columns) + "|"
            )
            lines += [
                _row(
                    # The blanks of a strip count.
                    f"`{cell.strip('|')}`" if name == "STRIP" else _escaped(cell)
                    for name, cell in zip(section.columns, row, strict=True)
                )
                for row in section.rows
            ]
            lines.append("")
        if section.code:
            lines += ["```yaml", section.code.rstrip(), "```", ""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Names and errors were written by others."""
    flat = " ".join(text.split())
    for character in "\\`*_<>|[]":
        flat = flat.replace(character, f"\\{character}")
    return flat
