"""A report for people: on the terminal, as Markdown, and as one HTML file without network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from io import StringIO
from typing import Any, Final

from rich.console import Console

from dynsched.engine.wording import counted, listed
from dynsched.tools.backtest.summary import ENOUGH
from dynsched.util.defaults import MAX_ROWS
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold
from dynsched.util.tables import make_table, named, plain, show

Json = Mapping[str, Any]
Column = tuple[str, Callable[[Json], str]]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "·"

_WORDS: Final = frozenset(
    {"RULE", "SETTING", "POOL", "NODE", "STRIP", "DAY", "NAMESPACE", "WORKLOAD", "FOR"}
)
"""Columns of words; the others hold numbers, and stand at the right."""
_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>dynsched backtest</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; }
pre { overflow-x: auto; }
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
    def titles(self) -> list[str]:
        return [title for title, _ in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        return [[text(entry) for _, text in self.columns] for entry in self.entries]


def sections(report: Json) -> list[Section]:
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


def _duration(seconds: float | None) -> str:
    """Of what is longer than a day without seconds."""
    if seconds is None:
        return "-"
    grain = 3600 if seconds >= 7 * 86400 else 60 if seconds >= 86400 / 4 else 1
    return format_duration(round(seconds / grain) * grain)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _strip(shares: Iterable[float | None]) -> str:
    cells = (
        _UNKNOWN if part is None else _BLOCKS[max(1, min(8, round(part * 8))) if part > 0 else 0]
        for part in shares
    )
    return f"|{''.join(cells)}|"


def _of(title: str, key: str, form: Callable[[Any], str] = _number) -> Column:
    return title, lambda entry: form(entry[key])


def _setting(rule: Json) -> str:
    if "op" not in rule:
        return ""
    text = f"{rule['op']} {format_threshold(rule['threshold'])}"
    if rule["for_seconds"]:
        text += f" for {format_duration(rule['for_seconds'])}"
    return text + (" above the early line" if rule["early"] else "")


_RULES: Final[Sequence[Column]] = [
    ("RULE", named),
    ("SETTING", _setting),
    _of("MARKS/NODE/DAY", "marks_per_node_day"),
    _of("MARKS", "marks"),
    _of("MEDIAN", "median_mark_seconds", _duration),
    _of("LONGEST", "longest_mark_seconds", _duration),
    _of("FLAPS", "flaps"),
    _of("TIME MARKED", "node_time_marked", _percent),
    _of("COVERAGE", "coverage", _percent),
]
_POOLS: Final[Sequence[Column]] = [
    _of("POOL", "pool", lambda name: name or "(all nodes)"),
    _of("NODES", "nodes"),
    _of("ELIGIBLE", "eligible"),
    _of("MAX_MARKED", "max_marked", str),
    _of("PEAK MARKED", "peak_marked"),
    _of("CAP THEN", "cap_at_peak"),
    _of("TIME AT CAP", "time_at_cap", _percent),
    _of("COVERAGE", "coverage", _percent),
]
_NODES: Final[Sequence[Column]] = [
    _of("NODE", "node", str),
    _of("MARKS", "marks"),
    _of("TIME MARKED", "node_time_marked", _percent),
    _of("COVERAGE", "coverage", _percent),
    _of("STRIP", "strip", _strip),
]
_CHANGED: Final[Sequence[Column]] = [
    _of("NODE", "node", str),
    _of("MARKS BEFORE", "marks_before"),
    _of("AFTER", "marks_after"),
    _of("TIME MARKED BEFORE", "marked_before", _percent),
    _of("AFTER", "marked_after", _percent),
    _of("DIFFERENCE", "difference", lambda share: f"{100 * share:+.1f} points"),
]
_PLACED: Final[Sequence[Column]] = [
    _of("PODS PLACED", "pods_placed"),
    _of("ON HOT", "pods_on_hot"),
    _of("SHARE", "share_on_hot", _percent),
    _of("ROOM ELSEWHERE", "pods_with_room"),
]
_TRIED: Final[Sequence[Column]] = [
    _of("THRESHOLD", "threshold", format_threshold),
    _of("CLEAR", "clear_threshold", format_threshold),
    _of("FOR", "for_seconds", format_duration),
    _of("EPISODES", "episodes"),
    _of("FLAPS", "flaps"),
    _of("TIME MARKED", "node_time_marked", _percent),
    _of("WRITES/DAY", "writes_per_day"),
    _of("AT CAP", "time_at_cap", _percent),
    _of("WARNED", "warned", partial(_percent, digits=0)),
    _of("EARLY BY", "early_warning_seconds", _duration),
    _of("", "recommended", lambda is_best: "recommended" if is_best else ""),
]


def _heading(report: Json) -> Section:
    nodes = counted(report["node_count"], "node")
    origin = "by their series" if report["nodes_from"] == "series" else "of the cluster"
    asked = report["queries"]
    summary = (
        f"From {report['since']} to {report['until']}, every "
        f"{format_duration(report['step_seconds'])}: {nodes} {origin}, "
        f"{report['samples']:,} samples in {asked} {'query' if asked == 1 else 'queries'}."
    )
    return Section("Backtest", [summary, *report["notes"]])


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
        sums = [
            {"rule": f"all: {kind}", "coverage": total["coverage"], **total[kind]}
            for kind in ("hot", "early")
            if kind == "hot" or total[kind]["marks"]
        ]
        entries += [{**one, "rule": prefix + one["rule"]} for one in (*side["rules"], *sums)]
        sentences.append(
            f"{prefix}{total['writes_per_day']:,.1f} writes to nodes per day; at most "
            f"{counted(total['peak_marked'], 'node')} marked at a time; at the cap "
            f"{_percent(total['time_at_cap'])} of the time."
        )
    sentences.append("A flap is a mark within 10m after the one before.")
    if len(sides) > 1:
        entries.sort(key=lambda one: ("op" not in one, one["rule"].partition(": ")[2]))
    return Section(title, sentences, _RULES, entries)


def _lacking(side: Json) -> Iterable[str]:
    for rule in side["rules"]:
        if rule["early"]:
            continue
        told = f"Rule {rule['rule']}: not enough data:"
        if not rule["coverage"]:
            yield f"{told} nothing is known of any node."
            continue
        if rule["coverage"] < ENOUGH:
            known = _percent(rule["coverage"])
            yield f"{told} only {known} of the time of all nodes is known."
        elif not rule["enough_data"]:
            yield f"{told} there are nodes in less than half of the time."
        pools = [pool for pool in rule["pools_without_enough_data"] if pool]
        if pools:
            those = f"{counted(len(pools), 'pool')}: {listed(pools)}"
            yield f"{told} less than half is known of {those}."


def _strips(report: Json, side: Json, prefix: str) -> Section:
    marked = [node for node in side["nodes"] if node["marks"]]
    if not marked:
        return Section(f"{prefix}Nodes", ["No node was marked."])
    each = _duration(report["steps"] * report["step_seconds"] / len(marked[0]["strip"]))
    explained = (
        f"Each character of a strip is {each}: the higher, the longer the node was marked; "
        f"{_UNKNOWN} where nothing is known."
    )
    sentences = [explained]
    if len(marked) > MAX_ROWS:
        sentences.append(f"{counted(len(marked) - MAX_ROWS, 'more node')} had marks.")
    return Section(f"{prefix}Nodes", sentences, _NODES, marked[:MAX_ROWS])


def _difference(report: Json) -> Section:
    changed = report["difference"]
    told = "No node would be marked at another time."
    if changed:
        told = f"{counted(len(changed), 'node')} of {report['node_count']} differ."
    return Section("Difference by node", [told], _CHANGED, changed[:MAX_ROWS])


def _placed(placed: Json, prefix: str) -> Iterable[Section]:
    head = (
        f"{counted(placed['pods_placed'], 'pod')} placed, {placed['pods_on_hot']:,} "
        f"({_percent(placed['share_on_hot'], 0)}) onto a node that was over its threshold at that "
        f"moment; for {placed['pods_with_room']:,} of them an unmarked node had room."
    )
    if placed["first_mark_day"] is not None:
        head += f" The first mark of dynsched was on {placed['first_mark_day']}."
    by_day, title = (_of("DAY", "day", str), *_PLACED), f"{prefix}Pods placed on hot nodes"
    yield Section(title, [head, *placed["limits"]], by_day, placed["days"])
    for kind in ("namespace", "workload"):
        worst = [one for one in placed[f"{kind}s"] if one["pods_on_hot"]][:MAX_ROWS]
        if worst:
            columns = (_of(kind.upper(), kind, str), *_PLACED)
            yield Section(f"{title}, by {kind}", (), columns, worst)


def _suggested(rule: Json, prefix: str) -> Section:
    sentences = [rule["reason"]]
    if rule["points"]:
        sentences.append(
            f"{len(rule['points'])} settings were tried on this rule alone; full is "
            f"{format_threshold(rule['full_at_value'])}. Those on the frontier:"
        )
    sentences += map(_event, rule["events"])
    points = [one for one in rule["points"] if one["on_frontier"] or one["recommended"]]
    title = f"{prefix}Suggested for {rule['rule']}"
    return Section(title, sentences, _TRIED, points, rule["yaml"] or "")


def _event(event: Json) -> str:
    text = f"{event['event']}: {event['marked_before']} of {event['count']} came on a marked node"
    if event["median_lead_seconds"] is None:
        return f"{text}."
    return f"{text}, {_duration(event['median_lead_seconds'])} after the mark (median)."


def render(found: Iterable[Section], console: Console) -> None:
    for number, section in enumerate(found):
        if number:
            show(console, plain(""))
            show(console, plain(section.title, "bold"))
        for sentence in section.sentences:
            show(console, plain(sentence))
        _show_rest(section, console)


def _show_rest(section: Section, console: Console) -> None:
    if section.entries:
        table = make_table(*section.titles)
        for column in table.columns:
            column.justify = "left" if column.header in _WORDS else "right"
            # A strip that is folded is none any more.
            column.no_wrap = column.no_wrap or column.header in ("STRIP", "SETTING")
        for row in section.rows:
            table.add_row(*map(plain, row))
        show(console, table)
    for line in ("", *section.code.splitlines()) if section.code else ():
        show(console, plain(line))


def markdown(found: Iterable[Section]) -> str:
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
    parts = [_HEAD]
    for number, section in enumerate(found):
        level, text = "h2" if number else "h1", StringIO()
        _show_rest(section, Console(file=text))
        parts.append(f"<{level}>{escape(section.title)}</{level}>")
        parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
        parts.append(f"<pre>{escape(text.getvalue())}</pre>")
    return "\n".join([*parts, "</html>"])
