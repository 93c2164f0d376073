"""How the Prometheus source is let in: credentials, TLS, and that none of it is ever shown."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import socket
import threading
import time
from pathlib import Path

import programs
import pytest
from certificates import Authority, Pair
from misbehaving_server import MisbehavingServer, Seen, http, vector

from dynsched.core.model import QueryResult
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.failures import file_problem
from dynsched.sources.prometheus.tls import TlsFiles

SECRETS = ("s3cret-token", "s3cret-password", "s3cret-header", "s3cret-user")


async def ask(config: PrometheusConfig) -> QueryResult:
    source = PrometheusSource(config)
    try:
        return await source.query_expr("x")
    finally:
        await source.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


# --- what arrives


async def test_without_credentials_none_are_sent(server: MisbehavingServer) -> None:
    assert (await ask(PrometheusConfig(server.url))).error is None
    assert "authorization" not in server.seen[0].headers


async def test_a_bearer_token(server: MisbehavingServer) -> None:
    await ask(PrometheusConfig(server.url, bearer_token="s3cret-token"))
    assert server.seen[0].headers["authorization"] == "Bearer s3cret-token"


async def test_basic_authentication_in_utf8(server: MisbehavingServer) -> None:
    await ask(PrometheusConfig(server.url, username="jörg", password="pä:ss"))
    assert server.seen[0].headers["authorization"] == basic("jörg", "pä:ss")


async def test_a_user_in_the_url(server: MisbehavingServer) -> None:
    url = server.url.replace("http://", "http://me%40x:s3cret%2Fpassword@") + "/p/"
    config = PrometheusConfig(url)
    assert config.url == server.url + "/p"
    await ask(config)
    assert server.seen[0].headers["authorization"] == basic("me@x", "s3cret/password")


async def test_extra_headers(server: MisbehavingServer) -> None:
    headers = {"X-Scope-OrgID": "tenant-1", "Authorization": "Custom s3cret-header"}
    await ask(PrometheusConfig(server.url, headers=headers))
    assert server.seen[0].headers["x-scope-orgid"] == "tenant-1"
    assert server.seen[0].headers["authorization"] == "Custom s3cret-header"


@pytest.mark.parametrize("options", [{}, {"bearer_token": "s3cret-token"}])
async def test_a_netrc_changes_nothing(
    server: MisbehavingServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: dict[str, str],
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    await ask(PrometheusConfig(server.url, **options))
    expected = "Bearer s3cret-token" if options else None
    assert server.seen[0].headers.get("authorization") == expected


# --- files are read anew


async def test_a_token_file_is_followed_through_rotation_and_loss(
    server: MisbehavingServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(" first-token\n")
    source = PrometheusSource(PrometheusConfig(server.url, bearer_token_file=str(file)))

    async def error() -> str | None:
        return (await source.query_expr("x")).error

    assert await error() is None
    file.write_text("second-token\n")
    assert await error() is None
    file.unlink()
    remedy = "; check --prom-bearer-token-file, or the Secret and its mount"
    missing = f"cannot read the bearer token file {file}: No such file or directory{remedy}"
    assert str(await error()).endswith(missing)
    file.write_text(" \n")
    assert str(await error()).endswith(f"the bearer token file {file} is empty{remedy}")
    file.write_bytes(b"\xff\xfe\x00")
    assert f"the bearer token file {file} is not text" in str(await error())
    for odd in ("two words", "two\nlines", "x" * 70_000, "wört"):
        file.write_text(odd)
        assert f"{file} does not hold one bearer token and nothing else" in str(await error())
    file.unlink()
    file.mkdir()
    assert str(await error()).endswith(f"Is a directory{remedy}")
    file.rmdir()
    os.mkfifo(file)  # opening it would wait for a writer, and end neither by time nor by SIGTERM
    assert str(await error()).endswith(f"{file}: this is a pipe, not a file{remedy}")
    file.unlink()
    file.write_text("third-token")
    assert await error() is None
    await source.close()
    arrived = [request.headers["authorization"] for request in server.seen]
    assert arrived == ["Bearer first-token", "Bearer second-token", "Bearer third-token"]


async def test_a_password_file(server: MisbehavingServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    config = PrometheusConfig(server.url, username="ali", password_file=str(file))
    await ask(config)
    assert server.seen[0].headers["authorization"] == basic("ali", "open sesame")
    file.unlink()
    assert f"cannot read the password file {file}" in str((await ask(config)).error)


@pytest.mark.parametrize(
    ("what", "flag"),
    [("password", "--prom-password-file"), ("CA (from CURL_CA_BUNDLE)", "CURL_CA_BUNDLE")],
)
def test_a_file_that_may_not_be_read(what: str, flag: str) -> None:
    refused = PermissionError(13, "Permission denied")  # root, as whom tests may run, may read all
    said = file_problem(what, "/f", refused)
    assert (
        said == f"cannot read the {what} file /f: Permission denied; check its permissions ({flag})"
    )


async def test_a_file_system_that_hangs_costs_the_query_its_time(
    server: MisbehavingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    answers = threading.Event()
    monkeypatch.setattr(f"{PrometheusConfig.__module__}.read_file", lambda *_: answers.wait(30))
    found = await ask(PrometheusConfig(server.url, bearer_token_file=str(file), timeout=0.2))
    answers.set()
    assert str(found.error).endswith(
        "no answer within 0.2 s (while reading the token and the certificates); "
        "does the file system hang that they are on?"
    )


# --- nothing is shown


async def test_no_secret_in_any_error_warning_or_repr(
    server: MisbehavingServer, caplog: pytest.LogCaptureFixture
) -> None:
    def echoes(request: Seen, connection: socket.socket) -> None:
        sent = request.headers["authorization"]
        plain = base64.b64decode(sent.split()[1]).decode() if "Basic" in sent else sent
        everything = f"{sent} {plain} {request.headers['x-secret']}"
        if request.path.startswith("/good"):
            connection.sendall(http(vector(({}, "1"), warnings=[everything])))
        else:
            connection.sendall(http(f"denied: {everything}", 401))

    server.default = echoes
    headers = {"X-Secret": "s3cret-header"}
    with_user = server.url.replace("//", "//s3cret-user:s3cret-password@")
    shown = caplog.text
    for path in ("", "/good"):
        for config in (
            PrometheusConfig(server.url + path, bearer_token="s3cret-token", headers=headers),
            PrometheusConfig(with_user + path, headers=headers),
            PrometheusConfig(
                server.url + path, headers={**headers, "Authorization": "Custom s3cret-token"}
            ),
        ):
            result = await ask(config)
            assert "***" in str(result.error) + str(result.warnings)
            source = PrometheusSource(config)
            shown += f"{result!r} {config!r} {config} {source!r} {config.credentials()!r}"
            await source.close()
    assert not [secret for secret in SECRETS if secret in shown.replace("s3cret-user:", "")]
    assert not re.search(r"czNjcmV0", shown)  # nor in base64
    assert server.url in shown


def test_parts_of_a_secret_are_not_shown_either() -> None:
    headers = {"Authorization": "Custom s3cret", "X-Key": "s3cret-and-more", "X-Scope-OrgID": "1"}
    credentials = PrometheusConfig("http://p", headers=headers).credentials()
    said = credentials.redact("1:5: who is s3cret-and-more? s3cret is")
    assert said == "1:5: who is ***? *** is"


async def test_a_wrong_credential_is_told_from_a_missing_one(server: MisbehavingServer) -> None:
    server.default = http("", 401)
    missing = str((await ask(PrometheusConfig(server.url))).error)
    assert "HTTP 401 Unauthorized; set a bearer token (--prom-bearer-token-file), basic" in missing
    wrong = str((await ask(PrometheusConfig(server.url, bearer_token="old-token"))).error)
    assert "it refuses the configured credentials; are they current" in wrong


# --- a configuration that cannot work

WRONG: list[tuple[dict[str, object], str]] = [
    (
        {"url": "localhost:9090"},
        "'localhost:9090': the scheme is missing; write http://localhost:9",
    ),
    ({"url": "prometheus"}, "the scheme is missing; write http://prometheus"),
    ({"url": ""}, "the scheme is missing"),
    (
        {"url": "me:s3cret-password@host:9090"},
        "'host:9090': the scheme is missing; write http://ho",
    ),
    ({"url": "unix:///run/p.sock"}, "only http:// and https:// are possible"),
    ({"url": "http://"}, "the host is missing"),
    ({"url": "http:///path"}, "the host is missing"),
    ({"url": "http://me:s3cret-password@"}, "the host is missing"),
    ({"url": "http://a b:9090"}, "the host is missing, or there is a space in it"),
    ({"url": "http://a\n:9090"}, "there is a space in it"),
    ({"url": "http://a:99999"}, "the host or the port is malformed"),
    ({"url": "http://me:s3cret-password@a:port"}, "'a:port': the host or the port is malformed"),
    ({"url": "http://[::1:9090"}, "the host or the port is malformed"),
    ({"url": f"http://{'a' * 70}:9090"}, "the host or the port is malformed"),
    ({"url": "http://a:9090/?token=s3cret-token"}, "it must end with the path, before ? and #"),
    (
        {"url": "http://me:x@a", "username": "me"},
        "it contains a user, and another one is configured separately",
    ),
    ({"timeout": 0.0}, "--prom-timeout is 0.0: give seconds above 0"),
    ({"timeout": float("nan")}, "--prom-timeout is nan"),
    ({"timeout": float("inf")}, "--prom-timeout is inf"),
    ({"bearer_token": ""}, "--prom-bearer-token is empty or has a space or line break in it"),
    ({"bearer_token": "s3cret-token\n"}, "--prom-bearer-token is empty or has a space or line br"),
    (
        {"bearer_token": "s3cret-token", "username": "me", "password": "s3cret-password"},
        "(--prom-bearer-token) or basic authentication (--prom-username), not both",
    ),
    (
        {"bearer_token": "s3cret-token", "bearer_token_file": "/t"},
        "(--prom-bearer-token) or a bearer token (--prom-bearer-token-file), not both",
    ),
    (
        {"bearer_token_file": "/t", "headers": {"authorization": "s3cret-header"}},
        "(--prom-bearer-token-file) or an Authorization header (--prom-header), not both",
    ),
    (
        {
            "bearer_token_file": "/t",
            "headers": {"authorization": "s3cret-header"},
            "username": "me",
            "password": "s3cret-password",
        },
        "(--prom-username) or an Authorization header (--prom-header), only one of them",
    ),
    ({"username": "me"}, "--prom-username needs --prom-password-file (or --prom-password) too"),
    ({"password": "s3cret-password"}, "a password needs a user name: give --prom-username too"),
    (
        {"username": "me", "password": "s3cret-password", "password_file": "/p"},
        "give either --prom-password or --prom-password-file, not both",
    ),
    ({"username": "m:e", "password": "x"}, "--prom-username has a colon in it"),
    ({"cert_file": "/c"}, "--prom-cert-file needs --prom-key-file too"),
    ({"key_file": "/k"}, "--prom-key-file needs --prom-cert-file too"),
    (
        {"ca_file": "/c", "insecure_skip_verify": True},
        "give either --prom-ca-file or --prom-insecure-skip-verify, not both",
    ),
    ({"headers": {"X Y": "s3cret-header"}}, "--prom-header 'X Y': this is no header name"),
    ({"headers": {"X": "s3cret-header\r\nY: z"}}, "header X: its value must be printable ASCII"),
    ({"headers": {"X": " s3cret-header"}}, "header X: its value must be printable ASCII"),
    ({"headers": {"X": "s3cret-heäder"}}, "header X: its value must be printable ASCII"),
    ({"headers": {"Content-Length": "1"}}, "--prom-header Content-Length: it belongs to"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_configuration_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        PrometheusConfig(**{"url": "http://p:9090", **fields})
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ValueError) as refused:
        PrometheusConfig("localhost", timeout=-1, key_file="/k", headers={"": ""})
    assert str(refused.value).count("; ") == 4  # one of them inside a message


def test_urls_that_are_right() -> None:
    for url in ("http://[::1]:9090", "https://p.example/a/b", "http://münchen.example"):
        assert PrometheusConfig(url + "/").url == url


# --- TLS


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    programs.need("openssl", "openssl")
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def loopback(authority: Authority) -> Pair:
    return authority.issue("prometheus", "IP:127.0.0.1")


@pytest.fixture(scope="session")
def client(authority: Authority) -> Pair:
    return authority.issue("dynsched")


async def test_our_ca_file_wins_over_the_environments(
    authority: Authority, stranger: Authority, loopback: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        trusted = PrometheusConfig(server.url, ca_file=authority.cert, bearer_token="s3cret-token")
        assert (await ask(trusted)).error is None
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", stranger.cert)
        assert (await ask(trusted)).error is None
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority.cert)
        assert (await ask(PrometheusConfig(server.url))).error is None
        untrusted = PrometheusConfig(server.url, ca_file=stranger.cert, bearer_token="s3cret-token")
        assert "TLS: its certificate is not trusted (" in str((await ask(untrusted)).error)
        assert "give the CA file that signed it (--prom-ca-file)" in str(
            (await ask(untrusted)).error
        )
        assert len(server.seen) == 3
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.crt")
        assert "cannot read the CA (from REQUESTS_CA_BUNDLE) file /nowhere/ca.crt: No such" in str(
            (await ask(PrometheusConfig(server.url))).error
        )


async def test_a_public_authority_did_not_sign_it(
    authority: Authority, loopback: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        error = str((await ask(PrometheusConfig(server.url))).error)
        assert "TLS: its certificate is not trusted (unable to get local issuer cert" in error
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority.cert)  # does not undo the wish
        unverified = PrometheusConfig(server.url, insecure_skip_verify=True)
        assert (await ask(unverified)).error is None


async def test_a_certificate_for_another_host(authority: Authority) -> None:
    other = authority.issue("other", "DNS:prometheus.example", "IP:127.0.0.2")
    with MisbehavingServer(tls=authority.server(other)) as server:
        config = PrometheusConfig(server.url, ca_file=authority.cert)
        error = str((await ask(config)).error)
        assert "TLS: its certificate is for another host (IP address mismatch" in error
        assert "use a name that is in it" in error
        unverified = PrometheusConfig(server.url, insecure_skip_verify=True)
        assert (await ask(unverified)).error is None


async def test_not_verifying_is_logged_once_and_warns_nowhere_else(
    authority: Authority,
    loopback: Pair,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        source = PrometheusSource(PrometheusConfig(server.url, insecure_skip_verify=True))
        for _ in range(2):
            assert (await source.query_expr("x")).error is None
        await source.close()
    assert [record.message for record in caplog.records] == [
        f"the TLS certificate of {server.url} is not verified, as configured"
    ]
    assert not list(recwarn)


async def test_the_wrong_scheme(server: MisbehavingServer, authority: Authority) -> None:
    https = PrometheusConfig(server.url.replace("http://", "https://"), ca_file=authority.cert)
    server._greet = lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    error = str((await ask(https)).error)
    assert "what answers there does not speak TLS; is it http:// instead of https://?" in error


async def test_a_client_certificate(
    authority: Authority, stranger: Authority, loopback: Pair, client: Pair
) -> None:
    with MisbehavingServer(tls=authority.server(loopback, clients=authority.cert)) as server:
        ours = {"ca_file": authority.cert, "cert_file": client.cert, "key_file": client.key}
        assert (await ask(PrometheusConfig(server.url, **ours))).error is None
        assert server.seen[0].client_name == "dynsched"
        none = str((await ask(PrometheusConfig(server.url, ca_file=authority.cert))).error)
        assert "want another client certificate?" in none or "want a client certificate?" in none
        foreign = stranger.issue("dynsched")
        theirs = {**ours, "cert_file": foreign.cert, "key_file": foreign.key}
        unknown = str((await ask(PrometheusConfig(server.url, **theirs))).error)
        assert "client certificate?" in unknown


async def test_tls_files_that_cannot_be_used(
    authority: Authority, loopback: Pair, client: Pair, tmp_path: Path
) -> None:
    text = tmp_path / "text.pem"
    text.write_text("not PEM")
    locked = tmp_path / "locked.key"
    command = ("openssl", "ec", "-in", client.key, "-aes128", "-passout", "pass:x", "-out", locked)
    assert programs.run(*command).returncode == 0
    with MisbehavingServer(tls=authority.server(loopback)) as server:

        async def error(**files: str | Path) -> str:
            fields = {name: str(path) for name, path in files.items()}
            return str((await ask(PrometheusConfig(server.url, **fields))).error)

        ca = authority.cert
        assert "cannot read the CA file /nowhere: No such file" in await error(ca_file="/nowhere")
        assert f"the CA file {text} holds no certificate in PEM form" in await error(ca_file=text)
        pair = {"ca_file": ca, "cert_file": client.cert}
        gone = await error(**pair, key_file="/nowhere")
        assert "cannot read the client key file /nowhere: No such file or directory" in gone
        other = await error(**pair, key_file=loopback.key)
        assert f"with the key {loopback.key}: the key belongs to another certificate" in other
        assert "cannot be used (" in await error(**pair, key_file=text)
        assert "cannot be used (" in await error(ca_file=ca, cert_file=text, key_file=client.key)
        started = time.monotonic()
        assert "the key is encrypted; give one without a pass" in await error(
            **pair, key_file=locked
        )
        assert time.monotonic() - started < 2, "nobody was asked for a passphrase"
        assert server.seen == []


async def test_rotated_tls_files_are_taken_up(
    authority: Authority, stranger: Authority, loopback: Pair, client: Pair, tmp_path: Path
) -> None:
    ca, cert, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))

    def put(authority_cert: str, pair: Pair) -> None:
        for source, target in ((authority_cert, ca), (pair.cert, cert), (pair.key, key)):
            shutil.copy(source, f"{target}.new")
            os.replace(f"{target}.new", target)  # noqa: PTH105

    put(stranger.cert, client)
    with MisbehavingServer(tls=authority.server(loopback, clients=authority.cert)) as server:
        files = {"ca_file": str(ca), "cert_file": str(cert), "key_file": str(key)}
        source = PrometheusSource(PrometheusConfig(server.url, **files))
        assert "not trusted" in str((await source.query_expr("x")).error)
        put(authority.cert, client)
        assert (await source.query_expr("x")).error is None
        same = source._client.tls.context()
        assert source._client.tls.context() is same
        put(authority.cert, authority.issue("rotated"))
        assert (await source.query_expr("x")).error is None
        ca.unlink()
        assert "cannot read the CA file" in str((await source.query_expr("x")).error)
        for path in (ca, cert, key):
            put(authority.cert, client)
            path.unlink()
            os.mkfifo(path)
            assert f"{path}: this is a pipe" in str((await source.query_expr("x")).error)
        put(authority.cert, client)
        assert (await source.query_expr("x")).error is None
        await source.close()
        assert [seen.client_name for seen in server.seen] == ["dynsched", "rotated", "dynsched"]


def test_another_file_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    prints = []
    for folder in ("..data1", "..data2"):  # as a mounted Secret is replaced
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ca.crt").write_text("the same size")
        os.utime(tmp_path / folder / "ca.crt", (1, 1))
        link = tmp_path / "ca.crt"
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / folder / "ca.crt")
        prints.append(TlsFiles._stat("CA", str(link)))
    assert prints[0] != prints[1]


async def test_a_server_that_hangs_in_the_tls_handshake(authority: Authority) -> None:
    def drips(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x3f\xff")  # a handshake record of 16 KB begins
        while not server.stopped.wait(0.1):
            connection.sendall(b"\0")

    with MisbehavingServer(greet=drips) as server:
        url = server.url.replace("http://", "https://")
        result = await ask(PrometheusConfig(url, timeout=0.6, ca_file=authority.cert))
        until = time.monotonic() + 1
        while any(thread.name == "prometheus-query" for thread in threading.enumerate()):
            assert time.monotonic() < until, "the thread must not stay with the server"
            await asyncio.sleep(0.01)
    assert "no answer within 0.6 s (while waiting for the answer)" in str(result.error)
    assert result.duration < 1.3
