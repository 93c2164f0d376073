"""What the watch of nodes costs by itself: its start, the memory of a node, and a change of a node.

    python benchmarks/node_watch.py [--nodes 5000 15000] [--changes 2000]

The simulated API server is one process, and the watch another one that has imported all that
`dynsched run` imports. The rows:

- *all known after*: from before the first request.
- *CPU time of the start*: until kopf, too, has listed all of them.
- *memory of a node*: of what is resident then, less what was before the first request.
- *CPU time of a change*: one event each, as a kubelet's heartbeat.

With PYTHONPATH set to another version's tree, that version is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import dynsched.controller.main  # noqa: F401 - for the memory that it takes
from dynsched.kube.client import KubeClient
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.node_watch import NodeWatch
from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.examples import make_node

NODE_BYTES = 9_000
IDLE = 0.05
"""Seconds of CPU time in a second, under which kopf has taken up its own list."""


async def serve(count: int, folder: Path) -> None:
    """Keep ``count`` nodes; change as many as each line of standard input says."""
    async with ApiServer() as api:
        for number in range(count):
            api.objects.create("nodes", make_node(f"n{number:05d}", number, size=NODE_BYTES))
        print(json.dumps(str(api.kubeconfig(folder / "config"))), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, version = "", ""
            for number in range(int(line)):
                name = f"n{number % count:05d}"
                found = api.objects.get("nodes", name)
                found["metadata"]["labels"]["beat"] = str(number)
                version = api.objects.replace("nodes", name, found).decode()["metadata"][
                    "resourceVersion"
                ]
                if number % 50 == 0:
                    await asyncio.sleep(0)  # let the events be sent
            print(json.dumps([name, version]), flush=True)


def resident() -> float:
    """MB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


async def settled() -> None:
    """Wait until this process has nothing left to do."""
    last = -IDLE
    while (now := time.process_time()) - last >= IDLE:
        last = now
        await asyncio.sleep(1.0)


async def watch(kubeconfig: str) -> None:
    """Follow the nodes, and say what that took."""
    client = KubeClient(await load_config(kubeconfig))
    nodes, stop = NodeWatch(client), asyncio.Event()
    before, wall, cpu = resident(), time.monotonic(), time.process_time()
    task = asyncio.create_task(nodes.run(stop))
    while not nodes.store.synced:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.02)
    wall = time.monotonic() - wall
    await settled()
    cpu = time.process_time() - cpu
    gc.collect()
    memory = (resident() - before) * 1024 / len(nodes.store.nodes())
    print(json.dumps([wall, cpu, memory]), flush=True)

    used = time.process_time()
    name, version = json.loads(await asyncio.to_thread(sys.stdin.readline))
    while nodes.store.nodes()[name].resource_version != version:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.1)
    print(json.dumps(time.process_time() - used), flush=True)
    stop.set()
    await task
    await client.close()


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the program with other arguments, until the block ends."""
    command = [sys.executable, __file__, *arguments]
    found = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield found
    finally:
        found.kill()
        found.wait()


def tell(to: subprocess.Popen[str], line: object) -> None:
    assert to.stdin is not None
    print(json.dumps(line), file=to.stdin, flush=True)


def hear(of: subprocess.Popen[str]) -> Any:
    assert of.stdout is not None
    return json.loads(of.stdout.readline())


def measure(nodes: int, changes: int) -> tuple[str, ...]:
    """A row of the table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        process("--serve", str(nodes), folder) as server,
        process("--watch", hear(server)) as watching,
    ):
        wall, cpu, memory = hear(watching)
        tell(server, changes)
        tell(watching, hear(server))
        each = hear(watching) / changes
    figures = (f"{wall:.1f} s", f"{cpu:.1f} s", f"{memory:.1f} KB", f"{each * 1000:.2f} ms")
    return (f"{nodes:,}", *figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[5000, 15_000])
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(int(options.serve[0]), Path(options.serve[1])))
    elif options.watch:
        asyncio.run(watch(options.watch))
    else:
        table = Table(
            *("nodes", "all known after", "CPU time of the start", "memory of a node"),
            "CPU time of a change",
        )
        for nodes in options.nodes:
            table.add_row(*measure(nodes, options.changes))
        Console().print(table)


if __name__ == "__main__":
    main()
