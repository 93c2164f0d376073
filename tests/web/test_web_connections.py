"""Callers that are slow, or hold connections and request nothing."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest
from certificates import Authority
from web_support import application

from dynsched.web.certificates import ServerTls, TlsConfig
from dynsched.web.server import WebServer, parse_address

HEADS = (
    b"",
    b"GET /no",
    b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" + b"{" * 100_000,
    b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n" * 200,  # and the answers are not read
)


@pytest.mark.parametrize("over_tls", [False, True])
async def test_64_slow_connections_keep_no_probe_from_an_answer(
    tmp_path: Path, *, over_tls: bool
) -> None:
    serves = trusts = None
    if over_tls:
        authority = Authority(tmp_path, "ca")
        pair = authority.issue("server", "IP:127.0.0.1")
        serves = ServerTls(TlsConfig(Path(pair.cert), Path(pair.key))).context
        trusts = ssl.create_default_context(cafile=authority.cert)
    app, _ = application()
    async with WebServer(app, parse_address("127.0.0.1:0"), serves) as server:

        async def connect(
            sent: bytes, context: ssl.SSLContext | None = trusts
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, limit=1024
            )
            writer.write(sent)
            return reader, writer

        # Of those over TLS some do not finish the handshake.
        slow = [await connect(HEADS[n % 4], trusts if n % 8 else None) for n in range(64)]
        for path in (b"/healthz", b"/readyz"):
            began = time.monotonic()
            reader, writer = await connect(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert (await reader.readline()).split()[1] == b"200"
            assert time.monotonic() - began < 1
            slow.append((reader, writer))
        for _, writer in slow:
            writer.transport.abort()
