"""Prints the report as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from dynsched.core.wording import counted
from dynsched.util.durations import format_duration
from dynsched.util.formatting import MAX_ROWS, format_threshold
from dynsched.util.tables import make_table, named, plain, show

Json = Mapping[str, Any]
Columns = Mapping[str, str]
"""By title of a column, the key of its values."""

_WORDS: Final = frozenset({"RULE", "SETTING", "NODE"})
"""Columns of text. The others contain numbers, and are aligned to the right."""
_SHARES: Final = frozenset({"coverage", "node_time_marked", "marked_before", "marked_after"})

_RULES: Final[Columns] = {
    "RULE": "rule",
    "SETTING": "setting",
    "MARKS": "marks",
    "MEDIAN": "median_mark_seconds",
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
}


def render(report: Json, console: Console) -> None:
    summary = (
        f"From {report['since']} to {report['until']}, every "
        f"{format_duration(report['step_seconds'])}: {counted(report['node_count'], 'node')}."
    )
    show(console, *report["notes"], summary)
    if "before" not in report:
        _rules(console, {"": report})
        _nodes(console, report)
        return
    _rules(console, {"Before: ": report["before"], "After: ": report["after"]})
    changed = report["difference"]
    differ = f"{counted(len(changed), 'node')} of {report['node_count']} differ."
    sentence = differ if changed else "No node would be marked at a different time."
    _section(console, "Difference by node", [sentence], _CHANGED, changed[:MAX_ROWS])


def _section(
    console: Console,
    title: str,
    sentences: Iterable[str],
    columns: Columns,
    entries: Sequence[Json],
) -> None:
    rows = [[_cell(key, entry[key]) for key in columns.values()] for entry in entries]
    table = make_table(columns, rows)
    for column in table.columns:
        column.justify = "left" if column.header in _WORDS else "right"
        column.no_wrap = column.no_wrap or column.header == "SETTING"
    show(console, "", plain(title, "bold"), *sentences, table)


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if key in _SHARES:
        return _percent(value)
    if key.endswith("_seconds"):
        return format_duration(round(value))
    return f"{value:,}"


def _percent(part: float) -> str:
    """A share in percent. A small one must not look like 0."""
    text = f"{100 * part:.1f} %"
    return "<0.1 %" if part and text == "0.0 %" else text


def _setting(rule: Json) -> str:
    text = f"{rule['op']} {format_threshold(rule['threshold'])}"
    if rule["for_seconds"]:
        text += f" for {format_duration(rule['for_seconds'])}"
    return text


def _rules(console: Console, sides: Mapping[str, Json]) -> None:
    """Print the table of rules. ``sides``: the replays, by the prefix for the names of rules."""
    sentences, entries, sums = [], [], []
    for prefix, side in sides.items():
        total = side["total"]
        sums.append(total | {"rule": f"{prefix}all", "setting": ""})
        entries += [
            {**rule, "rule": prefix + named(rule), "setting": _setting(rule)}
            for rule in side["rules"]
        ]
        sentences.append(
            f"{prefix}At most {counted(total['peak_marked'], 'node')} marked at a time; at the cap "
            f"{_percent(total['time_at_cap'])} of the time; {total['writes_per_day']:,.2f} writes "
            "to nodes per day."
        )
    sentences.append("A flap is a mark within 10m after the one before.")
    if len(sides) > 1:
        entries.sort(key=lambda one: one["rule"].partition(": ")[2])
    _section(console, "Rules", sentences, _RULES, [*entries, *sums])


def _nodes(console: Console, side: Json) -> None:
    marked = [node for node in side["nodes"] if node["marks"]]
    sentences = []
    if not marked:
        sentences = ["No node was marked."]
    elif len(marked) > MAX_ROWS:
        sentences = [f"{counted(len(marked) - MAX_ROWS, 'more node')} had marks."]
    _section(console, "Nodes", sentences, _NODES, marked[:MAX_ROWS])
