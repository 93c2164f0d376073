"""How fast the extender answers kube-scheduler, and how much memory it needs.

    python benchmarks/extender.py [--nodes 5000] [--seconds 4] [--url http://host:9000]

Starts the HTTP server in a separate process with the readings of a synthetic cluster (a tenth of
its nodes is hot). Then it sends requests over keep-alive connections, each for a different pod:
the same NodeNames in the same order; NodeNames in a new order for each pod, first to /filter and
then to /prioritize, as kube-scheduler does; about 500 NodeNames, with each pod assumed on the best
node; 5,000 whole Nodes (9 KB each); and with a pod bound between any two requests, so that no
answer can be cached. Finally it prints the CPU time that the parts of an answer take in this
process. With --url it queries a running dynsched instance instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from scaling.processes import cpu_seconds, memory
from scenes import NOON, Scene
from store_support import Clock, make_store

from dynsched.core.load.pods import BoundPod
from dynsched.core.load.recent import RecentPods
from dynsched.core.nodes import Node
from dynsched.core.tick import Tick
from dynsched.features.extender import wire
from dynsched.features.extender.answers import Extender
from dynsched.features.extender.scoring import Scoring, scores_by_load
from dynsched.web.app import make_app
from dynsched.web.server import WebServer, parse_address

TARGETS = {5000: "p50 1.2 ms", 15000: "p50 4 ms", 65000: "p50 20 ms"}
"""By number of nodes."""
SEARCHERS = 16
"""Number of kube-scheduler's goroutines; each looks at a piece of neighbouring nodes."""
ORDERS = 20
WHOLE = 5000
"""Number of whole Nodes in a body."""
SOME = 500
"""Default number of nodes in a request of kube-scheduler, in a cluster of 5,000 nodes."""
UID = "11111111-2222-3333-4444-555555555555"
"""Placeholder for the pod's uid, replaced in each request."""

RULES = {
    "rules": [
        {"name": "node-cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"},
        {"name": "node-mem-usage", "expr": "mem", "threshold": 85, "resource": "memory"},
    ],
    "extender": {
        "reject": ["node-mem-usage"],
        "profiles": {
            "default": {"score": {"node-cpu": 1, "node-mem-usage": 1}},
            "relative": {"score": {"node-mem-usage": 1}, "method": "relative"},
            "cpu": {"score": {"node-cpu": 1}, "method": "relative"},
        },
    },
}


def node_names(count: int) -> list[str]:
    return [f"ip-10-0-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(count)]


def as_searched(names: list[str], rng: random.Random) -> list[str]:
    """The names in the order in which kube-scheduler finds the nodes.

    Its goroutines run concurrently. Each takes the next few nodes, and appends those that fit.
    """
    size = max(1, min(int(len(names) ** 0.5), len(names) // SEARCHERS + 1))
    pieces = iter([names[start : start + size] for start in range(0, len(names), size)])
    at_work = [iter(piece) for _, piece in zip(range(SEARCHERS), pieces, strict=False)]
    found: list[str] = []
    while at_work:
        one = rng.randrange(len(at_work))
        name = next(at_work[one], None)
        if name is not None:
            found.append(name)
        elif (piece := next(pieces, None)) is not None:
            at_work[one] = iter(piece)
        else:
            del at_work[one]
    return found


def ticked(names: list[str], rng: random.Random) -> tuple[Scene, dict[str, Node], Tick]:
    """A scene, its nodes, and a tick over them."""
    room = {"cpu": 16.0, "memory": 64 * 2.0**30}
    nodes = {name: Node(name, allocatable=room) for name in names}
    scene = Scene(RULES, nodes.values())
    loads = {
        name: rng.uniform(86, 99) if rng.random() < 0.1 else rng.uniform(5, 79) for name in names
    }
    return scene, nodes, scene.tick(NOON, node_cpu=loads, node_mem_usage=loads)


async def serve(count: int, *, bursts: bool) -> None:
    """Run only the server; prints its port. ``bursts``: bind a pod before each /prioritize."""
    rng = random.Random(7)
    names = node_names(count)
    scene, nodes, tick = ticked(names, rng)
    bound = RecentPods()

    class Bursting(Extender):
        def prioritize(self, body: bytes | bytearray) -> bytes:
            now = time.monotonic()
            bound.add(BoundPod(str(now), rng.choice(names)), now)
            return super().prioritize(body)

    extender = (Bursting if bursts else Extender)(
        nodes=lambda: nodes,
        synced=lambda: True,
        rules=lambda: scene.rule_set.extender,
        clock=time.monotonic,
        bound=bound,
    )
    extender.use(Scoring(tick.evaluation, tick.pods, NOON))
    app = make_app(make_store(Clock()), lambda: extender)
    async with WebServer(app, parse_address("127.0.0.1:0")) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


class Client:
    """One keep-alive connection, with just the HTTP that the server speaks.

    It blocks, so that its own overhead adds little to what is measured.
    """

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._host, self._prefix = host, prefix
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go does
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, path: str, body: bytearray) -> None:
        """Send one request with a new pod uid, and read the whole response."""
        if (at := body.find(b'"uid":"')) > 0:
            start = at + len(b'"uid":"')
            body[start : start + len(UID)] = str(uuid.uuid4()).encode()
        self._socket.sendall(
            f"POST {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        self._socket.sendall(body)
        head = b""
        while (end := head.find(b"\r\n\r\n")) < 0:
            received = self._socket.recv_into(self._buffer)
            assert received, "the server closed the connection"
            head += self._buffer[:received]
        assert head.startswith(b"HTTP/1.1 200"), head[:end]
        length = next(
            int(line.split(b":")[1])
            for line in head[:end].lower().splitlines()
            if line.startswith(b"content-length:")
        )
        left = length - (len(head) - end - len(b"\r\n\r\n"))
        while left:
            received = self._socket.recv_into(self._buffer)
            assert received, "the server closed the connection"
            left -= received


def times(client: Client, path: str, body: bytes, seconds: float) -> list[float]:
    """The seconds of each request, sent one after the other."""
    return times_in_turn(client, [path], [body], seconds)[path]


def times_in_turn(
    client: Client, paths: list[str], bodies: list[bytes], seconds: float
) -> dict[str, list[float]]:
    """The seconds of each request, by path. Each body is sent to all paths in turn."""
    in_turn = cycle([bytearray(body) for body in bodies])
    for path in paths:
        client.ask(path, next(in_turn))
    found: dict[str, list[float]] = {path: [] for path in paths}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        body = next(in_turn)
        for path in paths:
            began = time.perf_counter()
            client.ask(path, body)
            found[path].append(time.perf_counter() - began)
    return found


def rate(make: Callable[[], Client], path: str, body: bytes, seconds: float) -> float:
    """Requests per second of eight concurrent clients."""

    def one(_: int) -> int:
        with make() as client:
            return len(times(client, path, body, seconds))

    with ThreadPoolExecutor(8) as clients:
        return sum(clients.map(one, range(8))) / seconds


def names_body(names: list[str], scheduler: str = "default-scheduler") -> bytes:
    """Compact JSON, as Go encodes it."""
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": UID},
        "spec": {"schedulerName": scheduler},
    }
    question = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(question, separators=(",", ":")).encode()


def nodes_body(count: int) -> bytes:
    """Whole Nodes of 9 KB as in a cloud: most of it is images."""
    images = [
        {"names": [f"registry.example.com/team/image-{n}@sha256:{n:064x}"], "sizeBytes": n * 10**7}
        for n in range(60)
    ]
    items = [
        {
            "metadata": {
                "name": name,
                "labels": {f"topology.example.com/key-{k}": f"value-{k}" for k in range(15)},
            },
            "spec": {"providerID": f"aws:///eu-west-1a/{name}"},
            "status": {"allocatable": {"cpu": "15890m", "memory": "63Gi"}, "images": images},
        }
        for name in node_names(count)
    ]
    pod = {"metadata": {"name": "p"}, "spec": {"schedulerName": "default-scheduler"}}
    return json.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": items}}).encode()


@contextmanager
def server(count: int, *, bursts: bool = False) -> Iterator[tuple[int, int]]:
    """Run a server; yields its process id and port."""
    flags = ["--serve", "--nodes", str(count), *(["--bursts"] if bursts else [])]
    command = [sys.executable, __file__, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def row(table: Table, what: str, found: list[float], goal: str = "") -> None:
    found.sort()
    p50, p99 = statistics.median(found), found[int(len(found) * 0.99)]
    table.add_row(what, f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms", goal)


def ask_names(table: Table, make: Callable[[], Client], options: argparse.Namespace) -> None:
    names = node_names(options.nodes)
    body = names_body(names)
    target = TARGETS.get(options.nodes, "")
    rng = random.Random(11)
    orders = [names_body(as_searched(names, rng)) for _ in range(ORDERS)]
    some = names_body(names[:SOME], "cpu")
    with make() as one:
        for path in ("/filter", "/prioritize"):
            row(table, f"{path}", times(one, path, body, options.seconds), target)
        for scheduler in ("relative", "cpu"):
            other = names_body(names, scheduler)
            found = times(one, "/prioritize", other, options.seconds)
            row(table, f"/prioritize, {scheduler}", found, target)
        paths = ["/filter", "/prioritize"]
        in_turn = times_in_turn(one, paths, orders, options.seconds)
        for path, found in in_turn.items():
            row(table, f"{path}, another order for each pod", found, target)
        found = times(one, "/prioritize", some, options.seconds)
        row(table, f"/prioritize, {SOME} of them", found)
    for path, request_body, what in (
        ("/filter", body, ""),
        ("/prioritize", body, ""),
        ("/prioritize", some, f" {SOME} of them,"),
    ):
        per_second = rate(make, path, request_body, options.seconds)
        table.add_row(f"{path},{what} eight clients", f"{per_second:.0f} a second")


def ask_whole(table: Table, make: Callable[[], Client], count: int) -> None:
    whole = bytearray(nodes_body(count))
    for path in ("/filter", "/prioritize"):
        took = []
        with make() as one:
            for _ in range(5):
                began = time.perf_counter()
                one.ask(path, whole)
                took.append(time.perf_counter() - began)
        what = f"{path}, {count} whole Nodes, {len(whole) / 1e6:.0f} MB"
        table.add_row(what, f"{statistics.median(took):.2f} s", "0.30 s")


def ask_about_cpu(
    table: Table, make: Callable[[], Client], names: list[str], pid: int, seconds: float
) -> None:
    """Add the server's CPU per request, with the same and with changing orders of names."""
    rng = random.Random(11)
    orders = [names_body(as_searched(names, rng)) for _ in range(ORDERS)]
    with make() as one:
        for what, bodies in (("the same order", orders[:1]), ("another order", orders)):
            began = cpu_seconds(pid)
            found = times_in_turn(one, ["/prioritize"], bodies, seconds)
            each = (cpu_seconds(pid) - began) / len(found["/prioritize"])
            table.add_row(f"CPU of the server, /prioritize, {what}", f"{each * 1e3:.2f} ms")


def run(options: argparse.Namespace) -> Table:
    table = Table("question", "found", "target", title=f"{options.nodes} nodes, one client")
    names = node_names(options.nodes)
    some = min(options.nodes, WHOLE)
    if options.url:
        split = urlsplit(options.url)
        host, port, prefix = split.hostname or "localhost", split.port or 80, split.path.rstrip("/")
        ask_names(table, lambda: Client(host, port, prefix), options)
        ask_whole(table, lambda: Client(host, port, prefix), some)
        return table
    with server(options.nodes) as (pid, port):
        make = partial(Client, "127.0.0.1", port, "")
        ask_names(table, make, options)
        ask_about_cpu(table, make, names, pid, options.seconds)
        table.add_row("memory after questions by names", f"{memory(pid)[0]:.0f} MB")
        ask_whole(table, make, some)
        table.add_row("memory at most, since its start", f"{memory(pid)[1]:.0f} MB", "300 MB")
    with server(options.nodes, bursts=True) as (_, port), Client("127.0.0.1", port, "") as one:
        found = times(one, "/prioritize", names_body(names), options.seconds)
        row(table, "/prioritize, a pod bound before each", found)
    return table


def parts(count: int) -> Table:
    """CPU of the parts of an answer, without HTTP.

    The minimum of several measurements, because other programs can only make them longer.
    """
    names = node_names(count)
    _, _, tick = ticked(names, random.Random(7))
    body = names_body(as_searched(names, random.Random(11)))
    profile = Scoring(tick.evaluation, tick.pods, NOON).profile("default")
    loads = profile.of(names)
    scores = scores_by_load(loads, profile.method)
    table = Table("part", "CPU", title=f"{count} names")
    for what, part in (
        ("the request", lambda: wire.read_args(body)),
        ("the loads", lambda: profile.of(names)),
        ("the scores", lambda: scores_by_load(loads, profile.method)),
        (
            "the answer to /prioritize",
            lambda: wire.prioritize_answer(names, [scores[load] for load in loads]),
        ),
        ("a tick, prepared", lambda: Scoring(tick.evaluation, tick.pods, NOON)),
    ):
        table.add_row(what, f"{least(part) * 1e3:.3f} ms")
    return table


def least(part: Callable[[], object]) -> float:
    found = []
    for _ in range(9):
        began = time.process_time()
        part()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--url", help="query a running dynsched instance instead")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bursts", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.nodes, bursts=options.bursts))
    else:
        console = Console(width=100)
        console.print(run(options))
        if not options.url:
            console.print(parts(options.nodes))


if __name__ == "__main__":
    main()
