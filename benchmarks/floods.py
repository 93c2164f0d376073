"""What hostile callers cost a running dynsched: memory, /healthz, the log.

    python benchmarks/floods.py [--nodes 5000] [--only NAME,NAME] [--without-extender]

Each flood of `tests/support/flood_support.py` meets a fresh `dynsched run` with 1,024 open files,
on a simulated cluster of Nodes of 9 KB, with the rules of manifests/overlays/extender (their
expressions replaced) and nothing else allowed. Ends with 1 when one of them takes more memory than
the base manifest allows, or holds a probe up for a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from scale import Prometheus, free_port, serve

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

import flood_support as floods
from certificates import Authority

from dynsched.sim.apiserver.server import ApiServer
from dynsched.sim.nodes import make_node

RULES = Path(__file__).parent.parent / "manifests" / "overlays" / "extender" / "rules.yaml"
SECOND = 1.0


class Bench:
    """A cluster, and what a dynsched on it is told."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"ip-10-0-{n // 250}-{n % 250}.example.internal" for n in range(nodes)]
        self.log = folder / "log"
        authority = Authority(folder, "ca")
        self.pair = authority.issue("dynsched", "IP:127.0.0.1")
        self.trusting = floods.trusting(authority.cert)

    @contextlib.asynccontextmanager
    async def dynsched(
        self, api: ApiServer, url: str, *, tls: bool, extender: bool
    ) -> AsyncIterator[tuple[floods.Port, int]]:
        """One that is ready, and its process id."""
        port = free_port()
        rules = self.folder / "rules.yaml"
        rules.write_text(yaml.safe_dump(_rules(extender=extender)), encoding="utf-8")
        arguments = ["--kubeconfig", str(api.kubeconfig(self.folder / "config")), "--prom", url]
        arguments += ["--rules", str(rules), "--webaddr", f"127.0.0.1:{port}", "--no-leader-elect"]
        if tls:
            arguments += ["--tls-cert", self.pair.cert, "--tls-key", self.pair.key]
        with self.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dynsched", "run", *arguments, stdout=log, stderr=log
            )
        limits = (floods.OPEN_FILES, floods.OPEN_FILES)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        try:
            found = floods.Port(port, self.names, self.trusting if tls else None)
            began = time.monotonic()
            while not await found.ready():
                await asyncio.sleep(0.2)
                if time.monotonic() - began > 120:
                    raise TimeoutError("dynsched does not become ready")
            await asyncio.sleep(2)
            yield found, process.pid
        finally:
            process.kill()
            await process.wait()


def _rules(*, extender: bool) -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["rules"]:
        rule["expr"] = "up"
    if not extender:
        del rules["extender"]
    return rules


async def measure(options: argparse.Namespace, folder: Path) -> tuple[Table, bool]:
    bench = Bench(folder, options.nodes)
    nodes = [make_node(name, number, size=9_000) for number, name in enumerate(bench.names)]
    prometheus = Prometheus([node["status"]["addresses"][0]["address"] for node in nodes])
    prometheus.heat(options.nodes // 10)
    table = Table(
        "flood",
        "before",
        "at most",
        "/healthz",
        "of it at work",
        "log",
        title=f"{options.nodes} nodes",
    )
    plain = (*floods.BODIES, *floods.CONNECTIONS, floods.everything_at_once)
    kinds = [(flood, False) for flood in plain]
    kinds += [(flood, True) for flood in floods.HANDSHAKES]
    wanted = set(options.only.split(",")) if options.only else None
    well = True
    async with ApiServer() as api, serve(prometheus) as url:
        for node in nodes:
            api.objects.create("nodes", node)
        nodes.clear()
        for flood, tls in kinds:
            name = flood.__name__
            if wanted is not None and name not in wanted:
                continue
            running = bench.dynsched(api, url, tls=tls, extender=not options.without_extender)
            async with running as (port, pid):
                before, _ = floods.memory(pid)
                async with floods.Probe(port, pid) as probe:
                    await flood(port)
                _, peak = floods.memory(pid)
            slowest, worked = max(zip(probe.took, probe.worked, strict=True))
            well &= peak <= floods.LIMIT and slowest <= SECOND
            row = (f"{before:.0f} MiB", f"{peak:.0f} MiB")
            row += (f"{slowest:.2f} s", f"{worked:.2f} s")
            size = f"{bench.log.stat().st_size / 1e3:.1f} kB"
            table.add_row(name.replace("_", " ") + (", TLS" if tls else ""), *row, size)
            print(f"{name}{' (TLS)' if tls else ''}: {', '.join(row)}", flush=True)
    return table, well


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--only", help="names of floods, with commas between them")
    parser.add_argument("--without-extender", action="store_true")
    options = parser.parse_args()
    floods.open_more_files()
    with tempfile.TemporaryDirectory() as folder:
        table, well = asyncio.run(measure(options, Path(folder)))
    Console(width=100).print(table)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
