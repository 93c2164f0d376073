"""The server's addresses and its end; the client that the commands use."""

import asyncio
import contextlib
import http.server
import socket
import threading
import time

import pytest
from aiohttp import web
from asking import fetch

from dynsched.web.client import ServerError
from dynsched.web.server import Address, ListenError, WebServer, parse_address


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        (":9000", Address(None, 9000), ":9000"),
        ("9000", Address(None, 9000), ":9000"),
        ("0.0.0.0:9000", Address("0.0.0.0", 9000), "0.0.0.0:9000"),
        ("localhost:9000", Address("localhost", 9000), "localhost:9000"),
        ("[::1]:9000", Address("::1", 9000), "[::1]:9000"),
        ("[::]:80", Address("::", 80), "[::]:80"),
        ("127.0.0.1:0", Address("127.0.0.1", 0), "127.0.0.1:0"),
    ],
)
def test_an_address_is_read_and_shown(text, address, shown) -> None:
    assert parse_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "http://localhost:9000",
        "::1:9000",
        "[::1]",
        ":http",
        ":-1",
        "a b:1",
        ":\uff19",
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(text) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    assert "write it like :9000, 127.0.0.1:9000 or [::1]:9000" in str(caught.value)


def test_there_is_a_last_port() -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(":70000")
    assert str(caught.value) == "':70000': there is no port 70000; the last is 65535"


def app(path="/", answer="ok", **details):
    async def handler(_request):
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        return web.Response(text=str(answer), **details)

    application = web.Application()
    application.router.add_get(path, handler)
    return application


async def ask(url, path, **options):
    return await asyncio.to_thread(fetch, url, path, **options)


@pytest.mark.parametrize("text", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_it_listens_where_it_says(text) -> None:
    address = parse_address(text)
    if address.host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with WebServer(app("/nodes", '{"taken_at": "now"}'), address) as server:
        url = server.url
        assert await ask(url, "/nodes") == {"taken_at": "now"}
    with pytest.raises(ServerError) as caught:
        await ask(url, "/nodes")
    assert "connection refused" in str(caught.value)


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_no_host_is_every_interface() -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    async with WebServer(app("/nodes", '{"taken_at": "now"}'), Address(None, port)) as server:
        assert server.url == f"http://localhost:{port}"
        for host in ("http://127.0.0.1", "http://localhost", "localhost", ""):
            assert await ask(f"{host}:{port}", "/nodes")


async def test_a_port_in_use_is_one_clear_line() -> None:
    async with WebServer(app(), parse_address("127.0.0.1:0")) as first:
        address = Address("127.0.0.1", first.port)
        with pytest.raises(ListenError) as caught:
            await WebServer(app(), address).start()
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{address.port}: the port is in use; "
        "stop what listens there, or give another --webaddr"
    )


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "this machine has no address 192.0.2.1"),
        ("no-such-host.invalid", "the host name 'no-such-host.invalid' cannot be resolved"),
    ],
)
async def test_an_address_of_elsewhere_is_one_clear_line(host, reason) -> None:
    with pytest.raises(ListenError) as caught:
        await WebServer(app(), Address(host, 9000)).start()
    assert reason in str(caught.value)


async def test_stop_is_quick_with_idle_connections_and_a_request_that_never_ends() -> None:
    server = WebServer(app("/", asyncio.Event()), parse_address("127.0.0.1:0"))
    await server.start()
    idle = await asyncio.open_connection("127.0.0.1", server.port)
    half = await asyncio.open_connection("127.0.0.1", server.port)
    hung = await asyncio.open_connection("127.0.0.1", server.port)
    half[1].write(b"GET / HTTP/1.1\r\nHost")
    hung[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    idle[1].write(b"GET /else HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await idle[0].readline()).startswith(b"HTTP/1.1 404")
    began = time.monotonic()
    await server.stop()
    assert time.monotonic() - began < 2
    for _, writer in (idle, half, hung):
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# the client


@contextlib.contextmanager
def raw_server(answer):
    """Answers every connection with these bytes and closes it; None: never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        if answer is None:
                            done.wait(10)
                        else:
                            connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def http_answer(status, body, kind="application/json"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def failure(server, path="/nodes", **options):
    with pytest.raises(ServerError) as caught:
        fetch(server, path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_server_may_be_given_without_a_scheme_and_with_a_path() -> None:
    with raw_server(http_answer("200 OK", '{"taken_at": "now"}')) as url:
        for server in (url, f"{url}/", f"{url}/a/proxy/path/", url.removeprefix("http://")):
            assert fetch(server, "/nodes") == {"taken_at": "now"}


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with raw_server(http_answer("200 OK", '{"taken_at": "now"}')) as url:
        assert fetch(url, "/nodes") == {"taken_at": "now"}


async def test_a_node_name_is_quoted() -> None:
    async with WebServer(
        app("/nodes/{name}", '{"taken_at": "now"}'), parse_address("127.0.0.1:0")
    ) as server:
        assert await ask(server.url, "/nodes/a b#%é") == {"taken_at": "now"}


def echo_server(seen, answer):
    """Answers with these bytes, and puts what was asked into ``seen``."""

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers["Authorization"]))
            self.wfile.write(answer)
            self.close_connection = True

        def log_message(self, *_):
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)


@contextlib.contextmanager
def echoing(seen, answer):
    server = echo_server(seen, answer)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_a_token_is_sent_and_not_to_where_a_redirect_leads(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token\n")
    here, there = [], []
    with echoing(there, http_answer("200 OK", '{"taken_at": "now"}')) as elsewhere:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}/nodes\r\nContent-Length: 0\r\n\r\n"
        with echoing(here, moved.encode()) as url:
            assert fetch(url, "/nodes", token_file=file) == {"taken_at": "now"}
    assert here == [("/nodes", "Bearer a-token")]
    assert there == [("/nodes", None)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "it does not hold one token and no more"),
        (b"two s3cret", "it does not hold one token and no more"),
        (b"s3cret\nX: y", "it does not hold one token and no more"),
        (b"s3cret\xff", "it does not hold one token and no more"),
        (b"s3cret" * 20_000, "it does not hold one token and no more"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_one_line(tmp_path, content, reason) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    message = failure("http://127.0.0.1:1", token_file=file)
    assert message == f"--server-token-file {file}: {reason}"


def test_who_is_not_let_in_reads_which_flag_sends_a_token(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    with raw_server(http_answer("401 Unauthorized", '{"error": "it needs a token"}')) as url:
        assert failure(url) == (
            "it needs a token; name a file that holds the token with --server-token-file"
        )
    with raw_server(http_answer("401 Unauthorized", '{"error": "it is unknown"}')) as url:
        told = failure(url, token_file=file)
        assert told == f"it is unknown; it was read from --server-token-file {file}"


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        expected = f"cannot ask {url}: connection refused; is dynsched running? use --server URL"
        assert failure(url) == expected


def test_a_host_that_is_not_known() -> None:
    assert failure("http://no-such-host.invalid:9000").startswith(
        "cannot ask http://no-such-host.invalid:9000: "
    )


def test_a_server_that_hangs() -> None:
    with raw_server(None) as url:
        assert failure(url, timeout=0.2) == (
            f"cannot ask {url}: no answer within 0.2 s; look at {url}/status"
        )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            http_answer(
                "404 Not Found", '{"error": "no node \'a\' in the cluster; /nodes lists them"}'
            ),
            "no node 'a' in the cluster; /nodes lists them",
        ),
        (http_answer("503 Service Unavailable", '{"error": "no tick yet"}'), "no tick yet"),
        (http_answer("502 Bad Gateway", "<html>", "text/html"), "answered 502 Bad Gateway; is it"),
        (http_answer("404 Not Found", '["x"]'), "answered 404 Not Found; is it dynsched?"),
        (http_answer("200 OK", "<html>login</html>", "text/html"), "does not answer as dynsched"),
        (http_answer("200 OK", '{"status": "success"}'), "does not answer as dynsched"),
        (http_answer("200 OK", "[1]"), "does not answer as dynsched"),
        (http_answer("200 OK", '{"taken_at": 1}')[:-3], "the connection broke; try again"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"", "cannot ask http://127.0.0.1"),
    ],
)
def test_answers_that_cannot_be_used(answer, message) -> None:
    with raw_server(answer) as url:
        assert message in failure(url)


def test_https_where_none_is_spoken() -> None:
    with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        server = url.replace("http:", "https:")
        message = failure(server)
        assert message.startswith(f"cannot ask {server}: what answers there does not speak TLS; ")
        assert "is it http:// instead of https://?" in message


@pytest.mark.parametrize(
    "server",
    [
        "",
        "ftp://host",
        "file:///etc/passwd",
        "http://",
        "http://h:99999",
        "http:/h:9000",
        "http//h:9000",
        "http://me:secret@h:9000",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(server) -> None:
    message = failure(server)
    assert message == "--server is not a URL like http://localhost:9000"
