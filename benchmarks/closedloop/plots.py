"""Pictures for docs/effect.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

_COLOURS = ("#b06000", "#a142f4", "#00838f", "#d01884", "#795548", "#5f9bea")
_OF_WAY = {
    "default scheduler": "#202124",
    "oracle": "#80868b",
    "order": "#0b3fa8",
    "extender": "#188038",
    "expected load, taint": "#4d8df0",
    "hot nodes, taint": "#a8c7fa",
}


def _colour(way: str, ways: Iterable[str]) -> str:
    """The colour of a way: fixed for well-known ways, otherwise the next free one."""
    if way in _OF_WAY:
        return _OF_WAY[way]
    others = [each for each in ways if each not in _OF_WAY]
    return _COLOURS[others.index(way) % len(_COLOURS)]


def plot_removed(shares: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Bars by scenario: the share of the avoidable overload that each way removes.

    ``shares``: by way, then by scenario.
    """
    scenarios = list(next(iter(shares.values())))
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(scenarios) + 1.6))
    height = 0.8 / len(shares)
    for number, (way, of_scenario) in enumerate(shares.items()):
        places = [index + height * number for index in range(len(scenarios))]
        values = [100 * of_scenario[scenario] for scenario in scenarios]
        axes.barh(places, values, height, label=way, color=_colour(way, shares))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(scenarios))], scenarios)
    axes.invert_yaxis()
    axes.set_xlim(left=-60)
    axes.set_xlabel("removed of the avoidable overload, in per cent (100: as an oracle)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, frameon=False)
    _save(figure, path)


def plot_over_time(shares: Mapping[str, Sequence[float]], path: Path, title: str) -> None:
    """Lines by way: the share of hot nodes, given per second, averaged per minute."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    for way, series in shares.items():
        colour = _colour(way, shares)
        minutes = [100 * mean(series[at : at + 60]) for at in range(0, len(series), 60)]
        axes.plot(minutes, label=way, color=colour, linewidth=1.4)
    axes.set_xlabel("minutes")
    axes.set_ylabel("nodes over 80 %, in per cent")
    axes.set_ylim(bottom=0)
    axes.text(0.01, 0.93, title, transform=axes.transAxes)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    _save(figure, path)


def plot_how_full(
    curves: Mapping[str, Sequence[tuple[float, float]]], overload: float, path: Path
) -> None:
    """Lines by way: node-time above the hot line against the share of all CPU used.

    The order has the thickest line. The oracle is dashed, because nobody can have it.
    """
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for way, curve in curves.items():
        used, hot = ([100 * value for value in values] for values in zip(*curve, strict=True))
        first, style = way == "order", "--" if way == "oracle" else "-"
        line = {"color": _colour(way, curves), "linewidth": 3.2 if first else 1.4}
        axes.plot(used, hot, style, label=way, marker=".", zorder=3 if first else 2, **line)
    axes.axhline(100 * overload, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("CPU used, in per cent of all")
    axes.set_ylabel("node-time over 80 %, in per cent")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write an SVG that is identical for identical figures."""
    with mpl.rc_context({"svg.hashsalt": "dynsched", "svg.fonttype": "none"}):
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
