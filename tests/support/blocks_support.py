"""A real Prometheus with history: promtool makes the blocks from OpenMetrics text."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from programs import need, run
from prometheus_support import RealPrometheus

Points = Iterable[tuple[float, float]]
Past = Mapping[str, Iterable[tuple[str, Points]]]
"""By metric name: pairs of a series' labels (``node="a"``) and its points."""


def prometheus_of(past: Past, folder: Path, **more: Any) -> RealPrometheus:
    """A Prometheus that is not started yet. It scrapes nothing; all its samples are in ``past``."""
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
