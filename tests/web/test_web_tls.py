"""The server's TLS, with real handshakes."""

import asyncio
import os
import re
import shutil
import ssl

import pytest
from aiohttp import web
from certificates import Authority

from dynsched.web.certificates import ServerTls, TlsConfig, require_certificate
from dynsched.web.server import ListenError, WebServer, parse_address


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


@pytest.fixture
def files(authority, tmp_path):
    """The certificate files of the server; ``renew`` replaces them with another pair."""

    class Files:
        config = TlsConfig(tmp_path / "tls.crt", tmp_path / "tls.key")

        def renew(self, name):
            pair = authority.issue(name, "IP:127.0.0.1")
            shutil.copy(pair.cert, self.config.cert)
            shutil.copy(pair.key, self.config.key)

    found = Files()
    found.renew("first")
    return found


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
    """The status and the common name in the server's certificate."""
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


@pytest.mark.parametrize("name", ["cert", "key"])
async def test_renewed_files_are_used_and_bad_ones_are_not(files, authority, caplog, name) -> None:
    """A pipe must be refused: opening it would block the event loop until there is a writer."""
    path = getattr(files.config, name)
    warning = "TLS: the new files cannot be used, the old ones stay in use: "

    def pipe() -> None:
        path.unlink()
        os.mkfifo(path)

    async with serve(files.config) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        good = "first"
        assert await get(server, trusting(authority)) == (200, good)
        foreign = getattr(authority.issue("x"), name)
        for number, (spoil, problem) in enumerate(
            (
                (lambda: path.write_text("half of one"), "; both must be PEM"),
                (lambda: shutil.copy(foreign, path), "the key belongs to another certificate"),
                (path.unlink, f"{path}: No such file or directory"),
                (pipe, f"{path}: this is a pipe or a device, not a file"),
            )
        ):
            caplog.clear()
            spoil()
            for _ in range(3):
                assert await get(server, trusting(authority)) == (200, good)
            (record,) = caplog.records
            assert record.getMessage().startswith(warning)
            assert record.getMessage().endswith(problem)
            with pytest.raises(ListenError, match=re.escape(problem)):
                ServerTls(files.config)
            path.unlink(missing_ok=True)
            good = f"after {number}"
            files.renew(good)
            assert await get(server, trusting(authority)) == (200, good)


async def test_clients_need_a_certificate_and_probes_do_not(files, authority, tmp_path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    ca = tmp_path / "client-ca.crt"
    shutil.copy(old.cert, ca)
    of_old, of_new, of_none, strange = (
        trusting(authority, client)
        for client in (*(each.issue("s") for each in (old, new)), None, authority.issue("x"))
    )
    async with serve(TlsConfig(files.config.cert, files.config.key, ca)) as server:
        for good, bad in ((of_old, of_new), (of_new, of_old)):
            assert (await get(server, good))[0] == 200
            for each in (bad, strange):
                with pytest.raises(OSError):
                    await get(server, each)
            assert (await get(server, of_none))[0] == 403
            for path in ("/healthz", "/readyz"):
                assert (await get(server, of_none, path))[0] == 200
            shutil.copy(new.cert, ca)
