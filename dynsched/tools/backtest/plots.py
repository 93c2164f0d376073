"""The plots of the HTML report, as SVG text. Colours are apart in print and for the colour-blind;
every mark has a title, which a browser shows under the pointer and a screen reader reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

_WIDTH: Final = 900
_LEFT: Final = 190
_ROW: Final = 16
_HOT: Final = "#b3261e"
_EARLY: Final = "#e0a100"
_CALM: Final = "#2f6f9f"
_FAINT: Final = "#eaeef2"
_MAX_NAME: Final = 28


def nodes_plot(data: Mapping[str, Any]) -> str:
    """A row for each node: how much of each stretch of time it was marked, hot and early."""
    nodes: Sequence[Mapping[str, Any]] = data["nodes"]
    if not nodes:
        return ""
    parts = [
        _text(_LEFT, 12, f"{data['since']}"),
        _text(_WIDTH, 12, f"{data['until']}", anchor="end"),
        _legend(_LEFT + 240, [(_HOT, "hot"), (_EARLY, "early only"), (_FAINT, "no mark")]),
    ]
    for number, node in enumerate(nodes):
        top = 20 + number * _ROW
        parts.append(_text(_LEFT - 8, top + 11, _short(node["node"]), anchor="end"))
        parts += _cells(node, top)
    return _svg(24 + len(nodes) * _ROW, parts, "How much of the time each node was marked")


def _cells(node: Mapping[str, Any], top: int) -> Iterable[str]:
    shares, early = node["strip"], node["early_strip"]
    width = (_WIDTH - _LEFT) / max(1, len(shares))
    for place, (all_marks, early_marks) in enumerate(zip(shares, early, strict=True)):
        if all_marks is None:
            continue  # white: nothing is known
        left = _LEFT + place * width
        whole = _ROW - 3
        yield _rect(left, top, width - 0.6, whole, _FAINT)
        high = whole * all_marks
        hot = whole * max(0.0, all_marks - (early_marks or 0.0))
        title = f"{node['node']}: marked {100 * all_marks:.0f} % of this time"
        if high:
            yield _rect(left, top + whole - high, width - 0.6, high, _EARLY, title)
        if hot:
            yield _rect(left, top + whole - hot, width - 0.6, hot, _HOT, title)


def regret_plot(data: Mapping[str, Any]) -> str:
    """By day: the share of placed pods that came onto a node over its threshold."""
    days: Sequence[Mapping[str, Any]] = data["days"]
    if not days:
        return ""
    height, base = 150, 130
    most = max([0.01, *(day["share_on_hot"] or 0.0 for day in days)])
    width = min(80.0, (_WIDTH - 60) / len(days))
    parts = [_text(52, 14, f"{100 * most:.0f} %", anchor="end"), _line(56, base, _WIDTH, base)]
    for number, day in enumerate(days):
        left = 60 + number * width
        high = (base - 16) * (day["share_on_hot"] or 0.0) / most
        title = f"{day['day']}: {day['pods_on_hot']} of {day['pods_placed']} pods"
        parts.append(_rect(left, base - high, width - 4, high, _CALM, title))
        parts.append(_text(left, height - 4, str(day["day"])[5:]))
        if day["day"] == data["first_mark_day"]:
            parts.append(_line(left - 2, 8, left - 2, base, _HOT))
            parts.append(_text(left + 2, 14, "first mark"))
    return _svg(height, parts, "Pods placed onto a node over its threshold, by day")


def frontier_plot(data: Mapping[str, Any]) -> str:
    """Flaps against time marked, one dot for each setting; the recommended one filled."""
    points: Sequence[Mapping[str, Any]] = data["points"]
    if not points:
        return ""
    height, base = 260, 226
    most_x = max([1e-9, *(point["node_time_marked"] for point in points)])
    most_y = max([1, *(point["flaps"] for point in points)])
    parts = [
        _line(60, base, _WIDTH - 10, base),
        _line(60, 16, 60, base),
        _text(54, 22, f"{most_y:,}", anchor="end"),
        _text(54, base, "0", anchor="end"),
        _text(60, 12, "flaps"),
        _text(_WIDTH - 10, base + 16, f"{100 * most_x:.1f} % of node time marked", anchor="end"),
    ]
    for point in points:
        x = 60 + (_WIDTH - 90) * point["node_time_marked"] / most_x
        y = base - (base - 26) * point["flaps"] / most_y
        fill = _HOT if point["recommended"] else _CALM if point["on_frontier"] else "none"
        colour = _HOT if point["recommended"] else _CALM
        title = escape(
            f"threshold {point['threshold']:g}, for {point['for_seconds']:g} s: "
            f"{point['episodes']} episodes, {point['flaps']} flaps"
        )
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" '
            f'stroke-width="1.5"><title>{title}</title></circle>'
        )
    legend = [(_HOT, "recommended"), (_CALM, "on the frontier (ring: not)")]
    parts.append(_legend(120, legend))
    return _svg(height, parts, "Flaps against time marked, by setting")


def _svg(height: float, parts: Iterable[str], title: str) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}" '
        f'role="img" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>\n{inner}\n'
        "</svg>"
    )


def _rect(  # noqa: PLR0917 (as SVG has them)
    x: float, y: float, width: float, height: float, fill: str, title: str = ""
) -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.2, width):.1f}" height="{height:.1f}" '
        f'fill="{fill}">{told}</rect>'
    )


def _line(x: float, y: float, x2: float, y2: float, stroke: str = "#6e7781") -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(x: float, entries: Iterable[tuple[str, str]]) -> str:
    parts = []
    for colour, text in entries:
        parts.append(_rect(x, 3, 10, 10, colour))
        parts.append(_text(x + 14, 12, text))
        x += 24 + 7 * len(text)
    return "".join(parts)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
