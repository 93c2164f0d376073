"""dynsched on a large cluster: start, memory, ticks, stalls, and a thousand marks.

    python benchmarks/scale.py [--nodes 5000] [--seconds 60] [--rules 3] [--interval 10]

It measures a real `dynsched run`. The API server is the simulator's, and a fake Prometheus answers
from memory with slightly different values each time. All three are separate processes. The rows:

- *start to ready, the servers' taken off*: the wall time, less the CPU time that the two servers
  used meanwhile (each has one thread and waits for nothing else). On two cores they run partly in
  parallel with dynsched, so this subtracts somewhat too much. dynsched's own CPU time is in the row
  below.
- *a tick beyond Prometheus*: the mean of `dynsched_tick_duration_seconds`, less the mean of
  `dynsched_rule_query_duration_seconds` of the slowest rule. Parsing the answers is part of a
  query. *CPU time of one* includes everything that the process does in an interval.
- *1 % of the nodes change state*: for the last rule, which is a shadow rule, so that nothing is
  written.
- *longest stall of the event loop*: the latency of `/healthz`, which another process requests every
  2 ms. Meanwhile ticks go on in which nodes change, and `/nodes`, `/metrics`, `/status` and
  `/page/data` are requested in turn. A server that does nothing is probed at the same time for
  comparison: it waits for a core as well, and for nothing else.
- *steady CPU beyond parsing*: the steady CPU, less what parsing such answers takes in this process.

With --real, the API server is a kube-apiserver with etcd, from the folder KUBEBUILDER_ASSETS. It
uses several cores, and dynsched waits for it, so the start row subtracts too much then.

Set PYTHONPATH to the tree of another version to measure that version.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import socket
import tempfile
import time
from pathlib import Path

import aiohttp
import yaml
from rich.console import Console
from rich.table import Table
from scaling.phases import Bench, Row
from scaling.processes import cpu_seconds, serving, start
from scaling.servers import expression


def rules(count: int) -> str:
    """The rules file.

    The first rule uses the expected load, so that dynsched watches pods. The last one is a shadow
    rule and marks nothing.
    """
    one = {"threshold": 90, "clear_threshold": 80, "keep_firing_for": "1m"}
    made = [{"name": f"rule-{n}", "expr": expression(n), **one} for n in range(count)]
    made[0] |= {"by": "expected"}
    made[-1] |= {"shadow": True}
    score = {"rule-0": 1, "rule-1": 1} if count > 2 else {"rule-0": 1}
    document = {
        "guard": {"max_marked": "50%", "max_releases": "100%"},
        "rules": made,
        "extender": {"profiles": {"default": {"score": score}}},
    }
    return yaml.safe_dump(document)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    config, rules_file, port = folder / "config", folder / "rules.yaml", free_port()
    rules_file.write_text(rules(options.rules), encoding="utf-8")
    size = ("--nodes", str(options.nodes), "--rules", str(options.rules))
    server = "real" if options.real else "api"
    async with (
        serving("scaling.servers", server, *size, "--kubeconfig", str(config)) as (api_pid, api),
        serving("scaling.servers", "prometheus", *size) as (prometheus_pid, prometheus),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as session,
    ):
        before, started = cpu_seconds(api_pid, prometheus_pid), time.monotonic()
        process = await start(
            *("dynsched", "run", "--kubeconfig", str(config), "--prom", prometheus),
            *("--rules", str(rules_file), "--interval", str(options.interval)),
            *("--webaddr", f"127.0.0.1:{port}", "--log-level", "warning"),
            output=False,
        )
        bench = Bench(
            nodes=options.nodes,
            rules=options.rules,
            interval=options.interval,
            session=session,
            url=f"http://127.0.0.1:{port}",
            pid=process.pid,
            api=api,
            api_pid=api_pid,
            prometheus=prometheus,
            prometheus_pid=prometheus_pid,
            started=started,
            servers_before=before,
        )
        try:
            await follow(bench, options)
        finally:
            process.terminate()
            began = time.monotonic()
            await process.wait()
            print(f"stopped in {time.monotonic() - began:.1f} s, exit code {process.returncode}")
        return bench.rows


async def follow(bench: Bench, options: argparse.Namespace) -> None:
    await bench.start()
    await bench.settle(options.seconds)
    await bench.change(options.ticks)
    await bench.stalls(options.probe)
    await bench.prioritize(4.0)
    await bench.mark(options.marks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--real", action="store_true", help="use a real API server, see above")
    parser.add_argument("--marks", type=int, default=1000)
    parser.add_argument("--rules", type=int, default=3, help="at least 2")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two ticks")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the steady state")
    parser.add_argument("--ticks", type=int, default=4, help="ticks with 1 %% of nodes changing")
    parser.add_argument("--probe", type=float, default=30.0, help="seconds to look for stalls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(options, Path(folder)))
    server = "real" if options.real else "simulated"
    title = (
        f"{options.nodes} nodes, {options.rules} rules, a tick every {options.interval:g} s, "
        f"{server} API server"
    )
    table = Table("what", "measured", "target", title=title)
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")


if __name__ == "__main__":
    main()
