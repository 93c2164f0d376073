"""Authentication of the Prometheus source: credentials and TLS. No secret is ever shown."""

import base64
import os
import re
import shutil
import socket
from pathlib import Path

import programs
import pytest
from certificates import Authority, Pair
from misbehaving_server import MisbehavingServer, Seen, http, vector
from source_support import ask, error_of, source_at

from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

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
async def test_credentials_are_sent_and_a_netrc_file_is_ignored(
    server, monkeypatch, tmp_path, case
) -> None:
    user, options, authorization = case
    (tmp_path / "netrc").write_text("default login someone password else\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    url = server.url.replace("//", f"//{user}") + "/p/"
    assert PrometheusConfig(url, **options).url == server.url + "/p"
    assert (await ask(url, **options)).error is None
    assert server.seen[0].headers.get("authorization") == authorization
    wanted = "tenant-1" if "headers" in options else None
    assert server.seen[0].headers.get("x-scope-orgid") == wanted


async def test_a_token_file_is_read_again_after_rotation_and_loss(server, tmp_path) -> None:
    file = tmp_path / "token"
    odd = "it does not hold one secret"
    source = source_at(server.url, bearer_token_file=str(file))
    for content, error in (
        (b" first-token\n", None),
        (b"second-token\n", None),
        (None, "No such file or directory"),
        (b" \n", odd),
        (b"\xff\xfe\x00", odd),
        *((text.encode(), odd) for text in ("two\nlines", "wört")),
        (b"x" * 70_000, "it is longer than 64 KiB"),
        (b"third-token", None),
    ):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        found = (await source.query_expr("x")).error
        assert (found is None) if error is None else (error in str(found)), (content, found)
    sent = [request.headers["authorization"] for request in server.seen]
    assert sent == ["Bearer first-token", "Bearer second-token", "Bearer third-token"]


async def test_a_password_is_read_from_a_file(server: MisbehavingServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    options = {"username": "ali", "password_file": str(file)}
    assert f"--prom-password-file {file}: No such file" in await error_of(server.url, **options)
    file.write_text("open sesame\n")
    await ask(server.url, **options)
    assert server.seen[0].headers["authorization"] == basic("ali", "open sesame")


async def test_no_error_warning_or_repr_contains_a_secret(server, caplog) -> None:
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
    assert not [secret for secret in SECRETS if secret in shown.replace("s3cret-user:", "")]
    assert not re.search(r"czNjcmV0", shown)  # "s3cret" in base64
    assert server.url in shown


USER = {"username": "me", "password": "s3cret-password"}
TOKEN, FILE = {"bearer_token": "s3cret-token"}, {"bearer_token_file": "/t"}
HEADER = FILE | {"headers": {"authorization": "s3cret-header"}}
WRONG: list[dict[str, object]] = [
    *(
        {"url": url}
        for url in (
            *("localhost:9090", "", "me:s3cret-password@host:9090", "http://", "unix:///p.sock"),
            *("http://me:s3cret-password@", "http://a b:9090", "http://me:s3cret-password@a:port"),
            *("http://[::1:9090", f"http://{'a' * 70}:9090", "http://a:9090/?token=s3cret-token"),
        )
    ),
    {"url": "http://me:x@a", "username": "me"},
    *({"timeout": seconds} for seconds in (0.0, float("nan"), float("inf"))),
    *({"bearer_token": token} for token in ("", "s3cret-token\n")),
    TOKEN | USER,
    TOKEN | FILE,
    HEADER,
    HEADER | USER,
    {"username": "me"},
    {"password": "s3cret-password"},
    {**USER, "password_file": "/p"},
    {"cert_file": "/c"},
    {"key_file": "/k"},
    {"ca_file": "/c", "insecure_skip_verify": True},
    {"headers": {"X Y": "s3cret-header"}},
    *({"headers": {"X": f"s3cret-{odd}"}} for odd in ("header\r\nY: z", "heäder")),
]


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_a_wrong_configuration_is_an_error_without_secrets(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError) as refused:
        PrometheusConfig(**{"url": "http://p:9090", **fields})
    assert "s3cret" not in str(refused.value)


def test_one_error_reports_everything_that_is_wrong() -> None:
    for url in ("http://[::1]:9090", "https://p.example/a/b", "http://münchen.example"):
        assert PrometheusConfig(url + "/").url == url
    with pytest.raises(ValueError) as refused:
        PrometheusConfig("localhost", timeout=-1, key_file="/k")
    for each in ("localhost", "--prom-timeout", "--prom-cert-file"):
        assert each in str(refused.value)


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


async def test_the_ca_file_option_is_used_and_the_environment_is_ignored(
    authority: Authority, stranger: Authority, loopback: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = {"ca_file": authority.cert}, {"ca_file": stranger.cert}
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        for environment, options, wanted in (
            (None, ours, "None"),
            (stranger.cert, ours, "None"),
            (authority.cert, theirs, "give the CA file that signed it (--prom-ca-file)"),
            (
                authority.cert,
                {},
                "TLS: its certificate is not trusted (unable to get local issuer cert",
            ),
            (stranger.cert, {"insecure_skip_verify": True}, "None"),  # stays unverified
        ):
            with monkeypatch.context() as patched:
                if environment is not None:
                    patched.setenv("REQUESTS_CA_BUNDLE", environment)
                assert wanted in await error_of(server.url, **options)
        assert len(server.seen) == 3


async def test_a_client_certificate_is_sent(authority, stranger, loopback, client) -> None:
    with MisbehavingServer(tls=authority.server(loopback, clients=authority.cert)) as server:
        ours = {"ca_file": authority.cert, "cert_file": client.cert, "key_file": client.key}
        assert (await ask(server.url, **ours)).error is None
        assert server.seen[0].client_name == "dynsched"
        none = await error_of(server.url, ca_file=authority.cert)
        assert "client certificate?" in none
        foreign = stranger.issue("dynsched")
        theirs = {**ours, "cert_file": foreign.cert, "key_file": foreign.key}
        assert "client certificate?" in await error_of(server.url, **theirs)


async def test_unusable_tls_files_are_clear_errors(authority, loopback, client, tmp_path) -> None:
    text, locked = str(tmp_path / "text.pem"), str(tmp_path / "locked.key")
    (tmp_path / "text.pem").write_text("not PEM")
    command = ("openssl", "ec", "-in", client.key, "-aes128", "-passout", "pass:x", "-out", locked)
    assert programs.run(*command).returncode == 0
    with MisbehavingServer(tls=authority.server(loopback)) as server:
        for ca, cert, key, wanted in (
            ("/no", None, None, "--prom-ca-file /no: No such file"),
            (text, None, None, f"the CA file {text} holds no certificate in PEM form"),
            (authority.cert, client.cert, "/no", "--prom-key-file /no: No such"),
            # There is no prompt for the passphrase, which would block.
            (authority.cert, client.cert, locked, "the key is encrypted; give one without a pass"),
        ):
            error = await error_of(server.url, ca_file=ca, cert_file=cert, key_file=key)
            assert wanted in error
        assert server.seen == []


async def test_rotated_tls_files_are_read_again(
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
        source = source_at(server.url, **files)

        async def error() -> str:
            return str((await source.query_expr("x")).error)

        assert "not trusted" in await error()
        put(authority.cert, client)
        assert await error() == "None"
        put(authority.cert, authority.issue("rotated"))
        assert await error() == "None"
        ca.unlink()
        assert "--prom-ca-file" in await error()
        put(authority.cert, client)
        assert await error() == "None"
        assert [seen.client_name for seen in server.seen] == ["dynsched", "rotated", "dynsched"]
