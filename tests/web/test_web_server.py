"""The server's addresses and its end; the client that the commands use."""

import asyncio
import contextlib
import socket
import threading

import pytest
from aiohttp import web
from asking import fetch

from dynsched.tools.client import ServerError
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
        ("10.0.0.1:1", Address("10.0.0.1", 1), "10.0.0.1:1", False),
        ("localhost.a.com:1", Address("localhost.a.com", 1), "localhost.a.com:1", False),
    ],
)
def test_an_address_is_read_and_shown(text, address, shown, loopback) -> None:
    assert parse_address(text) == address
    assert str(address) == shown
    assert address.loopback is loopback


NO_PORTS = ["", "localhost", "http://localhost:9000", "::1:9000", "[::1]", ":http", ":-1", "a b:1"]


@pytest.mark.parametrize("text", [*NO_PORTS, ":\uff19", ":70000"])
def test_what_is_no_address_is_refused_with_a_hint(text) -> None:
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


@pytest.mark.parametrize("text", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_it_listens_where_it_says(text) -> None:
    if text == "[::1]:0" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with WebServer(app(), parse_address(text)) as server:
        url = server.url
        assert await ask(url) == {"taken_at": "now"}
    with pytest.raises(ServerError) as caught:
        await ask(url)
    assert str(caught.value).startswith(f"cannot ask {url}: connection refused")


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_no_host_is_every_interface_and_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = Address(None, probe.getsockname()[1])
    async with WebServer(app("/nodes/{name}"), address) as server:
        assert server.url == f"http://localhost:{address.port}"
        for host in ("http://127.0.0.1", "http://localhost", "localhost", ""):
            assert await ask(f"{host}:{address.port}", "/nodes/a b#%é")  # a name is quoted
        address = Address("127.0.0.1", address.port)
        with pytest.raises(ListenError) as caught:
            await WebServer(app(), address).start()
    assert str(caught.value) == (
        f"cannot listen on {address}: the port is in use; "
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


async def test_stop_waits_neither_for_idle_connections_nor_for_a_request_that_never_ends() -> None:
    server = WebServer(app("/", asyncio.Event()), ANYWHERE)
    await server.start()
    idle, half, hung = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    half[1].write(b"GET / HTTP/1.1\r\nHost")
    hung[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    idle[1].write(b"GET /else HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await idle[0].readline()).startswith(b"HTTP/1.1 404")
    async with asyncio.timeout(9):  # less than what a connection may take
        await server.stop()
    for _, writer in (idle, half, hung):
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def raw_server(answer):
    """Answers every connection with these bytes and closes it; None: never answers. What was
    asked is in the list.
    """
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        asked.append(connection.recv(65536).decode(errors="replace"))
                        if answer is None:
                            done.wait(60)
                        else:
                            connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def http_answer(status, body, *more, kind="application/json"):
    fields = (f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more)
    return ("\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")) + body).encode()


def failure(server, path="/nodes", **options):
    with pytest.raises(ServerError) as caught:
        fetch(server, path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_server_may_be_given_without_a_scheme_and_with_a_path(monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # is not asked for loopback
    with raw_server(http_answer("200 OK", GOOD)) as (url, _):
        for server in (url, f"{url}/", f"{url}/a/proxy/path/", url.removeprefix("http://")):
            assert fetch(server, "/nodes") == {"taken_at": "now"}


def test_a_token_is_sent_and_not_to_where_a_redirect_leads(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token\n")
    with raw_server(http_answer("200 OK", GOOD)) as (elsewhere, there):
        moved = http_answer("302 Found", "", f"Location: {elsewhere}/nodes")
        with raw_server(moved) as (url, here):
            assert fetch(url, "/nodes", token_file=file) == {"taken_at": "now"}
    assert [len(here), len(there)] == [1, 1]
    assert here[0].startswith("GET /nodes ")
    assert "\r\nAuthorization: Bearer a-token\r\n" in here[0]
    assert "Authorization" not in there[0]


NO_TOKEN = "it does not hold one token and no more"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        *(
            (content, NO_TOKEN)
            for content in (b"", b"two s3cret", b"s3cret\nX: y", b"s3cret\xff", b"s3cret" * 20_000)
        ),
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
    with raw_server(http_answer("401 Unauthorized", '{"error": "it is unknown"}')) as (url, _):
        assert failure(url) == (
            "it is unknown; name a file that holds the token with --server-token-file"
        )
        told = failure(url, token_file=file)
        assert told == f"it is unknown; it was read from --server-token-file {file}"


def test_a_host_that_is_not_known_and_a_server_that_hangs() -> None:
    unknown = "http://no-such-host.invalid:9000"
    assert failure(unknown).startswith(f"cannot ask {unknown}: ")
    with raw_server(None) as (url, _):
        assert failure(url, timeout=0.05) == (
            f"cannot ask {url}: no answer within 0.05 s; look at {url}/status"
        )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http_answer("404 Not Found", '{"error": "no node \'a\'"}'), "no node 'a'"),
        (http_answer("503 Service Unavailable", '{"error": "no tick yet"}'), "no tick yet"),
        (http_answer("502 Bad Gateway", "<html>"), "answered 502 Bad Gateway; is it"),
        (http_answer("404 Not Found", '["x"]'), "answered 404 Not Found; is it dynsched?"),
        (http_answer("200 OK", "<html>", kind="text/html"), "does not answer as dynsched"),
        (http_answer("200 OK", '{"status": "success"}'), "does not answer as dynsched"),
        (http_answer("200 OK", "[1]"), "does not answer as dynsched"),
        pytest.param(http_answer("200 OK", "[" * 200_000), "not answer as dynsched", id="deep"),
        (http_answer("200 OK", GOOD)[:-3], "the connection broke; try again"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"", "cannot ask http://127.0.0.1"),
    ],
)
def test_answers_that_cannot_be_used(answer, message) -> None:
    with raw_server(answer) as (url, _):
        assert message in failure(url)


def test_https_where_none_is_spoken() -> None:
    with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (url, _):
        server = url.replace("http:", "https:")
        message = failure(server)
    assert message.startswith(f"cannot ask {server}: what answers there does not speak TLS; ")
    assert "is it http:// instead of https://?" in message


BAD_URLS = "|ftp://host|file:///etc/passwd|http://|http://h:99999|http:/h:9000|http//h:9000"


@pytest.mark.parametrize("server", [*BAD_URLS.split("|"), "http://me:secret@h:9000"])
def test_what_is_no_url_is_refused_and_not_repeated(server) -> None:
    assert failure(server) == "--server is not a URL like http://localhost:9000"
