"""Sends trivial requests to a server again and again, to see how long it is busy with other work.

    python -m scaling.probe ask URL SECONDS     prints the seconds of each request, as JSON
    python -m scaling.probe idle                serves and does nothing else; prints its URL

The idle server is the baseline: the machine makes an idle process wait, too.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from typing import Final
from urllib.parse import urlsplit

PAUSE: Final = 0.002
"""Seconds between two requests: shorter than the stalls of interest, yet with room for others."""
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


def ask(url: str, seconds: float) -> list[float]:
    """The seconds of each request, sent one after the other."""
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=60)
    connection.connect()
    took = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        connection.request("GET", split.path)
        connection.getresponse().read()
        took.append(time.monotonic() - began)
        time.sleep(PAUSE)
    return took


class _Idle(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self._transport, asyncio.WriteTransport)
        if data.endswith(b"\r\n\r\n"):
            self._transport.write(_ANSWER)


async def idle() -> None:
    server = await asyncio.get_running_loop().create_server(_Idle, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/healthz", flush=True)
    await server.serve_forever()


def main() -> None:
    if sys.argv[1] == "idle":
        asyncio.run(idle())
    else:
        print(json.dumps(ask(sys.argv[2], float(sys.argv[3]))))


if __name__ == "__main__":
    main()
