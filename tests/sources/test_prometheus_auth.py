"""How the Prometheus source is let in: credentials, TLS, and that none of it is ever shown."""

import asyncio
import base64
import os
import re
import shutil
import socket
import threading
from pathlib import Path

import programs
import pytest
from certificates import Authority, Pair
from misbehaving_server import MisbehavingServer, Seen, http, vector
from source_support import Deadlines, ask, error_of, reaches, source_at, threads_end

from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.query_errors import PREPARING, WAITING, file_problem

SECRETS = ("s3cret-token", "s3cret-password", "s3cret-header", "s3cret-user")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


CUSTOM = {"X-Scope-OrgID": "tenant-1", "Authorization": "Custom s3cret-header"}


@pytest.mark.parametrize(
    "case",
    [
        ("", {}, None),
        ("", {"bearer_token": "s3cret-token"}, "Bearer s3cret-token"),
        ("", {"username": "jörg", "password": "pä:ss"}, basic("jörg", "pä:ss")),
        ("me%40x:s3cret%2Fpassword@", {}, basic("me@x", "s3cret/password")),
        ("", {"headers": CUSTOM}, "Custom s3cret-header"),
    ],
)
@pytest.mark.parametrize("has_netrc", [False, True])
async def test_credentials_and_a_netrc_changes_nothing(
    server, monkeypatch, tmp_path, case, has_netrc
) -> None:
    user, options, arrives = case
    if has_netrc:
        (tmp_path / "netrc").write_text("default login someone password else\n")
        (tmp_path / "netrc").chmod(0o600)
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    url = server.url.replace("//", f"//{user}") + "/p/"
    assert PrometheusConfig(url, **options).url == server.url + "/p"
    assert (await ask(url, **options)).error is None
    assert server.seen[0].headers.get("authorization") == arrives
    wanted = "tenant-1" if "headers" in options else None
    assert server.seen[0].headers.get("x-scope-orgid") == wanted


async def test_a_token_file_is_followed_through_rotation_and_loss(server, tmp_path) -> None:
    file = tmp_path / "token"
    remedy = "; check --prom-bearer-token-file, or the Secret and its mount"
    odd = f"{file} does not hold one bearer token and nothing else"
    async with source_at(server.url, bearer_token_file=str(file)) as source:
        for content, error in (
            (b" first-token\n", None),
            (b"second-token\n", None),
            (None, f"cannot read the bearer token file {file}: No such file or directory{remedy}"),
            (b" \n", f"the bearer token file {file} is empty{remedy}"),
            (b"\xff\xfe\x00", f"the bearer token file {file} is not text"),
            *((text.encode(), odd) for text in ("two words", "two\nlines", "x" * 70_000, "wört")),
            (Path.mkdir, f"Is a directory{remedy}"),
            # Opening it would wait for a writer, and end neither by time nor by SIGTERM.
            (os.mkfifo, f"{file}: this is a pipe, not a file{remedy}"),
            (b"third-token", None),
        ):
            file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
            if callable(content):
                content(file)
            elif content is not None:
                file.write_bytes(content)
            told = (await source.query_expr("x")).error
            assert (told is None) if error is None else (error in str(told)), (content, told)
    arrived = [request.headers["authorization"] for request in server.seen]
    assert arrived == ["Bearer first-token", "Bearer second-token", "Bearer third-token"]


async def test_a_password_file(server: MisbehavingServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    told = {"username": "ali", "password_file": str(file)}
    await ask(server.url, **told)
    assert server.seen[0].headers["authorization"] == basic("ali", "open sesame")
    file.unlink()
    assert f"cannot read the password file {file}" in await error_of(server.url, **told)


def test_a_file_that_may_not_be_read() -> None:
    refused = PermissionError(13, "Permission denied")  # root, as whom tests may run, may read all
    wanted = "file /f: Permission denied; check --prom-password-file, or the Secret and its mount"
    assert file_problem("password", "/f", refused) == f"cannot read the password {wanted}"


async def test_a_file_system_that_hangs_costs_the_query_its_time(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, deadlines: Deadlines
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(f"{PrometheusConfig.__module__}.read_file", lambda *_: answers.wait(60))
    async with source_at(server.url, bearer_token_file="/token") as source:
        asked = asyncio.create_task(source.query_expr("x"))
        await reaches(source, PREPARING)
        deadlines.pass_for(0)
        error = str((await asked).error)
    answers.set()
    assert error.endswith(
        "no answer within 60 s (while reading the token and the certificates); "
        "does the file system hang that they are on?"
    )


async def test_no_secret_in_any_error_warning_or_repr(server, caplog) -> None:
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
    shown = caplog.text
    for path in ("", "/good"):
        for user, options in (
            ("", {"bearer_token": "s3cret-token", "headers": headers}),
            ("s3cret-user:s3cret-password@", {"headers": headers}),
            ("", {"headers": {**headers, "Authorization": "Custom s3cret-token"}}),
        ):
            config = PrometheusConfig(server.url.replace("//", f"//{user}") + path, **options)
            source = PrometheusSource(config)
            result = await source.query_expr("x")
            assert "***" in str(result.error) + str(result.warnings)
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
    missing = await error_of(server.url)
    assert "HTTP 401 Unauthorized; set a bearer token (--prom-bearer-token-file), basic" in missing
    wrong = await error_of(server.url, bearer_token="old-token")
    assert "it refuses the configured credentials; are they current" in wrong


USER = {"username": "me", "password": "s3cret-password"}
TOKEN, FILE = {"bearer_token": "s3cret-token"}, {"bearer_token_file": "/t"}
HEADER = FILE | {"headers": {"authorization": "s3cret-header"}}
WRONG: list[tuple[dict[str, object], str]] = [
    ({"url": "localhost:9090"}, "'localhost:9090': the scheme is missing; write http://l"),
    ({"url": "prometheus"}, "the scheme is missing; write http://prometheus"),
    ({"url": ""}, "the scheme is missing"),
    ({"url": "me:s3cret-password@host:9090"}, "'host:9090': the scheme is missing; write h"),
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
    ({"url": "http://me:x@a", "username": "me"}, "it contains a user, and another one is conf"),
    ({"timeout": 0.0}, "--prom-timeout is 0.0: give seconds above 0"),
    ({"timeout": float("nan")}, "--prom-timeout is nan"),
    ({"timeout": float("inf")}, "--prom-timeout is inf"),
    ({"bearer_token": ""}, "--prom-bearer-token is empty or has a space or line break in it"),
    ({"bearer_token": "s3cret-token\n"}, "--prom-bearer-token is empty or has a space or line br"),
    (TOKEN | USER, "(--prom-bearer-token) or basic authentication (--prom-username), not both"),
    (TOKEN | FILE, "(--prom-bearer-token) or a bearer token (--prom-bearer-token-file), not both"),
    (HEADER, "(--prom-bearer-token-file) or an Authorization header (--prom-header), not both"),
    (HEADER | USER, "(--prom-username) or an Authorization header (--prom-header), only one of"),
    ({"username": "me"}, "--prom-username needs --prom-password-file (or --prom-password) too"),
    ({"password": "s3cret-password"}, "a password needs a user name: give --prom-username too"),
    ({**USER, "password_file": "/p"}, "give either --prom-password or --prom-password-file, not"),
    ({"cert_file": "/c"}, "--prom-cert-file needs --prom-key-file too"),
    ({"key_file": "/k"}, "--prom-key-file needs --prom-cert-file too"),
    ({"ca_file": "/c", "insecure_skip_verify": True}, "give either --prom-ca-file or --prom-inse"),
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


async def test_our_ca_file_counts_and_not_the_environments(
    authority: Authority, stranger: Authority, loopback: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = {"ca_file": authority.cert}, {"ca_file": stranger.cert}
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        for environment, options, wanted in (
            (None, ours, "None"),
            (stranger.cert, ours, "None"),
            (authority.cert, theirs, "TLS: its certificate is not trusted ("),
            (authority.cert, theirs, "give the CA file that signed it (--prom-ca-file)"),
            (
                authority.cert,
                {},
                "TLS: its certificate is not trusted (unable to get local issuer cert",
            ),
            (authority.cert, {"insecure_skip_verify": True}, "None"),  # does not undo the wish
        ):
            with monkeypatch.context() as patched:
                if environment is not None:
                    patched.setenv("REQUESTS_CA_BUNDLE", environment)
                assert wanted in await error_of(server.url, **options)
        assert len(server.seen) == 3


async def test_a_certificate_for_another_host(authority: Authority) -> None:
    other = authority.issue("other", "DNS:prometheus.example", "IP:127.0.0.2")
    with MisbehavingServer(tls=authority.server(other)) as server:
        error = await error_of(server.url, ca_file=authority.cert)
        assert "TLS: its certificate is for another host (IP address mismatch" in error
        assert (await ask(server.url, insecure_skip_verify=True)).error is None


async def test_not_verifying_is_logged_once_and_warns_nowhere_else(
    authority, loopback, caplog, recwarn
) -> None:
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        async with source_at(server.url, insecure_skip_verify=True) as source:
            for _ in range(2):
                assert (await source.query_expr("x")).error is None
    assert [record.message for record in caplog.records] == [
        f"the TLS certificate of {server.url} is not verified, as configured"
    ]
    assert not list(recwarn)


async def test_the_wrong_scheme(server: MisbehavingServer, authority: Authority) -> None:
    server._greet = lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    error = await error_of(server.url.replace("http:", "https:"), ca_file=authority.cert)
    assert "what answers there does not speak TLS; is it http:// instead of https://?" in error


async def test_a_client_certificate(authority, stranger, loopback, client) -> None:
    with MisbehavingServer(tls=authority.server(loopback, clients=authority.cert)) as server:
        ours = {"ca_file": authority.cert, "cert_file": client.cert, "key_file": client.key}
        assert (await ask(server.url, **ours)).error is None
        assert server.seen[0].client_name == "dynsched"
        none = await error_of(server.url, ca_file=authority.cert)
        assert "want another client certificate?" in none or "want a client certificate?" in none
        foreign = stranger.issue("dynsched")
        theirs = {**ours, "cert_file": foreign.cert, "key_file": foreign.key}
        assert "client certificate?" in await error_of(server.url, **theirs)


async def test_tls_files_that_cannot_be_used(authority, loopback, client, tmp_path) -> None:
    text, locked = str(tmp_path / "text.pem"), str(tmp_path / "locked.key")
    (tmp_path / "text.pem").write_text("not PEM")
    command = ("openssl", "ec", "-in", client.key, "-aes128", "-passout", "pass:x", "-out", locked)
    assert programs.run(*command).returncode == 0
    other = f"with the key {loopback.key}: the key belongs to another certificate"
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        for ca, cert, key, wanted in (
            ("/no", None, None, "cannot read the CA file /no: No such file"),
            (text, None, None, f"the CA file {text} holds no certificate in PEM form"),
            (authority.cert, client.cert, "/no", "cannot read the client key file /no: No such"),
            (authority.cert, client.cert, loopback.key, other),
            (authority.cert, client.cert, text, "cannot be used ("),
            (authority.cert, text, client.key, "cannot be used ("),
            # Nobody is asked for a passphrase, which would wait.
            (authority.cert, client.cert, locked, "the key is encrypted; give one without a pass"),
        ):
            error = await error_of(server.url, ca_file=ca, cert_file=cert, key_file=key)
            assert wanted in error
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
        async with source_at(server.url, **files) as source:

            async def error() -> str:
                return str((await source.query_expr("x")).error)

            assert "not trusted" in await error()
            put(authority.cert, client)
            assert await error() == "None"
            same = source._client.tls.context()
            assert source._client.tls.context() is same
            put(authority.cert, authority.issue("rotated"))
            assert await error() == "None"
            ca.unlink()
            assert "cannot read the CA file" in await error()
            for path in (ca, cert, key):
                put(authority.cert, client)
                path.unlink()
                os.mkfifo(path)
                assert f"{path}: this is a pipe" in await error()
            put(authority.cert, client)
            assert await error() == "None"
        assert [seen.client_name for seen in server.seen] == ["dynsched", "rotated", "dynsched"]


async def test_a_server_that_hangs_in_the_tls_handshake(authority, deadlines) -> None:
    def drips(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x3f\xff")  # a handshake record of 16 KB begins
        while not server.stopped.wait(0.05):
            connection.sendall(b"\0")

    with MisbehavingServer(greet=drips) as server:
        url = server.url.replace("http://", "https://")
        async with source_at(url, ca_file=authority.cert) as source:
            asked = asyncio.create_task(source.query_expr("x"))
            await reaches(source, WAITING)
            deadlines.pass_for(0)
            error = str((await asked).error)
            await threads_end()  # it does not stay with the server
    assert "no answer within 60 s (while waiting for the answer)" in error
