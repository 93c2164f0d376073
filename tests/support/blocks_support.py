"""A real Prometheus with a past: blocks that promtool made of OpenMetrics text."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from programs import need, run
from prometheus_support import RealPrometheus

Points = Iterable[tuple[float, float]]
Past = Mapping[str, Iterable[tuple[str, Points]]]
"""By metric: pairs of the labels (``node="a"``) and the points of a series."""


def prometheus_of(past: Past, folder: Path, **more: Any) -> RealPrometheus:
    """Not started yet. It scrapes nothing: all that it has is the past."""
    text = folder / "past.om"
    (folder / "data").mkdir()
    with text.open("w") as file:
        for metric, series in past.items():
            file.write(f"# TYPE {metric} unknown\n")
            for labels, points in series:
                file.writelines(
                    f"{metric}{{{labels}}} {value!r} {at:.3f}\n" for at, value in points
                )
        file.write("# EOF\n")
    promtool = need("promtool", "prometheus")
    done = run(promtool, "tsdb", "create-blocks-from", "openmetrics", text, folder / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    text.unlink()
    return RealPrometheus(folder, options=("--storage.tsdb.retention.time=30d",), **more)
