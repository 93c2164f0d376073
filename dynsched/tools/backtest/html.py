"""A report as one HTML file: no network, no script, plots as SVG, readable when printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from dynsched.tools.backtest.page_sections import Section
from dynsched.tools.backtest.plots import frontier_plot, nodes_plot, regret_plot

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1b1f24; background: #fff;
       margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid #d8dee4; }
th { font-weight: 600; border-bottom-color: #6e7781; }
td.word, th.word { text-align: left; overflow-wrap: anywhere; }
div.wide { overflow-x: auto; }
pre { background: #f6f8fa; padding: .8rem; white-space: pre-wrap; }
svg { display: block; max-width: 100%; height: auto; margin: .6rem 0; }
svg text { font: 11px system-ui, sans-serif; fill: #1b1f24; }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  h2 { break-after: avoid; } tr, svg, pre { break-inside: avoid; } div.wide { overflow: visible; } }
"""
_PLOTS: Final = {"nodes": nodes_plot, "regret": regret_plot, "frontier": frontier_plot}


def page(found: Iterable[Section], words: frozenset[str]) -> str:
    """The whole file. ``words``: the columns that are no numbers."""
    body = "\n".join(_section(section, words, first=not n) for n, section in enumerate(found))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>dynsched backtest</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        "</body>\n</html>"
    )


def _section(section: Section, words: frozenset[str], *, first: bool) -> str:
    level = "h1" if first else "h2"
    parts = [f"<{level}>{escape(section.title)}</{level}>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
    plot = _plot(section.kind, section.data)
    if plot:
        parts.append(plot)
    if section.rows:
        parts.append(_table(section.columns, section.rows, words))
    if section.code:
        parts.append(f"<pre>{escape(section.code)}</pre>")
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _plot(kind: str, data: Mapping[str, Any]) -> str:
    drawn = _PLOTS.get(kind)
    return drawn(data) if drawn else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: frozenset[str]) -> str:
    # The strip is drawn above.
    shown = [number for number, name in enumerate(columns) if name != "STRIP"]
    kinds = {number: ' class="word"' if columns[number] in words else "" for number in shown}
    head = "".join(f"<th{kinds[number]}>{escape(columns[number])}</th>" for number in shown)
    lines = [
        "<tr>" + "".join(f"<td{kinds[number]}>{escape(row[number])}</td>" for number in shown)
        for row in rows
    ]
    body = "</tr>\n".join(lines)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tr>\n'
        "</tbody>\n</table></div>"
    )
