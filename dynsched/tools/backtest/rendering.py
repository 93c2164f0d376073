"""Sections on the terminal, as Markdown, and as one HTML file without network or script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from rich.console import Console

from dynsched.tools.backtest.page_sections import Section
from dynsched.util.tables import make_table, plain, show

_WORDS: Final = frozenset(
    {"RULE", "SETTING", "POOL", "NODE", "STRIP", "DAY", "NAMESPACE", "WORKLOAD", "FOR"}
)
"""Columns of words; the others hold numbers, and stand at the right."""
_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dynsched backtest</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; }
section { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid #d8dee4; }
.word { text-align: left; }
pre, .strip { font-family: monospace; white-space: pre; text-align: left; }
@media print { h2 { break-after: avoid; } tr, pre { break-inside: avoid; } }
</style>"""


def render(found: Iterable[Section], console: Console) -> None:
    """For a person at a terminal."""
    for number, section in enumerate(found):
        if number:
            show(console, plain(""))
            show(console, plain(section.title, "bold"))
        for sentence in section.sentences:
            show(console, plain(sentence))
        if section.entries:
            table = make_table(*section.titles)
            for column in table.columns:
                column.justify = "left" if column.header in _WORDS else "right"
                # A strip that is folded is none any more.
                column.no_wrap = column.no_wrap or column.header in ("STRIP", "SETTING")
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
        if section.entries:
            titles = section.titles
            aligned = ["---" if title in _WORDS else "--:" for title in titles]
            lines += [f"| {' | '.join(titles)} |", f"|{'|'.join(aligned)}|"]
            for row in section.rows:
                # The blanks of a strip count.
                cells = [
                    f"`{cell.strip('|')}`" if title == "STRIP" else _escaped(cell)
                    for title, cell in zip(titles, row, strict=True)
                ]
                lines.append(f"| {' | '.join(cells)} |")
            lines.append("")
        if section.code:
            lines += ["```yaml", section.code.rstrip(), "```", ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Names and errors were written by others."""
    flat = " ".join(text.split())
    for character in "\\`*_<>|[]":
        flat = flat.replace(character, f"\\{character}")
    return flat


def page(found: Iterable[Section]) -> str:
    """For a browser, or for printing."""
    parts = [_HEAD]
    for number, section in enumerate(found):
        level = "h2" if number else "h1"
        parts.append(f"<section>\n<{level}>{escape(section.title)}</{level}>")
        parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
        if section.entries:
            parts.append("<table>")
            for tag, cells in (("th", section.titles), *(("td", row) for row in section.rows)):
                kinds = [_kind(title) for title in section.titles]
                told = zip(kinds, cells, strict=True)
                row = "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in told)
                parts.append(f"<tr>{row}</tr>")
            parts.append("</table>")
        if section.code:
            parts.append(f"<pre>{escape(section.code)}</pre>")
        parts.append("</section>")
    return "\n".join([*parts, "</html>"])


def _kind(title: str) -> str:
    name = "strip" if title == "STRIP" else "word" if title in _WORDS else ""
    return f' class="{name}"' if name else ""
