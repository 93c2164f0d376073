"""What a stranger may send to the port of a running dynsched, and what it costs there.

Everything goes over loopback, and each flood is bounded in connections, bytes and time.
"""

import asyncio
import contextlib
import re
import resource
import socket
import ssl
import struct
import sys
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

MIB: Final = 1 << 20
LIMIT: Final = 256.0
"""MiB of resident memory: the limit in manifests/base."""
OPEN_FILES: Final = 1024
"""What a container often has."""


@dataclass(frozen=True)
class Port:
    """Where to send, and by what TLS; ``nodes`` are the cluster's. ``hold``: seconds for which a
    connection that does nothing is left open.
    """

    number: int
    nodes: list[str]
    tls: ssl.SSLContext | None = None
    hold: float = 3.0

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = {"ssl": self.tls, "ssl_shutdown_timeout": 0.2} if self.tls else {}
        return await asyncio.open_connection("127.0.0.1", self.number, **tls)

    async def send(self, *parts: bytes, hold: bool = False, seconds: float = 20.0) -> bytes:
        """Send all on a connection of its own; the first bytes of the answer, "" for none.
        ``hold``: do not read before, and wait no longer.
        """
        writer = None
        try:
            async with asyncio.timeout(1.2 * self.hold if hold else seconds):
                reader, writer = await self.open()
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                if hold:
                    await asyncio.sleep(self.hold)
                answer = first = await reader.read(1 << 16)
                while answer:
                    answer = await reader.read(1 << 20)
                return first
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return b""
        finally:
            if writer is not None:
                writer.transport.abort()

    async def ready(self) -> bool:
        """Whether all nodes are known and a tick is done."""
        return b" 200 " in await self.send(
            b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )


def open_more_files() -> None:
    """As many as this process may: the callers are here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def post(path: str, body: bytes, *more: str, length: int | None = None) -> bytes:
    """A request; ``length`` is what it declares, where that is not what it sends."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *more]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def names(text: bytes, count: int) -> bytes:
    return b'{"NodeNames":[' + b",".join([text]) + (b"," + text) * (count - 1) + b"]}"


async def many(port: Port, count: int, *parts: bytes, hold: bool = False) -> None:
    """So many connections at once, each with the same."""
    await asyncio.gather(*(port.send(*parts, hold=hold) for _ in range(count)))


async def a_million_empty_names(port: Port) -> None:
    for path in ("/prioritize", "/scheduler/filter"):
        await many(port, 3, post(path, names(b'""', 10**6)))


async def gzip_of_four_million_names(port: Port) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(b'{"NodeNames":[""')
    body += b"".join(packer.compress(b',""' * 10_000) for _ in range(400))
    body += packer.compress(b"]}") + packer.flush()
    assert len(body) < 20_000
    await many(port, 2, post("/prioritize", body, "Content-Encoding: gzip"))


async def unfinished_bodies(port: Port) -> None:
    part = b'{"NodeNames":["' + b"a" * (MIB - 100)
    await many(port, 600, post("/prioritize", part, length=MIB - 1), hold=True)


async def empty_items(port: Port) -> None:
    body = b'{"Nodes":{"items":[{}' + b",{}" * (7 * MIB // 3) + b"]}}"
    for path in ("/filter", "/prioritize"):
        await many(port, 3, post(path, body))


async def many_victims(port: Port) -> None:
    """Just as many as fit into the body that is read, in the forms that grow most."""
    most = 15 * MIB // 8
    dense = most // 24 + 19_000
    nodes = ",".join(f'"{n:x}":{{}}' for n in range(dense)).encode()
    pods = b"{}" + b",{}" * (most // 3)
    for body in (
        b'{"NodeNameToMetaVictims":{' + nodes + b"}" + b" " * (most - 14 * dense) + b"}",
        b'{"NodeNameToVictims":{"n":{"Pods":[' + pods + b"]}}}",
        b'{"NodeNameToMetaVictims":{"n":{"Pods":[' + pods + b"]}}}",
    ):
        await many(port, 2, post("/preempt", body))


async def as_many_names_as_there_may_be(port: Port) -> None:
    most = max(10_000, 2 * len(port.nodes))
    for start in range(0, 40, 20):
        bodies = [names(f'"{number:x<240}"'.encode(), most) for number in range(start, start + 20)]
        await asyncio.gather(
            *(port.send(post(("/filter", "/prioritize")[n % 2], b)) for n, b in enumerate(bodies))
        )


async def idle_or_half_sent(port: Port) -> None:
    parts = (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-", post("/filter", b"{", length=900))
    patient = replace(port, hold=3.0)
    await asyncio.gather(*(patient.send(parts[n % 3], hold=True) for n in range(5000)))


async def large_heads(port: Port) -> None:
    fields = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 8000) for n in range(60))
    await many(port, 500, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + fields, hold=True)


async def requests_ahead_of_answers(port: Port) -> None:
    """Each with large header fields, or the largest, behind an answer that is not read."""
    for size in (2000, 8100):
        fields = b"".join(b"%d: %s\r\n" % (n, b"y" * size) for n in range(62))
        request = b"GET /nodes HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n"
        await many(port, 500, request * 10, hold=True)


async def answers_that_are_not_read(port: Port) -> None:
    paths = ("/nodes", "/openapi.json", "/metrics", "/nodes?marked=false")
    heads = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 20 for path in paths]
    await asyncio.gather(*(port.send(head, hold=True) for head in heads * 150))


async def bodies_of_a_get(port: Port) -> None:
    head = b"GET /nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    await many(port, 300, head, b"a" * 400_000, hold=True)


async def requests_that_are_none(port: Port) -> None:
    kinds = (
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00junk\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /filter HTTP/1.1\r\nContent-Length: 2\r\n\r\n{]",
        b"GET /no/such/page HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"BREW / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /nodes?marked=perhaps HTTP/1.1\r\nConnection: close\r\n\r\n",
    )
    for _ in range(4):
        await asyncio.gather(*(port.send(kinds[n % len(kinds)], seconds=3.0) for n in range(500)))


async def half_a_handshake(port: Port) -> None:
    await many(Port(port.number, port.nodes), 1000, b"\x16\x03\x01", hold=True)


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first flight of a caller."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="x").do_handshake()
    return sent.read()


async def handshakes_that_are_reset(port: Port) -> None:
    assert port.tls is not None
    hello = client_hello(port.tls)
    plain = replace(port, tls=None)

    async def reset() -> None:
        with contextlib.suppress(OSError):
            _, writer = await plain.open()
            linger = struct.pack("ii", 1, 0)  # the end is a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.write(hello)
            await asyncio.sleep(0.03)
            writer.transport.abort()

    for _ in range(80):
        await asyncio.gather(*(reset() for _ in range(150)))


Flood = Callable[[Port], Awaitable[None]]


class Probe:
    """Asks for /healthz as a kubelet does, over a new connection each time, in a process of its own
    that the flood does not hold up, and from another address.

    ``worked`` is there once the block is left: for how many seconds dynsched had a processor until
    each answer, which a busy machine does not change; infinite where no answer came within four
    times the time that the kubelet waits.
    """

    def __init__(self, port: Port, pid: int) -> None:
        self._port = port
        self._pid = pid
        self.worked: list[float] = []

    async def __aenter__(self) -> Self:
        arguments = [str(self._port.number), str(self._pid), *["tls"] * bool(self._port.tls)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-S", "-c", _PROBE, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        await self._process.stdout.readline()  # it has begun
        return self

    async def __aexit__(self, *_: object) -> None:
        found, _ = await self._process.communicate(b"")  # what it reads ends, and it too
        self.worked = [float(line) for line in found.splitlines()]


_PROBE: Final = """
import os, select, socket, ssl, sys

def worked():
    with open(f"/proc/{sys.argv[2]}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def ask():
    plain = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 12, ("127.0.0.2", 0))
    if sys.argv[3:]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = context.wrap_socket(plain)
    with plain:
        plain.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        if not plain.recv(100).startswith(b"HTTP/1.1 200"):
            raise ConnectionError("no 200")

print("begun", flush=True)
while True:
    before = worked()
    try:
        ask()
        print(worked() - before)
    except OSError:
        print("inf")
    if select.select([sys.stdin], [], [], 0.05)[0]:
        break
"""


def peak_memory(pid: int) -> float:
    """Of resident memory since the start, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)[0]) / 1024
