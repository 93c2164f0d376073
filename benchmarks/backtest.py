"""How long `dynsched backtest` takes, and how much memory: on a real Prometheus whose blocks
promtool makes of OpenMetrics text.

    python benchmarks/backtest.py --folder /tmp/backtest             # 7 days, 200 nodes, 3 rules
    python benchmarks/backtest.py --nodes 5000 --days 1 --step 60    # the blocks take minutes

With a folder that is there already, its blocks are used again. The command runs twice: with an
empty cache, and with a full one, when Prometheus is not asked for the history any more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from prometheus_support import RealPrometheus

RULES = """\
guard: {max_marked: 50%}
rules:
  - {name: cpu, expr: bench_cpu, threshold: 80, clear_threshold: 70, for: 1m, keep_firing_for: 2m}
  - {name: mem, expr: bench_mem, threshold: 85, clear_threshold: 80, for: 30s, keep_firing_for: 2m}
  - {name: io, expr: bench_io, threshold: 80}
"""
METRICS = ("bench_cpu", "bench_mem", "bench_io")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: seconds, seconds of the processor, MiB at the most."""

    name: str
    wall: float
    cpu: float
    rss: float


def lines(nodes: int, days: float, step: int, end: int) -> Iterator[str]:
    """Loads that rise and fall by day, with noise that stays for a while."""
    count = int(days * 86_400 / step) + 1
    times = end - step * np.arange(count - 1, -1, -1)
    stamps = [f" {moment}\n" for moment in times.tolist()]
    random = np.random.default_rng(3)
    for metric in METRICS:
        yield f"# TYPE {metric} gauge\n"
        for node in range(nodes):
            base, phase = random.uniform(30, 65), random.uniform(0, 6.3)
            day = 15 * np.sin(times / 86_400 * 6.283 + phase)
            noise = np.convolve(random.normal(0, 12, count + 9), np.ones(10) / 3, "valid")
            values = np.clip(base + day + noise, 0, 100).round(2).tolist()
            head = f'{metric}{{node="n{node:04}"}} '
            yield "".join(f"{head}{v}{at}" for v, at in zip(values, stamps, strict=True))
    yield "# EOF\n"


def make_blocks(folder: Path, content: Iterable[str]) -> None:
    text = folder / "past.om"
    with text.open("w") as file:
        file.writelines(content)
    # By default a block is two hours, and promtool reads the whole text anew for each.
    blocks = ["create-blocks-from", "--max-block-duration=168h", "openmetrics"]
    subprocess.run(
        ["promtool", "tsdb", *blocks, text, folder / "data"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    text.unlink()


def run(name: str, *words: str) -> tuple[Cost, dict[str, object]]:
    """`dynsched backtest` as a process of its own; its cost and its JSON."""
    with tempfile.TemporaryFile() as out:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "dynsched", "backtest", "-o", "json", *words], stdout=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{name}: exit code {process.returncode}")
        out.seek(0)
        report = json.load(out)
    return Cost(name, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), report


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--step", type=int, default=30)
    parser.add_argument("--folder", type=Path)
    told = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as other:
        folder = told.folder or Path(other)
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / "end"
        if not note.exists():
            end = int(time.time()) // 3600 * 3600
            make_blocks(folder, lines(told.nodes, told.days, told.step, end))
            note.write_text(str(end))
        measure(folder, told, int(note.read_text()))


def measure(folder: Path, told: argparse.Namespace, end: int) -> None:
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with (
        RealPrometheus(folder, options=["--storage.tsdb.retention.time=60d"]) as prometheus,
        tempfile.TemporaryDirectory() as cache,
    ):
        common = [
            *("--prom", prometheus.url, "-r", str(rules), "--nodes-from-series", "--cache", cache),
            *("--since", f"{int(told.days * 24)}h", "--until", str(end), "--step", f"{told.step}s"),
        ]
        cold, report = run("history asked for", *common)
        warm, _ = run("history in the cache", *common)
    print(f"{report['samples']:,} samples, {report['steps']:,} steps, {report['queries']} queries")
    print("| run | wall s | processor s | most MiB |\n|---|--:|--:|--:|")
    for cost in (cold, warm):
        print(f"| {cost.name} | {cost.wall:.1f} | {cost.cpu:.1f} | {cost.rss:.0f} |")


if __name__ == "__main__":
    main()
