"""The client with which commands query a running dynsched."""

import pytest
from asking import fetch
from misbehaving_server import MisbehavingServer, http, sends

from dynsched.tools.client import ServerError

GOOD = '{"taken_at": "now"}'


@pytest.fixture
def server():
    with MisbehavingServer() as running:
        running.default = http(GOOD)
        yield running


def failure(server, path="/nodes", **options):
    with pytest.raises(ServerError) as caught:
        fetch(server, path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_server_may_be_given_without_a_scheme_and_with_a_path(server, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # the proxy is not used for loopback
    url = server.url
    for named in (url, f"{url}/", f"{url}/a/proxy/path/", url.removeprefix("http://")):
        assert fetch(named, "/nodes") == {"taken_at": "now"}


def test_a_token_is_sent_but_not_to_the_target_of_a_redirect(server, tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token\n")
    with MisbehavingServer() as first:
        first.default = http("", 302, Location=f"{server.url}/nodes")
        assert fetch(first.url, "/nodes", token_file=file) == {"taken_at": "now"}
    arrived = [each.headers.get("authorization") for each in (*first.seen, *server.seen)]
    assert arrived == ["Bearer a-token", None]


@pytest.mark.parametrize("content", [None, b"", b"two s3cret", b"s3cret\xff"])
def test_an_unusable_token_file_is_a_one_line_error(tmp_path, content) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    message = failure("http://127.0.0.1:1", token_file=file)
    reason = (
        "it does not hold one token and no more" if file.exists() else "No such file or directory"
    )
    assert message == f"--server-token-file {file}: {reason}"


def test_a_401_names_the_flag_that_sends_a_token(server) -> None:
    server.default = http('{"error": "it is unknown"}', 401)
    error = failure(server.url)
    assert error.startswith("it is unknown; name a file that holds the token with --server-token-f")


def test_a_hanging_server_is_an_error_after_the_time_limit(server) -> None:
    server.default, url = server.hang, server.url
    message = failure(url, timeout=0.05)
    assert message == f"cannot ask {url}: no answer within 0.05 s; look at {url}/status"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http('{"error": "no tick yet"}', 503), "no tick yet"),
        (http("<html>", 502), "answered 502 Bad Gateway; is it"),
        (http('["x"]', 404), "answered 404 Not Found; is it dynsched?"),
        (http("<html>", content_type="text/html"), "does not answer like dynsched"),
        (http('{"status": "success"}'), "does not answer like dynsched"),
        (http(GOOD)[:-3], "the connection broke; try again"),
        (sends(), "cannot ask http://127.0.0.1"),
    ],
)
def test_unusable_responses_are_errors_with_a_reason(server, answer, message) -> None:
    server.default = answer
    assert message in failure(server.url)


BAD_URLS = "|ftp://host|file:///etc/passwd|http://|http://h:99999|http:/h:9000|http//h:9000"


@pytest.mark.parametrize("server", [*BAD_URLS.split("|"), "http://me:secret@h:9000"])
def test_an_invalid_url_is_refused_and_not_repeated(server) -> None:
    assert failure(server) == "--server is not a URL like http://localhost:9000"
