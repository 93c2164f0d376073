"""Pictures for docs/effect.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

_COLOURS = ("#9aa0a6", "#c5221f", "#1a73e8", "#8ab4f8", "#188038", "#f9ab00", "#202124", "#a142f4")


def plot_removed(shares: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Bars by scenario: the share of the avoidable overload that each way removes. ``shares`` by
    way, then by scenario.
    """
    scenarios = list(next(iter(shares.values())))
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(scenarios) + 1.6))
    height = 0.8 / len(shares)
    for number, (way, of_scenario) in enumerate(shares.items()):
        places = [index + height * number for index in range(len(scenarios))]
        values = [100 * of_scenario[scenario] for scenario in scenarios]
        axes.barh(places, values, height, label=way, color=_COLOURS[number % len(_COLOURS)])
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(scenarios))], scenarios)
    axes.invert_yaxis()
    axes.set_xlim(left=-60)
    axes.set_xlabel("removed of the avoidable overload, in per cent (100: as an oracle)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, frameon=False)
    _save(figure, path)


def plot_over_time(shares: Mapping[str, Sequence[float]], path: Path, title: str) -> None:
    """Lines by way: the share of nodes over the hot line, minute by minute."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    for number, (way, series) in enumerate(shares.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot([100 * share for share in series], label=way, color=colour, linewidth=1.4)
    axes.set_xlabel("minutes")
    axes.set_ylabel("nodes over 80 %, in per cent")
    axes.set_ylim(bottom=0)
    axes.text(0.01, 0.93, title, transform=axes.transAxes)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    _save(figure, path)


def plot_how_full(
    curves: Mapping[str, Sequence[tuple[float, float]]], overload: float, path: Path
) -> None:
    """Lines by way: the node-time over the hot line, by the share of all CPU that was used."""
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for number, (way, curve) in enumerate(curves.items()):
        used, hot = ([100 * value for value in values] for values in zip(*curve, strict=True))
        colour = _COLOURS[number % len(_COLOURS)]
        dashes = "-" if number < len(_COLOURS) else "--"
        axes.plot(used, hot, dashes, label=way, color=colour, linewidth=1.4, marker=".")
    axes.axhline(100 * overload, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("CPU used, in per cent of all")
    axes.set_ylabel("node-time over 80 %, in per cent")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """As SVG that is the same whenever it is made of the same figures."""
    with mpl.rc_context({"svg.hashsalt": "dynsched", "svg.fonttype": "none"}):
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
