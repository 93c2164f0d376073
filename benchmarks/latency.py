"""How long after a node's sample crosses its threshold the mark comes and goes.

    python benchmarks/latency.py [--trials 5] [--interval 2] [--for 4]

A real Prometheus scrapes every second; the API server is the real one where KUBEBUILDER_ASSETS
names it, else the simulator's. Counted from the time of the first sample over the threshold, as
Prometheus has it; the target is `for` + one interval + 1 s, and the same for the release.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from cluster import Cluster, EnvtestCluster, SimCluster
from envtest import Envtest, assets
from operator_support import Operator, until, write_rules
from prometheus_support import Exporter, RealPrometheus

from dynsched_sim.examples import make_node

HOT, COOL = 95, 10


def first_sample(prometheus: RealPrometheus, value: float, since: float) -> float:
    """When Prometheus first had this value after ``since``."""
    found = prometheus.result("load[60s]")[0]["values"]
    return min(float(at) for at, text in found if float(text) == value and float(at) > since)


async def trial(
    cluster: Cluster, prometheus: RealPrometheus, exporter: Exporter, value: float
) -> float:
    """Set the load; seconds from its first sample until the label has followed."""
    await asyncio.sleep(random.uniform(2.0, 4.0))
    changed = time.time()
    exporter.text = f'load{{node="a"}} {value}\n'
    wanted = "presure" if value == HOT else None

    async def followed() -> bool:
        node = await cluster.get_node("a")
        return node["metadata"]["labels"].get("status") == wanted

    await until(followed, "the label follows", seconds=60)
    done = time.time()
    return done - first_sample(prometheus, value, changed - 1)


async def measure(options: argparse.Namespace, cluster: Cluster, folder: Path) -> list[list[float]]:
    rule = {
        "name": "load",
        "expr": "load",
        "threshold": 80,
        "for": f"{options.hold}s",
        "keep_firing_for": f"{options.hold}s",
    }
    rules = write_rules(folder, {"guard": {"max_marked": 1, "max_releases": 1}, "rules": [rule]})
    await cluster.create_node(make_node("a", 0))
    with Exporter(f'load{{node="a"}} {COOL}\n') as exporter:
        scrape = {
            "job_name": "nodes",
            "honor_labels": True,
            "static_configs": [{"targets": [exporter.target]}],
        }
        with RealPrometheus(folder / "prometheus", [scrape]) as prometheus:
            prometheus.wait_for("load")
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--prom", prometheus.url]
            flags += ["-r", str(rules), "--interval", str(options.interval)]
            async with Operator(folder, "run", *flags) as operator:
                await operator.until_ready()
                rows = []
                for _ in range(options.trials):
                    marking = await trial(cluster, prometheus, exporter, HOT)
                    rows.append([marking, await trial(cluster, prometheus, exporter, COOL)])
                return rows


async def run(options: argparse.Namespace, folder: Path) -> tuple[str, list[list[float]]]:
    found = assets()
    if found is None:
        async with SimCluster(folder) as cluster:
            return "the simulator's API server", await measure(options, cluster, folder)
    servers = Envtest(found, folder / "envtest")
    try:
        servers.start()
        async with EnvtestCluster(servers, folder) as cluster:
            return "a real API server", await measure(options, cluster, folder)
    finally:
        servers.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--for", dest="hold", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "envtest").mkdir()
        where, rows = asyncio.run(run(options, Path(folder)))
    limit = options.hold + options.interval + 1
    title = f"for {options.hold} s, interval {options.interval:g} s, {where}; target {limit:g} s"
    table = Table("trial", "marked after", "released after", title=title)
    for number, (marking, release) in enumerate(rows, 1):
        table.add_row(str(number), f"{marking:.2f} s", f"{release:.2f} s")
    table.add_row("worst", f"{max(m for m, _ in rows):.2f} s", f"{max(r for _, r in rows):.2f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
