"""TLS of what we serve, with real handshakes."""

import asyncio
import logging
import os
import shutil
import ssl
import threading
from pathlib import Path

import pytest
from aiohttp import web
from asking import fetch
from certificates import Authority

from dynsched.web import tls
from dynsched.web.client import ServerError
from dynsched.web.server import ListenError, WebServer, parse_address
from dynsched.web.tls import ServerTls, TlsConfig, require_certificate


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


@pytest.fixture
def files(authority, tmp_path):
    """The files that the server is told of; ``renew`` puts another pair in their place."""

    class Files:
        config = TlsConfig(tmp_path / "tls.crt", tmp_path / "tls.key")

        def renew(self, name):
            pair = authority.issue(name, "IP:127.0.0.1")
            shutil.copy(pair.cert, self.config.cert)
            shutil.copy(pair.key, self.config.key)

    found = Files()
    found.renew("first")
    return found


@pytest.fixture(autouse=True)
def look_at_every_connection(monkeypatch):
    monkeypatch.setattr(tls, "LOOK_AGAIN", 0.0)


async def _hello(_request):
    return web.Response(text="hello")


def serve(config: TlsConfig) -> WebServer:
    app = web.Application(middlewares=[require_certificate] if config.client_ca else [])
    app.router.add_get("/{path:.*}", _hello)
    return WebServer(app, parse_address("127.0.0.1:0"), ServerTls(config).context)


def trusting(authority: Authority, client=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.cert)
    if client:
        context.load_cert_chain(client.cert, client.key)
    return context


async def get(server: WebServer, context: ssl.SSLContext, path="/nodes") -> tuple[int, str]:
    """The status, and the server's name in its certificate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        if not answer:
            raise ConnectionResetError("no answer")
        subject = writer.get_extra_info("peercert")["subject"]
        return int(answer.split()[1]), dict(pair[0] for pair in subject)["commonName"]
    finally:
        writer.close()


async def test_it_serves_https(files, authority) -> None:
    async with serve(files.config) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        assert await get(server, trusting(authority)) == (200, "first")


async def test_a_certificate_that_is_not_trusted_is_one_plain_line(
    files, authority, monkeypatch
) -> None:
    async with serve(files.config) as server:
        with pytest.raises(ServerError) as caught:
            await asyncio.to_thread(fetch, server.url, "/nodes")
        said = str(caught.value)
        assert said.startswith(f"cannot ask {server.url}: TLS: its certificate is not trusted (")
        assert said.endswith(
            "name the CA file that signed it in SSL_CERT_FILE, or use --server URL"
        )
        assert "_ssl.c" not in said
        monkeypatch.setenv("SSL_CERT_FILE", authority.cert)
        with pytest.raises(ServerError, match="does not answer as dynsched does"):
            await asyncio.to_thread(fetch, server.url, "/nodes")


async def test_a_renewed_certificate_is_used_without_a_restart(files, authority) -> None:
    async with serve(files.config) as server:
        await get(server, trusting(authority))
        files.renew("second")
        assert await get(server, trusting(authority)) == (200, "second")


async def test_files_that_cannot_be_used_leave_the_last_good_ones_at_work(
    files, authority, caplog
) -> None:
    async with serve(files.config) as server:
        files.config.key.write_text("half a key")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await get(server, trusting(authority)) == (200, "first")
        assert len(caplog.records) == 1
        assert "the old ones stay" in caplog.text

        files.config.key.unlink()
        assert await get(server, trusting(authority)) == (200, "first")
        files.renew("third")
        assert await get(server, trusting(authority)) == (200, "third")


@pytest.mark.parametrize("name", ["cert", "key"])
async def test_a_pipe_in_a_files_place_holds_no_connection_up(
    files, authority, caplog, name
) -> None:
    """Opening it would wait for a writer, in the event loop."""
    async with serve(files.config) as server:
        path = getattr(files.config, name)
        path.unlink()
        os.mkfifo(path)
        for _ in range(3):
            assert await get(server, trusting(authority)) == (200, "first")
        (record,) = caplog.records
        said = "TLS: the new files cannot be used, the old ones stay in use:"
        assert record.getMessage() == f"{said} {path}: this is a pipe, not a file"
        with pytest.raises(ListenError, match="this is a pipe"):
            ServerTls(files.config)
        path.unlink()
        files.renew("second")
        assert await get(server, trusting(authority)) == (200, "second")


async def test_files_that_hang_hold_the_event_loop_up_once(
    files, authority, caplog, monkeypatch
) -> None:
    async with serve(files.config) as server:
        answers, load, asked = threading.Event(), tls._load, []

        def hangs(config):
            asked.append(config)
            answers.wait(30)
            return load(config)

        monkeypatch.setattr(tls, "_load", hangs)
        files.renew("second")
        for _ in range(5):
            assert await get(server, trusting(authority)) == (200, "first")
        assert len(asked) == 1  # nobody else waits for it
        assert [record.getMessage() for record in caplog.records if "hang" in record.getMessage()]
        assert len(caplog.records) == 1
        answers.set()
        while await get(server, trusting(authority)) != (200, "second"):
            pass


async def test_clients_need_a_certificate_but_for_probes(files, authority, tmp_path) -> None:
    (tmp_path / "clients").mkdir()
    clients = Authority(tmp_path / "clients", "clients")
    config = TlsConfig(files.config.cert, files.config.key, Path(clients.cert))
    async with serve(config) as server:
        allowed = trusting(authority, clients.issue("scheduler"))
        assert (await get(server, allowed))[0] == 200
        assert (await get(server, trusting(authority)))[0] == 403
        assert (await get(server, trusting(authority), "/healthz"))[0] == 200
        assert (await get(server, trusting(authority), "/readyz"))[0] == 200

        stranger = trusting(authority, authority.issue("stranger"))
        with pytest.raises(OSError):
            await get(server, stranger)


async def test_a_renewed_client_ca_counts_from_the_next_connection_on(
    files, authority, tmp_path
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    ca = tmp_path / "client-ca.crt"
    shutil.copy(old.cert, ca)
    config = TlsConfig(files.config.cert, files.config.key, ca)
    async with serve(config) as server:
        client = trusting(authority, new.issue("scheduler"))
        with pytest.raises(OSError):
            await get(server, client)
        shutil.copy(new.cert, ca)
        assert (await get(server, client))[0] == 200
        with pytest.raises(OSError):
            await get(server, trusting(authority, old.issue("scheduler")))


async def test_plain_http_to_the_port_does_not_end_the_server(files, authority) -> None:
    async with serve(files.config) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()
        assert (await get(server, trusting(authority)))[0] == 200


def test_files_that_cannot_be_used_at_the_start_are_one_line(files, tmp_path) -> None:
    missing = TlsConfig(tmp_path / "none.crt", files.config.key)
    with pytest.raises(ListenError, match=r"none\.crt: No such file or directory"):
        ServerTls(missing)

    other = tmp_path / "other"
    other.mkdir()
    foreign = TlsConfig(files.config.cert, Path(Authority(other, "x").issue("y").key))
    with pytest.raises(ListenError, match="do certificate and key belong together"):
        ServerTls(foreign)
