"""A real Prometheus with a past: blocks that promtool made of OpenMetrics text."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import programs
from prometheus_support import RealPrometheus

Points = Iterable[tuple[float, float]]
Past = Mapping[str, Iterable[tuple[str, Points]]]
"""By metric: pairs of the labels (``node="a"``) and the points of a series."""


def openmetrics(past: Past) -> Iterable[str]:
    """The lines of the file that promtool reads."""
    for metric, series in past.items():
        yield f"# TYPE {metric} unknown"
        for labels, points in series:
            for at, value in points:
                yield f"{metric}{{{labels}}} {value!r} {at:.3f}"
    yield "# EOF"


def make_blocks(lines: Iterable[str], folder: Path) -> None:
    """Blocks as Prometheus stores them, in ``folder``."""
    text = folder.parent / "past.om"
    folder.mkdir(parents=True, exist_ok=True)
    with text.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
    promtool = programs.need("promtool", "prometheus")
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text.unlink()


def prometheus_of(
    past: Past, folder: Path, options: Sequence[str] = (), *, retention: str = "30d", **more: Any
) -> RealPrometheus:
    """Not started yet. It scrapes nothing: all that it has is the past."""
    make_blocks(openmetrics(past), folder / "data")
    kept = f"--storage.tsdb.retention.time={retention}"
    return RealPrometheus(folder, options=(kept, *options), **more)
