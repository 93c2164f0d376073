"""The server's addresses and its shutdown."""

import asyncio
import contextlib
import socket

import pytest
from aiohttp import web
from asking import fetch

from dynsched.web.server import Address, ListenError, WebServer, parse_address

ANYWHERE = Address("127.0.0.1", 0)
GOOD = '{"taken_at": "now"}'


@pytest.mark.parametrize(
    ("text", "address", "shown", "loopback"),
    [
        (":9000", Address(None, 9000), ":9000", False),
        ("9000", Address(None, 9000), ":9000", False),
        ("0.0.0.0:9000", Address("0.0.0.0", 9000), "0.0.0.0:9000", False),
        ("localhost:9000", Address("localhost", 9000), "localhost:9000", True),
        ("[::1]:9000", Address("::1", 9000), "[::1]:9000", True),
        ("[::]:80", Address("::", 80), "[::]:80", False),
        ("127.9.9.9:0", Address("127.9.9.9", 0), "127.9.9.9:0", True),
        ("localhost.a.com:1", Address("localhost.a.com", 1), "localhost.a.com:1", False),
    ],
)
def test_an_address_is_parsed_and_printed(text, address, shown, loopback) -> None:
    assert parse_address(text) == address
    assert str(address) == shown
    assert address.loopback is loopback


NO_PORTS = ["", "localhost", "http://localhost:9000", "::1:9000", "[::1]", ":http", ":-1", "a b:1"]


@pytest.mark.parametrize("text", [*NO_PORTS, ":\uff19", ":70000"])
def test_an_invalid_address_is_refused_with_a_hint(text) -> None:
    hint = "write it like :9000, 127.0.0.1:9000 or [::1]:9000"
    if text == ":70000":
        hint = "there is no port 70000; the last is 65535"
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    assert hint in str(caught.value)


def app(path="/", answer=GOOD):
    async def handler(_request):
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        return web.Response(text=str(answer))

    application = web.Application()
    application.router.add_get(path, handler)
    return application


async def ask(url, path="/", **options):
    return await asyncio.to_thread(fetch, url, path, **options)


async def test_no_host_means_every_interface_and_an_unusable_address_is_a_one_line_error() -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = Address(None, probe.getsockname()[1])
    async with WebServer(app("/nodes/{name}"), address) as server:
        assert server.url == f"http://localhost:{address.port}"
        for host in ("http://127.0.0.1", "http://localhost", "localhost", ""):
            assert await ask(f"{host}:{address.port}", "/nodes/a b#%é")  # names are percent-encoded
        for host, reason in (
            ("127.0.0.1", "address already in use"),
            ("192.0.2.1", "cannot assign requested address"),
            ("no-such-host.invalid", "not known"),
        ):
            address = Address(host, address.port)
            with pytest.raises(ListenError, match=f"{reason}; give another --webaddr") as caught:
                await WebServer(app(), address).start()
            assert str(caught.value).startswith(f"cannot listen on {address}: ")


async def test_stop_waits_neither_for_idle_connections_nor_for_a_hanging_request() -> None:
    server = WebServer(app("/", asyncio.Event()), ANYWHERE)
    await server.start()
    idle, half, hung = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    half[1].write(b"GET / HTTP/1.1\r\nHost")
    hung[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    idle[1].write(b"GET /else HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await idle[0].readline()).startswith(b"HTTP/1.1 404")
    async with asyncio.timeout(9):  # less than the time limit of a connection
        await server.stop()
    for _, writer in (idle, half, hung):
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
