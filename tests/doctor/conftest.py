"""A real Prometheus with two days of history, in which every defect of a rule has its metrics."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import programs
import pytest
from prometheus_support import RealPrometheus

_COARSE, _FINE = 120, 15
_DAYS = 2

RECORDING = """\
groups:
  - name: recorded
    rules:
      - record: instance:load:rate2m
        expr: sum by (instance) (rate(cpu_busy_seconds_total[2m])) * 100
"""


def _times(now: int) -> list[int]:
    """Every two minutes, and in the last half hour every 15 s."""
    fine = now - 1800
    return [*range(now - _DAYS * 86400, fine, _COARSE), *range(fine, now + 1, _FINE)]


def _series() -> dict[str, Callable[[int, int], float]]:
    """By metric and labels: the value at so many seconds from the beginning, the second argument
    being how many there are until now.
    """
    found: dict[str, Callable[[int, int], float]] = {}
    for number, busy in enumerate((0.2, 0.5, 0.95)):
        node = f'instance="10.0.0.{number + 1}:9100"'
        found[f"cpu_busy_seconds_total{{{node}}}"] = lambda at, _, busy=busy: busy * at
        found[f"memory_used_ratio{{{node}}}"] = lambda *_, busy=busy: busy * 0.9
        found[f"memory_free_bytes{{{node}}}"] = lambda *_, busy=busy: 8e9 * (1 - busy)
        found[f"requests_open{{{node}}}"] = lambda *_, number=number: float(number)
        found[f"requests_slots{{{node}}}"] = lambda *_, number=number: 10.0 * number
        for cluster in ("blue", "green"):
            found[f'shared_load{{cluster="{cluster}",{node}}}'] = lambda *_: 50.0
        for device in ("sda", "sdb"):
            found[f'disk_busy{{device="{device}",{node}}}'] = lambda *_: 50.0
        found[f"node_pressure_cpu_waiting_seconds_total{{{node}}}"] = lambda at, _: 0.5 * at
    found['container_cpu_cfs_throttled_periods_total{container="app"}'] = lambda at, _: at / 10
    return found


def _rare(now: int) -> Iterator[str]:
    """Scraped once a minute; and gone for a day."""
    for at in range(now - 3600, now + 1, 60):
        yield f'slow_seconds_total{{instance="10.0.0.1:9100",job="slow"}} {at - now + 3600} {at}'


def write_history(path: Path, now: int) -> None:
    """As OpenMetrics, which promtool makes blocks of."""
    began = now - _DAYS * 86400
    with path.open("w") as file:
        for name, value in _series().items():
            for at in _times(now):
                file.write(f"{name} {value(at - began, now - at):.3f} {at}\n")
        for line in _rare(now):
            file.write(line + "\n")
        for at in range(began, now - 86400, _COARSE):
            file.write(f'vanished_load{{instance="10.0.0.1:9100"}} 1 {at}\n')
        file.write("# EOF\n")


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """It scrapes nothing: all that it knows is history, up to now."""
    folder = tmp_path_factory.mktemp("history")
    write_history(folder / "history.om", int(time.time()))
    (folder / "data").mkdir()
    promtool = programs.need("promtool", "prometheus")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "history.om", "data"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "recording.yaml").write_text(RECORDING)
    prometheus = RealPrometheus(folder, options=["--storage.tsdb.retention.time=3d"])
    prometheus._config["rule_files"] = [str(folder / "recording.yaml")]
    with prometheus:
        yield prometheus
