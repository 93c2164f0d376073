"""The report as tables for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from dynsched.core.wording import counted
from dynsched.util.durations import format_duration
from dynsched.util.formatting import MAX_ROWS, format_threshold
from dynsched.util.tables import make_table, named, plain, show

Json = Mapping[str, Any]
Columns = Mapping[str, str]
"""The key of the value, by title."""

_WORDS: Final = frozenset({"RULE", "SETTING", "NODE"})
"""Columns of words; the others hold numbers and are aligned to the right."""

_RULES: Final[Columns] = {
    "RULE": "rule",
    "SETTING": "setting",
    "MARKS/NODE/DAY": "marks_per_node_day",
    "MARKS": "marks",
    "MEDIAN": "median_mark_seconds",
    "LONGEST": "longest_mark_seconds",
    "FLAPS": "flaps",
    "TIME MARKED": "node_time_marked",
    "COVERAGE": "coverage",
}
_NODES: Final[Columns] = {
    "NODE": "node",
    "MARKS": "marks",
    "TIME MARKED": "node_time_marked",
    "COVERAGE": "coverage",
}
_CHANGED: Final[Columns] = {
    "NODE": "node",
    "MARKS BEFORE": "marks_before",
    "MARKS AFTER": "marks_after",
    "TIME MARKED BEFORE": "marked_before",
    "TIME MARKED AFTER": "marked_after",
    "DIFFERENCE": "difference",
}


def render(report: Json, console: Console) -> None:
    origin = "by their series" if report["nodes_from"] == "series" else "of the cluster"
    summary = (
        f"From {report['since']} to {report['until']}, every "
        f"{format_duration(report['step_seconds'])}: {counted(report['node_count'], 'node')} "
        f"{origin}, {report['samples']:,} samples in {counted(report['queries'], 'request')}."
    )
    show(console, *report["notes"], summary)
    compares = "before" in report
    sides = {"Before: ": report["before"], "After: ": report["after"]} if compares else {"": report}
    _rules(console, sides)
    if compares:
        changed = report["difference"]
        differ = f"{counted(len(changed), 'node')} of {report['node_count']} differ."
        summary = differ if changed else "No node would be marked at another time."
        _section(console, "Difference by node", [summary], _CHANGED, changed[:MAX_ROWS])
    for prefix, side in sides.items():
        if lacking := [*_lacking(side)]:
            _section(console, f"{prefix}Not enough data", lacking)
        _nodes(console, side, prefix)


def _section(
    console: Console,
    title: str,
    sentences: Iterable[str],
    columns: Columns | None = None,
    entries: Sequence[Json] = (),
) -> None:
    columns = columns or {}
    rows = [[_cell(key, entry[key]) for key in columns.values()] for entry in entries]
    table = make_table(columns, rows)
    for column in table.columns:
        column.justify = "left" if column.header in _WORDS else "right"
        column.no_wrap = column.no_wrap or column.header == "SETTING"
    show(console, "", plain(title, "bold"), *sentences, table)


_SHARES: Final = re.compile("coverage|marked|cap$")


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "difference":
        return f"{100 * value:+.1f} points"
    if isinstance(value, str):
        return value
    if key.endswith("_seconds"):
        # Long durations without seconds.
        grain = 3600 if value >= 7 * 86400 else 60 if value >= 86400 / 4 else 1
        return format_duration(round(value / grain) * grain)
    if isinstance(value, int):
        return f"{value:,}"
    return _percent(value) if _SHARES.search(key) else f"{value:,.2f}"


def _percent(part: float) -> str:
    """A small share does not look like none."""
    text = f"{100 * part:.1f} %"
    return "<0.1 %" if part and text == "0.0 %" else text


def _setting(rule: Json) -> str:
    text = f"{rule['op']} {format_threshold(rule['threshold'])}"
    if rule["for_seconds"]:
        text += f" for {format_duration(rule['for_seconds'])}"
    return text


def _rules(console: Console, sides: Mapping[str, Json]) -> None:
    """``sides``: by the prefix of their rules' names."""
    sentences, entries, sums = [], [], []
    for prefix, side in sides.items():
        total = side["total"]
        sums.append(total | {"rule": f"{prefix}all", "setting": ""})
        entries += [
            {**rule, "rule": prefix + named(rule), "setting": _setting(rule)}
            for rule in side["rules"]
        ]
        said = (
            f"At most {counted(total['peak_marked'], 'node')} marked at a time; at the cap "
            f"{_percent(total['time_at_cap'])} of the time"
        )
        if total["writes_per_day"] is not None:
            said += f"; {total['writes_per_day']:,.2f} writes to nodes per day"
        sentences.append(f"{prefix}{said}.")
    sentences.append("A flap is a mark within 10m after the one before.")
    if len(sides) > 1:
        entries.sort(key=lambda one: one["rule"].partition(": ")[2])
    title = "Before and after" if len(sides) > 1 else "Rules"
    _section(console, title, sentences, _RULES, [*entries, *sums])


def _lacking(side: Json) -> Iterable[str]:
    for rule in side["rules"]:
        if not rule["enough_data"]:
            share = _percent(rule["coverage"])
            yield f"Rule {rule['rule']}: {share} of the time of all nodes is known."


def _nodes(console: Console, side: Json, prefix: str) -> None:
    marked = [node for node in side["nodes"] if node["marks"]]
    sentences = []
    if not marked:
        sentences = ["No node was marked."]
    elif len(marked) > MAX_ROWS:
        sentences = [f"{counted(len(marked) - MAX_ROWS, 'more node')} had marks."]
    _section(console, f"{prefix}Nodes", sentences, _NODES, marked[:MAX_ROWS])
