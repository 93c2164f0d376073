"""A report for people: on the terminal, as Markdown, and as one HTML file without network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from io import StringIO
from typing import Any, Final

from rich.console import Console

from dynsched.engine.wording import counted, listed
from dynsched.tools.backtest.suggest import FEWEST
from dynsched.util.defaults import MAX_ROWS
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold
from dynsched.util.tables import make_table, named, plain, show

Json = Mapping[str, Any]
Column = tuple[str, Callable[[Json], str]]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "·"
_BAR: Final = 12  # characters of the longest
_WORDS: Final = frozenset(
    {"RULE", "SETTING", "POOL", "NODE", "STRIP", "DAY", "NAMESPACE", "WORKLOAD", "FOR", "OVER"}
) | {"OUTCOME"}
"""Columns of words; the others hold numbers, and stand at the right."""
_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>dynsched</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; }
pre { overflow-x: auto; }
@page { size: A4 landscape; margin: 12mm; }
@media print { body { margin: 0; font-size: 12px; } pre { overflow: visible; font-size: 10px; } }
</style>"""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    sentences: Sequence[str] = ()
    columns: Sequence[Column] = ()
    entries: Sequence[Json] = ()
    code: str = ""
    """Text to be copied as it is, below the table."""

    @property
    def rows(self) -> list[list[str]]:
        """The titles, and the entries."""
        titles = [title for title, _ in self.columns]
        return [titles, *([text(entry) for _, text in self.columns] for entry in self.entries)]


def sections(report: Json) -> list[Section]:
    if report.get("report") is not None:
        return [_reported(report, report["report"])]
    if "before" not in report:
        return [_heading(report), _rules("Rules", {"": report}), *_of_side(report, report, "")]
    sides = {"Before: ": report["before"], "After: ": report["after"]}
    others = (section for each in sides for section in _of_side(report, sides[each], each))
    return [_heading(report), _rules("Before and after", sides), _difference(report), *others]


def _percent(part: float | None, digits: int = 1) -> str:
    """What is not quite 0 does not look like it."""
    if part is None:
        return "-"
    text = f"{100 * part:.{digits}f} %"
    return f"<{10**-digits:g} %" if part and not float(text[:-2]) else text


def _duration(seconds: float) -> str:
    """Of what is longer than a day without seconds."""
    grain = 3600 if seconds >= 7 * 86400 else 60 if seconds >= 86400 / 4 else 1
    return format_duration(round(seconds / grain) * grain)


def _strip(shares: Iterable[float | None]) -> str:
    cells = (
        _UNKNOWN if part is None else _BLOCKS[max(1, min(8, round(part * 8))) if part > 0 else 0]
        for part in shares
    )
    return f"|{''.join(cells)}|"


def _setting(rule: Json) -> str:
    if "op" not in rule:
        return ""
    text = f"{rule['op']} {format_threshold(rule['threshold'])}"
    if rule["for_seconds"]:
        text += f" for {format_duration(rule['for_seconds'])}"
    return text + (" above the early line" if rule["early"] else "")


_SHARES: Final = re.compile("share|coverage|marked|cap$")
_FORMS: Final[Mapping[str, Callable[[Any], str]]] = {
    "threshold": format_threshold,
    "clear_threshold": format_threshold,
    "pool": lambda name: name or "(all nodes)",
    "strip": _strip,
    "difference": lambda share: f"{100 * share:+.1f} points",
    "warned": partial(_percent, digits=0),
    "recommended": lambda is_best: "recommended" if is_best else "",
}


def _cell(key: str, entry: Json) -> str:
    value = entry[key]
    if key in _FORMS:
        return _FORMS[key](value)
    if value is None or isinstance(value, str):
        return value or "-"
    if key.endswith("_seconds"):
        return _duration(value)
    is_share = isinstance(value, float) and _SHARES.search(key)
    return (
        _percent(value) if is_share else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    )


def columns(*told: str) -> list[Column]:
    """Of ``TITLE key``."""
    return [(each.rpartition(" ")[0], partial(_cell, each.rpartition(" ")[2])) for each in told]


_TIME: Final = ("TIME MARKED node_time_marked", "COVERAGE coverage")
_LASTED: Final = ("MEDIAN median_mark_seconds", "LONGEST longest_mark_seconds", "FLAPS flaps")
_RULES: Final = [
    *(("RULE", named), ("SETTING", _setting)),
    *columns("MARKS/NODE/DAY marks_per_node_day", "MARKS marks", *_LASTED, *_TIME),
]
_POOLS: Final = columns(
    *("POOL pool", "NODES nodes", "ELIGIBLE eligible", "MAX_MARKED max_marked"),
    *("PEAK MARKED peak_marked", "CAP THEN cap_at_peak", "TIME AT CAP time_at_cap"),
    "COVERAGE coverage",
)
_NODES: Final = columns("NODE node", "MARKS marks", *_TIME, "STRIP strip")
_CHANGED: Final = columns(
    *("NODE node", "MARKS BEFORE marks_before", "AFTER marks_after"),
    *("TIME MARKED BEFORE marked_before", "AFTER marked_after", "DIFFERENCE difference"),
)
_PLACED: Final = columns(
    *("PODS PLACED pods_placed", "ON HOT pods_on_hot", "SHARE share_on_hot"),
    "ROOM ELSEWHERE pods_with_room",
)
_PERIODS: Final = [
    *columns("DAY period", "DAYS days", "NODE-HOURS OVER/DAY node_hours_over_per_day"),
    *columns("OF TIME share_over", "MEAN LOAD mean_load"),
    *_PLACED,
    *columns("WRITES writes", "NOT SEEN not_seen_seconds", "ALERTS alert_seconds", "OVER bar"),
]
_TRIED: Final = columns(
    *("THRESHOLD threshold", "CLEAR clear_threshold", "FOR for_seconds", "EPISODES episodes"),
    *("FLAPS flaps", "TIME MARKED node_time_marked", "WRITES/DAY writes_per_day"),
    *("AT CAP time_at_cap", "WARNED warned", "EARLY BY early_warning_seconds", " recommended"),
)


def _heading(report: Json) -> Section:
    nodes = counted(report["node_count"], "node")
    origin = "by their series" if report["nodes_from"] == "series" else "of the cluster"
    summary = (
        f"From {report['since']} to {report['until']}, every "
        f"{format_duration(report['step_seconds'])}: {nodes} {origin}, "
        f"{report['samples']:,} samples in {counted(report['queries'], 'request')}."
    )
    return Section("Backtest", [*report["notes"], summary])


def _reported(report: Json, told: Json) -> Section:
    """What a person prints: on one sheet."""
    before, after = told["before"], told["after"]
    compared = (
        "Nothing can be compared: there is no history before and after the day on which "
        f"dynsched began to act ({told['began'] or 'not known: give --report=MOMENT'})."
    )
    if before["days"] and after["days"]:
        hours = before["share_over"] * after["node_hours"]
        compared = (
            f"dynsched began to act at {told['began']}. At the share of time before that day, the "
            f"nodes would have been over a threshold for {hours:,.1f} node-hours after it; it was "
            f"{after['node_hours_over']:,.1f}. Only times of about equal mean load can be compared."
        )
    sentences = [*_heading(report).sentences, compared]
    if before["pods_placed"] and after["pods_placed"]:
        pods = before["share_on_hot"] * after["pods_placed"]
        sentences.append(
            f"At the share of pods before it, {pods:,.0f} would have been placed onto such nodes; "
            f"it was {after['pods_on_hot']:,}. By the replay, a node that was neither hot nor "
            f"marked had room for {before['pods_with_room']:,} of {before['pods_on_hot']:,} "
            f"before, and for {after['pods_with_room']:,} after."
        )
    alerts = [f"{name} {_duration(seconds)}" for name, seconds in sorted(told["alerts"].items())]
    sentences += [f"Alerts that fired since: {listed(alerts)}."] if alerts else []
    rows = [before, after, *told["rows"]]
    most = max(row["share_over"] or 0 for row in rows) or 1
    for row in rows:
        row["bar"] = "█" * round(_BAR * (row["share_over"] or 0) / most)
    return Section("Before and after dynsched", [*sentences, *told["limits"]], _PERIODS, rows)


def _of_side(report: Json, side: Json, prefix: str) -> Iterable[Section]:
    if lacking := list(_lacking(side)):
        yield Section(f"{prefix}Not enough data", lacking)
    yield Section(f"{prefix}Cap", (), _POOLS, side["pools"])
    yield _strips(report, side, prefix)
    if side["regret"] is not None:
        yield from _placed(side["regret"], prefix)
    if side["suggested"] is not None:
        yield from (_suggested(rule, prefix) for rule in side["suggested"]["rules"])


def _rules(title: str, sides: Mapping[str, Json]) -> Section:
    """``sides``: by what stands before the names of their rules."""
    sentences, entries = [], []
    for prefix, side in sides.items():
        total = side["total"]
        kinds = ("hot", "early") if total["early"]["marks"] else ("hot",)
        sums = [total | total[kind] | {"rule": f"all: {kind}"} for kind in kinds]
        entries += [{**one, "rule": prefix + one["rule"]} for one in (*side["rules"], *sums)]
        said = (
            f"At most {counted(total['peak_marked'], 'node')} marked at a time; at the cap "
            f"{_percent(total['time_at_cap'])} of the time"
        )
        if total["writes_per_day"] is not None:
            said += f"; {_cell('writes_per_day', total)} writes to nodes per day"
        sentences.append(f"{prefix}{said}.")
    sentences.append("A flap is a mark within 10m after the one before.")
    if len(sides) > 1:
        entries.sort(key=lambda one: ("op" not in one, one["rule"].partition(": ")[2]))
    return Section(title, sentences, _RULES, entries)


def _lacking(side: Json) -> Iterable[str]:
    for rule in (each for each in side["rules"] if not each["early"]):
        told = f"Rule {rule['rule']}: not enough data:"
        pools = [pool for pool in rule["pools_without_enough_data"] if pool]
        if not rule["coverage"]:
            yield f"{told} nothing is known of any node."
        elif not rule["enough_data"]:
            known = _percent(rule["coverage"])
            yield f"{told} only {known} of the time of all nodes is known."
        if rule["coverage"] and pools:
            those = f"{counted(len(pools), 'pool')}: {listed(pools)}"
            yield f"{told} less than half is known of {those}."


def _strips(report: Json, side: Json, prefix: str) -> Section:
    marked = [node for node in side["nodes"] if node["marks"]]
    if not marked:
        return Section(f"{prefix}Nodes", ["No node was marked."])
    each = _duration(report["steps"] * report["step_seconds"] / len(marked[0]["strip"]))
    told = "the higher, the longer the node was marked"
    sentences = [f"Each character of a strip is {each}: {told}; {_UNKNOWN} where nothing is known."]
    if len(marked) > MAX_ROWS:
        sentences.append(f"{counted(len(marked) - MAX_ROWS, 'more node')} had marks.")
    return Section(f"{prefix}Nodes", sentences, _NODES, marked[:MAX_ROWS])


def _difference(report: Json) -> Section:
    changed = report["difference"]
    differ = f"{counted(len(changed), 'node')} of {report['node_count']} differ."
    told = differ if changed else "No node would be marked at another time."
    return Section("Difference by node", [told], _CHANGED, changed[:MAX_ROWS])


def _placed(placed: Json, prefix: str) -> Iterable[Section]:
    head = (
        f"{counted(placed['pods_placed'], 'pod')} placed, {placed['pods_on_hot']:,} "
        f"({_percent(placed['share_on_hot'], 0)}) onto a node that was over its threshold at that "
        f"moment; for {placed['pods_with_room']:,} of them an unmarked node had room."
    )
    if placed["first_mark_day"] is not None:
        head += f" The first mark of dynsched was on {placed['first_mark_day']}."
    by_day, title = [*columns("DAY day"), *_PLACED], f"{prefix}Pods placed on hot nodes"
    yield Section(title, [head, *placed["limits"]], by_day, placed["days"])
    for kind in ("namespace", "workload"):
        by_kind = [*columns(f"{kind.upper()} {kind}"), *_PLACED]
        if worst := [one for one in placed[f"{kind}s"] if one["pods_on_hot"]][:MAX_ROWS]:
            yield Section(f"{title}, by {kind}", (), by_kind, worst)


def _suggested(rule: Json, prefix: str) -> Section:
    title, events = f"{prefix}Suggested for {rule['rule']}", map(_event, rule["events"])
    if rule["times_full"] < FEWEST:  # too seldom to compare settings: the rule as it is
        own = [one for one in rule["points"] if one["recommended"]]
        return Section(title, [rule["reason"], *events], _TRIED[:-1], own)
    tried = (
        f"{len(rule['points'])} settings were tried on this rule alone; full is "
        f"{format_threshold(rule['full_at_value'])}. Those on the frontier:"
    )
    points = [one for one in rule["points"] if one["recommended"] or one["on_frontier"]]
    return Section(title, [rule["reason"], tried, *events], _TRIED, points, rule["yaml"])


def _event(event: Json) -> str:
    lead = event["median_lead_seconds"]
    after = "" if lead is None else f", {_duration(lead)} after the mark (median)"
    came = f"{event['marked_before']} of {event['count']} came on a marked node"
    return f"{event['event']}: {came}{after}."


def render(found: Iterable[Section], console: Console) -> None:
    for number, section in enumerate(found):
        if number:
            show(console, "", plain(section.title, "bold"))
        show(console, *section.sentences)
        _show_rest(section, console)


def _show_rest(section: Section, console: Console) -> None:
    titles, *rows = section.rows
    table = make_table(titles, rows)
    for column in table.columns:
        column.justify = "left" if column.header in _WORDS else "right"
        # A strip that is folded is none any more.
        column.no_wrap = column.no_wrap or column.header in ("STRIP", "SETTING")
    show(console, table, *(("", *section.code.splitlines()) if section.code else ()))


def markdown(found: Iterable[Section]) -> str:
    lines: list[str] = []
    for number, section in enumerate(found):
        lines.append(f"{'##' if number else '#'} {section.title}")
        lines += map(_escaped, section.sentences)
        if section.entries:
            # The blanks of a strip count.
            rows = [
                [f"`{c.strip('|')}`" if c.startswith("|") else _escaped(c) for c in row]
                for row in section.rows
            ]
            rows.insert(1, ["---" if title in _WORDS else "--:" for title in rows[0]])
            lines.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        if section.code:
            lines.append(f"```yaml\n{section.code.rstrip()}\n```")
    return "\n\n".join(lines)


def _escaped(text: str) -> str:
    """Names and errors were written by others."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))


def page(found: Iterable[Section]) -> str:
    parts = [_HEAD]
    for number, section in enumerate(found):
        level, text = "h2" if number else "h1", StringIO()
        _show_rest(section, Console(file=text))
        parts.append(f"<{level}>{escape(section.title)}</{level}>")
        parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
        parts.append(f"<pre>{escape(text.getvalue())}</pre>")
    return "\n".join([*parts, "</html>"])
