"""What callers may do with their connections, and what not."""

import asyncio
import gc
import gzip
import json
import logging
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import StreamReader, web
from certificates import Authority
from extender_support import ask, raw, snapshots
from flood_support import client_hello
from operator_support import until
from web_support import application

from dynsched.api.app import make_app
from dynsched.api.certificates import ServerTls, TlsConfig
from dynsched.api.server import WebServer, parse_address
from dynsched.api.transport import answering, connections
from dynsched.api.transport.connections import Connection, Connections
from dynsched.util.logs import OneInAWhile

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(
    app: web.Application | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Callable[..., Any]]:
    """Ways to call: ``await call()`` is a connection."""
    async with WebServer(app or application()[0], parse_address("127.0.0.1:0"), context) as server:
        writers: list[asyncio.StreamWriter] = []

        async def call(data: bytes = b"", **more: Any) -> Pair:
            pair = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22, **more)
            writers.append(pair[1])
            pair[1].write(data)
            return pair

        yield call
        for writer in writers:
            writer.transport.abort()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection: what must not stay until the next one, which may be far away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def answer(pair: Pair) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    async with asyncio.timeout(30):
        head = await pair[0].readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().splitlines()
            if line.startswith(b"content-length")
        )
        return int(head.split()[1]), await pair[0].readexactly(length)


async def over(pair: Pair) -> bool:
    """Whether the server hangs up without a word."""
    async with asyncio.timeout(30):
        try:
            return await pair[0].read() == b""
        except ConnectionError:
            return True


POST = b"POST /filter HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("sent", [b"", HEALTH[:9], b"\r\n", POST, HEALTH, HEALTH + HEALTH[:7]])
async def test_what_does_not_come_is_not_waited_for_for_ever(sent, monkeypatch) -> None:
    options = {**connections._OPTIONS, "keepalive_timeout": 0.1}
    monkeypatch.setattr(connections, "_OPTIONS", options)
    async with serving() as call:
        pair = await call(sent)
        if sent.startswith(HEALTH):
            assert await answer(pair) == (200, b"ok")
        assert await over(pair)


async def test_where_there_are_too_many_those_without_an_answer_go_first(monkeypatch) -> None:
    """And those of whom the most come: a flood does not cost others, older and never answered."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 12)
    async with serving() as call:
        others = [await call(local_addr=("127.0.0.2", 0)) for _ in range(2)]
        scheduler = await call(HEALTH)
        assert (await answer(scheduler))[0] == 200
        idle = [await call() for _ in range(9)]
        for number in range(20):
            assert await answer(await call(HEALTH)) == (200, b"ok"), number
        assert all([await over(pair) for pair in idle])
        for _ in range(12):  # now all were answered: the scheduler was not heard of for longest
            await answer(await call(HEALTH))
        assert await over(scheduler)
        for pair in others:
            pair[1].write(HEALTH)
            assert await answer(pair) == (200, b"ok")


async def test_from_more_addresses_than_connections_those_without_an_answer_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 12)
    async with serving() as call:
        scheduler = await call(HEALTH)
        for number in range(1, 60):
            assert (await answer(scheduler))[0] == 200, number
            await call(local_addr=(f"127.0.1.{number}", 0))
            scheduler[1].write(HEALTH)


async def test_a_caller_that_gave_way_has_no_turn(monkeypatch) -> None:
    """What it sent is held no longer, and no answer is computed for it."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 4)
    computed: list[str] = []

    async def compute(request: web.Request) -> web.Response:
        computed.append(request.path)
        return web.Response(body=b"ok")

    app = make_app(snapshots())
    app.router.add_get("/{number}", compute)
    async with serving(app) as call:
        async with app[answering.TURNS]:
            pairs = []
            for number in range(12):
                pairs.append(await call(HEALTH + b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number))
                assert await answer(pairs[-1]) == (200, b"ok")  # now the second one has begun
            assert all([await over(pair) for pair in pairs[:8]])
        for pair in pairs[8:]:
            assert await answer(pair) == (200, b"ok")
    assert computed == ["/8", "/9", "/10", "/11"]


FILTER = POST + b"Content-Length: %d\r\n\r\n%b" % (len(raw(ask())), raw(ask()))


async def test_requests_that_are_sent_ahead_are_answered_one_after_the_other() -> None:
    async with serving() as call:
        pair = await call((HEALTH + FILTER) * 50)
        for _ in range(50):
            assert await answer(pair) == (200, b"ok")
            assert json.loads((await answer(pair))[1])["NodeNames"] == ["a", "b", "c"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
async def test_nothing_is_unpacked(encoding: str, caplog: Any) -> None:
    async with serving() as call:
        for packed in (gzip.compress(bytes(30_000_000)), b"junk" * 9):
            head = f"Host: x\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(packed)}"
            for path in ("/filter", "/bind"):
                sent = f"POST {path} HTTP/1.1\r\n{head}\r\n\r\n".encode()
                status, body = await answer(await call(sent + packed))
                assert status == 415
                assert "Content-Encoding" in json.loads(body)["error"]
            sent = f"GET /healthz HTTP/1.1\r\n{head}\r\n\r\n".encode()
            pair = await call(sent + packed + HEALTH)
            assert [await answer(pair) for _ in range(2)] == [(200, b"ok")] * 2
    assert not caplog.records


def with_large() -> web.Application:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(30_000_000))

    app = make_app(snapshots())
    app.router.add_get("/large", large)
    return app


async def test_a_large_answer_goes_out_whole() -> None:
    async with serving(with_large()) as call:
        pair = await call(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + HEALTH)
        status, body = await answer(pair)
        assert (status, len(body)) == (200, 30_000_000)
        assert await answer(pair) == (200, b"ok")
        pair = await call(b"HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n" + HEALTH)
        assert b"content-length: 30000000" in (await pair[0].readuntil(b"\r\n\r\n")).lower()
        assert await answer(pair) == (200, b"ok")


async def test_requests_that_are_sent_ahead_wait_unparsed_and_are_all_answered() -> None:
    waiting: list[int] = []

    async def number(request: web.Request) -> web.Response:
        await asyncio.sleep(0)
        waiting.append(len(request.protocol._messages))
        return web.Response(text=(await request.text()) or request.query["n"])

    app = make_app(snapshots())
    app.router.add_route("*", "/number", number)
    fields = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 2000) for n in range(60))
    heads = [b"GET /number?n=%d HTTP/1.1\r\nHost: x\r\n" % n + fields for n in range(20)]
    late = b"POST /number HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    async with serving(app) as call:
        pair = await call(b"\r\n".join([*heads, late]))
        for n in range(20):
            assert await answer(pair) == (200, b"%d" % n)
        pair[1].write(b"late")
        assert await answer(pair) == (200, b"late")
    assert len(waiting) == 21
    assert max(waiting) <= 1


async def test_an_answer_that_is_not_read_ends_and_costs_no_log(monkeypatch, caplog) -> None:
    monkeypatch.setattr(answering, "WRITE_SECONDS", 0.05)
    async with WebServer(with_large(), parse_address("127.0.0.1:0")) as server:
        pair = await asyncio.open_connection("127.0.0.1", server.port)
        pair[1].write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        pair[1].transport.pause_reading()

        async def taken_in() -> bool:
            return bool(server.connections._open)

        async def ended() -> bool:
            return not server.connections._open

        await until(taken_in, "it is taken in")
        await until(ended, "it is broken off")
        pair[1].transport.resume_reading()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer(pair)
    assert not caplog.records


BROKEN = (
    b"\x16\x03\x01\x02junk\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)


async def test_requests_that_are_none_are_one_line_of_the_log_a_minute(monkeypatch, caplog) -> None:
    monkeypatch.setattr(connections._logger, "filters", [OneInAWhile()])
    async with serving() as call:
        with caplog.at_level(logging.INFO):
            for _ in range(10):
                for sent in BROKEN:
                    pair = await call(sent)
                    async with asyncio.timeout(30):
                        assert (await pair[0].read()).startswith(b"HTTP/1.")
    assert caplog.records
    assert len(caplog.records) <= len(BROKEN)  # as many as there are kinds
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_callers_that_hang_up_cost_no_log_and_leave_nothing_behind(
    caplog: Any, uncollected: None
) -> None:
    def left() -> int:
        return sum(
            isinstance(each, StreamReader)
            or (isinstance(each, Connection) and each.transport is None)
            for each in gc.get_objects()
        )

    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
    before = left()
    async with serving() as call:
        for path in (b"/filter", b"/prioritize", b"/bind", b"/nodes", b"/no/such"):
            for _ in range(5):
                pair = await call(head % path + b"x" * 150_000)
                await pair[1].drain()
                await answer(await call(HEALTH))  # meanwhile it is heard
                pair[1].transport.abort()
        for _ in range(5):  # refused, and sends on
            pair = await call(b"GET / HTTP/1.1\r\n" + b"x: %b\r\n" % (b"y" * 8000) * 120)
            await over(pair)

        async def gone() -> bool:
            return left() <= before

        await until(gone, "nothing is kept of what was received")
    assert not caplog.records


async def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server", "IP:127.0.0.1")
    context = ServerTls(TlsConfig(Path(pair.cert), Path(pair.key))).context
    trusting = ssl.create_default_context(cafile=authority.cert)
    async with serving(context=context) as call:
        halves = [await call(b"\x16\x03\x01") for _ in range(30)]
        for _ in range(3):
            assert await answer(await call(HEALTH, ssl=trusting)) == (200, b"ok")
        assert all([await over(half) for half in halves[:20]])
        caller = await call(FILTER + HEALTH, ssl=trusting)
        assert json.loads((await answer(caller))[1])["NodeNames"] == ["a", "b", "c"]
        assert await answer(caller) == (200, b"ok")
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.01)
    async with serving(context=context) as call:
        assert await over(await call(b"\x16\x03\x01"))


async def test_handshakes_that_end_leave_nothing_behind(tmp_path, monkeypatch, uncollected) -> None:
    """Neither those that are reset, nor those that give way to newer ones."""

    def left() -> int:
        return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())

    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    authority = Authority(tmp_path, "ca")
    context = authority.server(authority.issue("server", "IP:127.0.0.1"))
    trusting = ssl.create_default_context(cafile=authority.cert)
    hello = client_hello(trusting)
    async with serving(context=context) as call:
        pairs = [await call(hello) for _ in range(10)]
        for reader, writer in pairs:
            assert await reader.read(1) == b"\x16"
            writer.transport.abort()
        await asyncio.gather(*(call() for _ in range(200)))
        assert await answer(await call(HEALTH, ssl=trusting)) == (200, b"ok")
        assert left() <= 12


async def test_over_tls_callers_that_go_while_they_wait_for_a_turn_leave_nothing_behind(
    tmp_path: Path, caplog: Any, uncollected: None
) -> None:
    """asyncio's transport of TLS, once it is closed, raises AttributeError where it is to read."""
    authority = Authority(tmp_path, "ca")
    context = authority.server(authority.issue("server", "IP:127.0.0.1"))
    trusting = ssl.create_default_context(cafile=authority.cert)
    app = application()[0]
    waiting: list[Connection] = []

    def left() -> int:
        return sum(isinstance(each, Connection) for each in gc.get_objects())

    async def all_wait() -> bool:
        waiting[:] = [
            each
            for each in gc.get_objects()
            if isinstance(each, Connection) and each.answering is not None
        ]
        return len(waiting) == 4

    before = left()
    async with serving(app, context) as call:
        async with app[answering.TURNS]:
            for _ in range(4):
                await call(b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n" * 3, ssl=trusting)
            await until(all_wait, "each waits for its turn")
            for each in waiting:
                each.end()
            waiting.clear()
            del each
            await asyncio.sleep(0.1)

        async def gone() -> bool:
            return left() <= before

        await until(gone, "nothing is kept of them")
    assert not caplog.records


def test_few_open_files_are_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert Connections(1).most == 25
    assert Connections(2).most == 12


def test_of_each_kind_of_line_one_is_written_in_a_while(caplog: Any) -> None:
    now = [0.0]
    logger = logging.getLogger("dynsched.test.quiet")
    logger.filters = [OneInAWhile(lambda: now[0])]
    for number in range(5):
        logger.warning("%s failed", number)
        logger.warning("another thing %s", number)
    assert [record.getMessage() for record in caplog.records] == ["0 failed", "another thing 0"]
    now[0] = 61.0
    logger.warning("%s failed", 6)
    assert caplog.records[-1].getMessage() == "6 failed (and 4 more like it before)"
    for number in range(1000):
        logger.warning(f"made by a caller: {number}")  # noqa: G004 (what must not be done)
    assert len(logger.filters[0]._kinds) <= 100  # type: ignore[union-attr]
