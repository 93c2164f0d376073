"""A report as sections for people: a title, sentences, a table. Terminal, Markdown and HTML show
the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dynsched.engine.wording import counted, listed
from dynsched.tools.backtest.summary import ENOUGH
from dynsched.util.defaults import MAX_ROWS
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold

Json = Mapping[str, Any]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
UNKNOWN: Final = "·"
"""In a strip: nothing is known of this time."""


@dataclass(frozen=True, slots=True)
class Section:
    """``rows`` have as many cells as there are ``columns``; there may be none of both."""

    title: str
    sentences: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    code: str = ""
    """Text to be copied as it is, below the table."""
    kind: str = ""
    """What the HTML report draws a plot of: ``nodes``, ``regret`` or ``frontier``."""
    data: Json = field(default_factory=dict)
    """What it is drawn of."""


def sections(report: Json) -> list[Section]:
    """Of one replay, or of two side by side."""
    if "before" not in report:
        return [_heading(report), *_of_side(report, report, "")]
    return [
        _heading(report),
        *_compared(report),
        *_of_side(report, report["before"], "Before: "),
        *_of_side(report, report["after"], "After: "),
    ]


def percent(part: float | None, digits: int = 1) -> str:
    """``12.3 %``; ``-`` where it is not known. What is not quite 0 or 100 does not look like it."""
    if part is None:
        return "-"
    text = f"{100 * part:.{digits}f} %"
    if part and float(text.partition(" ")[0]) == 0:
        return f"<{10**-digits:g} %"
    return text


def duration(seconds: float | None) -> str:
    """``1h30m``; ``-`` where there is none. Of what is longer than a day without seconds."""
    if seconds is None:
        return "-"
    grain = 3600 if seconds >= 7 * 86400 else 60 if seconds >= 86400 / 4 else 1
    return format_duration(round(seconds / grain) * grain)


def strip(shares: Iterable[float | None]) -> str:
    """A line of block characters: how much of each stretch of time a node was marked."""
    return "".join(
        UNKNOWN
        if part is None
        else _BLOCKS[0]
        if part <= 0
        else _BLOCKS[max(1, min(8, round(part * 8)))]
        for part in shares
    )


def _heading(report: Json) -> Section:
    nodes = counted(report["node_count"], "node")
    origin = "by their series" if report["nodes_from"] == "series" else "of the cluster"
    return Section(
        "Backtest",
        [
            f"From {report['since']} to {report['until']}, every "
            f"{format_duration(report['step_seconds'])}: {nodes} {origin}, "
            f"{report['samples']:,} samples in {counted(report['queries'], 'query')}.".replace(
                "querys", "queries"
            ),
            *report["notes"],
        ],
    )


def _of_side(report: Json, side: Json, prefix: str) -> list[Section]:
    found = [_rules(side, prefix), _pools(side, prefix), _strips(report, side, prefix)]
    lacking = _lacking(side)
    if lacking:
        found.insert(1, Section(f"{prefix}Not enough data", lacking))
    if side["regret"] is not None:
        found += _regret(side["regret"], prefix)
    if side["suggested"] is not None:
        found += _suggested(side["suggested"], prefix)
    return found


def _rules(side: Json, prefix: str) -> Section:
    total = side["total"]
    rows = [
        [
            f"{rule['rule']} (shadow)" if rule["shadow"] else rule["rule"],
            _setting(rule),
            _number(rule["marks_per_node_day"]),
            _number(rule["marks"]),
            duration(rule["median_mark_seconds"]),
            duration(rule["longest_mark_seconds"]),
            _number(rule["flaps"]),
            percent(rule["node_time_marked"]),
            percent(rule["coverage"]),
        ]
        for rule in side["rules"]
    ]
    for name, part in (("all: hot", total["hot"]), ("all: early", total["early"])):
        if name == "all: hot" or part["marks"]:
            rows.append(
                [
                    name,
                    "",
                    _number(part["marks_per_node_day"]),
                    _number(part["marks"]),
                    duration(part["median_mark_seconds"]),
                    duration(part["longest_mark_seconds"]),
                    _number(part["flaps"]),
                    percent(part["node_time_marked"]),
                    percent(total["coverage"]) if name == "all: hot" else "",
                ]
            )
    return Section(
        f"{prefix}Rules",
        [
            (
                f"{total['writes_per_day']:,.1f} writes to nodes per day; at most "
                f"{counted(total['peak_marked'], 'node')} marked at a time; at the cap "
                f"{percent(total['time_at_cap'])} of the time. A flap is a mark within 10m after "
                "the one before."
            )
        ],
        [
            *("RULE", "SETTING", "MARKS/NODE/DAY", "MARKS", "MEDIAN", "LONGEST", "FLAPS"),
            *("TIME MARKED", "COVERAGE"),
        ],
        rows,
    )


def _setting(rule: Json) -> str:
    text = f"{rule['op']} {format_threshold(rule['threshold'])}"
    if rule["for_seconds"]:
        text += f" for {format_duration(rule['for_seconds'])}"
    return text + (" above the early line" if rule["early"] else "")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _lacking(side: Json) -> list[str]:
    found = []
    for rule in side["rules"]:
        if rule["early"]:
            continue
        told = f"Rule {rule['rule']}: not enough data:"
        if not rule["coverage"]:
            found.append(f"{told} nothing is known of any node.")
            continue
        if rule["coverage"] < ENOUGH:
            known = percent(rule["coverage"])
            found.append(f"{told} only {known} of the time of all nodes is known.")
        elif not rule["enough_data"]:
            found.append(f"{told} there are nodes in less than half of the time.")
        pools = [pool for pool in rule["pools_without_enough_data"] if pool]
        if pools:
            those = f"{counted(len(pools), 'pool')}: {listed(pools)}"
            found.append(f"{told} less than half is known of {those}.")
    return found


def _pools(side: Json, prefix: str) -> Section:
    return Section(
        f"{prefix}Cap",
        (),
        [
            *("POOL", "NODES", "ELIGIBLE", "MAX_MARKED", "PEAK MARKED", "CAP THEN", "TIME AT CAP"),
            "COVERAGE",
        ],
        [
            [
                pool["pool"] or "(all nodes)",
                _number(pool["nodes"]),
                _number(pool["eligible"]),
                pool["max_marked"],
                _number(pool["peak_marked"]),
                _number(pool["cap_at_peak"]),
                percent(pool["time_at_cap"]),
                percent(pool["coverage"]),
            ]
            for pool in side["pools"]
        ],
    )


def _strips(report: Json, side: Json, prefix: str) -> Section:
    nodes = side["nodes"]
    shown = [node for node in nodes if node["marks"]][:MAX_ROWS]
    rest = sum(bool(node["marks"]) for node in nodes) - len(shown)
    cells = max((len(node["strip"]) for node in nodes), default=0)
    sentences = ["No node was marked."] if not shown else []
    if shown:
        each = duration(report["steps"] * report["step_seconds"] / max(1, cells))
        explained = (
            f"Each character of a strip is {each}: the higher, the longer the node was marked; "
            f"{UNKNOWN} where nothing is known."
        )
        sentences = [explained]
    if rest:
        sentences.append(f"{counted(rest, 'more node')} had marks.")
    return Section(
        f"{prefix}Nodes",
        sentences,
        ["NODE", "MARKS", "TIME MARKED", "COVERAGE", "STRIP"] if shown else (),
        [
            [
                node["node"],
                _number(node["marks"]),
                percent(node["node_time_marked"]),
                percent(node["coverage"]),
                f"|{strip(node['strip'])}|",
            ]
            for node in shown
        ],
        kind="nodes",
        data={"nodes": shown, "since": report["since"], "until": report["until"]},
    )


def _compared(report: Json) -> list[Section]:
    before, after = report["before"], report["after"]
    names = dict.fromkeys(rule["rule"] for side in (before, after) for rule in side["rules"])
    by_name = [{rule["rule"]: rule for rule in side["rules"]} for side in (before, after)]
    rows = []
    for name in names:
        old, new = (side.get(name) for side in by_name)
        rows.append([name, *_beside(old, new)])
    rows.append(["all", *_beside(before["total"], after["total"])])
    changed = report["difference"]
    shown = changed[:MAX_ROWS]
    in_short = (
        f"Writes to nodes per day: {before['total']['writes_per_day']:,.1f} before, "
        f"{after['total']['writes_per_day']:,.1f} after. At the cap: "
        f"{percent(before['total']['time_at_cap'])} of the time before, "
        f"{percent(after['total']['time_at_cap'])} after."
    )
    nodes = (
        [f"{counted(len(changed), 'node')} of {report['node_count']} differ."]
        if changed
        else ["No node would be marked at another time."]
    )
    return [
        Section(
            "Before and after",
            [in_short],
            [
                *("RULE", "MARKS BEFORE", "AFTER", "FLAPS BEFORE", "AFTER"),
                *("TIME MARKED BEFORE", "AFTER"),
            ],
            rows,
        ),
        Section(
            "Difference by node",
            nodes,
            ["NODE", "MARKS BEFORE", "AFTER", "TIME MARKED BEFORE", "AFTER", "DIFFERENCE"]
            if shown
            else (),
            [
                [
                    one["node"],
                    _number(one["marks_before"]),
                    _number(one["marks_after"]),
                    percent(one["marked_before"]),
                    percent(one["marked_after"]),
                    f"{100 * one['difference']:+.1f} points",
                ]
                for one in shown
            ],
        ),
    ]


def _regret(regret: Json, prefix: str) -> list[Section]:
    placed, hot = regret["pods_placed"], regret["pods_on_hot"]
    head = (
        f"{counted(placed, 'pod')} placed, {hot:,} ({percent(regret['share_on_hot'], 0)}) onto a "
        "node that was over its threshold at that moment; for "
        f"{regret['pods_with_room']:,} of them an unmarked node had room."
    )
    if regret["first_mark_day"] is not None:
        head += f" The first mark of dynsched was on {regret['first_mark_day']}."
    data = {"days": regret["days"], "first_mark_day": regret["first_mark_day"]}
    found = [
        Section(
            f"{prefix}Regret",
            [head, *regret["limits"]],
            *_placed(regret["days"], "day"),
            kind="regret",
            data=data,
        )
    ]
    for kind in ("namespace", "workload"):
        worst = [one for one in regret[f"{kind}s"] if one["pods_on_hot"]][:MAX_ROWS]
        if worst:
            found.append(Section(f"{prefix}Regret by {kind}", (), *_placed(worst, kind)))
    return found


def _suggested(suggested: Json, prefix: str) -> list[Section]:
    found = []
    for rule in suggested["rules"]:
        sentences = [rule["reason"]]
        if rule["points"]:
            sentences.append(
                f"{len(rule['points'])} settings were tried on this rule alone; full is "
                f"{format_threshold(rule['full_at_value'])}. Those on the frontier:"
            )
        sentences += [_event(event) for event in rule["events"]]
        points = [one for one in rule["points"] if one["on_frontier"] or one["recommended"]]
        found.append(
            Section(
                f"{prefix}Suggested for {rule['rule']}",
                sentences,
                [
                    *("THRESHOLD", "CLEAR", "FOR", "EPISODES", "FLAPS", "TIME MARKED"),
                    *("WRITES/DAY", "AT CAP", "WARNED", "EARLY BY", ""),
                ]
                if points
                else (),
                [_tried(one) for one in points],
                code=rule["yaml"] or "",
                kind="frontier",
                data=rule,
            )
        )
    return found


def _tried(one: Json) -> list[str]:
    return [
        format_threshold(one["threshold"]),
        format_threshold(one["clear_threshold"]),
        format_duration(one["for_seconds"]),
        _number(one["episodes"]),
        _number(one["flaps"]),
        percent(one["node_time_marked"]),
        _number(one["writes_per_day"]),
        percent(one["time_at_cap"]),
        percent(one["warned"], 0),
        duration(one["early_warning_seconds"]),
        "recommended" if one["recommended"] else "",
    ]


def _event(event: Json) -> str:
    text = f"{event['event']}: {event['marked_before']} of {event['count']} came on a marked node"
    if event["median_lead_seconds"] is None:
        return f"{text}."
    return f"{text}, {duration(event['median_lead_seconds'])} after the mark (median)."


def _placed(entries: Sequence[Json], kind: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    return (kind.upper(), "PODS PLACED", "ON HOT", "SHARE", "ROOM ELSEWHERE"), [
        [
            one[kind],
            _number(one["pods_placed"]),
            _number(one["pods_on_hot"]),
            percent(one["share_on_hot"]),
            _number(one["pods_with_room"]),
        ]
        for one in entries
    ]


def _beside(old: Json | None, new: Json | None) -> list[str]:
    cells = []
    for name, shown in (("marks", _number), ("flaps", _number), ("node_time_marked", percent)):
        cells += ["-" if one is None else shown(one[name]) for one in (old, new)]
    return cells
