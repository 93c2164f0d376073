"""The client that the commands use to ask a running dynsched."""

import contextlib
import socket
import threading

import pytest
from asking import fetch

from dynsched.tools.client import ServerError

GOOD = '{"taken_at": "now"}'


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


@pytest.mark.parametrize("content", [None, b"", b"two s3cret", b"s3cret\xff", b"s3cret" * 20_000])
def test_a_token_file_that_cannot_be_used_is_one_line(tmp_path, content) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    message = failure("http://127.0.0.1:1", token_file=file)
    reason = (
        "it does not hold one token and no more" if file.exists() else "No such file or directory"
    )
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


def test_a_server_that_hangs_is_not_waited_for() -> None:
    with raw_server(None) as (url, _):
        assert failure(url, timeout=0.05) == (
            f"cannot ask {url}: no answer within 0.05 s; look at {url}/status"
        )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http_answer("503 Service Unavailable", '{"error": "no tick yet"}'), "no tick yet"),
        (http_answer("502 Bad Gateway", "<html>"), "answered 502 Bad Gateway; is it"),
        (http_answer("404 Not Found", '["x"]'), "answered 404 Not Found; is it dynsched?"),
        (http_answer("200 OK", "<html>", kind="text/html"), "does not answer as dynsched"),
        (http_answer("200 OK", '{"status": "success"}'), "does not answer as dynsched"),
        (http_answer("200 OK", "[1]"), "does not answer as dynsched"),
        (http_answer("200 OK", GOOD)[:-3], "the connection broke; try again"),
        (b"", "cannot ask http://127.0.0.1"),
    ],
)
def test_answers_that_cannot_be_used(answer, message) -> None:
    with raw_server(answer) as (url, _):
        assert message in failure(url)


BAD_URLS = "|ftp://host|file:///etc/passwd|http://|http://h:99999|http:/h:9000|http//h:9000"


@pytest.mark.parametrize("server", [*BAD_URLS.split("|"), "http://me:secret@h:9000"])
def test_what_is_no_url_is_refused_and_not_repeated(server) -> None:
    assert failure(server) == "--server is not a URL like http://localhost:9000"
