"""The proxy that each client uses. No client reads ~/.netrc, and credentials of a kubeconfig are
sent over TLS only.

One server is both the proxy and the target; its requests show which of the two was used.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_support
import pytest
from asking import fetch
from certificates import Authority
from misbehaving_server import GOOD, MisbehavingServer, Seen, http
from pods_support import reached
from prometheus_support import free_port

from dynsched.kube.client import KubeClient
from dynsched.kube.failures import ApiRequest
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.node_watch import NodeWatch
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.client import ServerError
from dynsched.tools.collect import CollectOptions, Memory, push
from dynsched.util.errors import ClusterError, ExpectedError, KubeConfigError
from dynsched.util.proxies import ProxyError, parse_http_url, proxy_for

LISTED = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
LIST = ApiRequest("list", "nodes", "/api/v1/nodes")
BASIC = "Basic " + base64.b64encode(b"me:pw").decode()


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    netrc = tmp_path / "netrc"
    netrc.touch(0o600)
    netrc.write_text("default login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))  # in every test, because no client must read it


# The rules are those of Go's httpproxy.
EVERY = {"HTTP_PROXY": "http://p:3128", "HTTPS_PROXY": "https://me:pw@s:3129"}
# For each value of NO_PROXY, URLs that are requested directly, and URLs that use the proxy.
EXCEPTED: dict[str, tuple[list[str], list[str]]] = {
    "": (["http://localhost:9090", "http://127.8.9.1:9090", "http://[::1]:9090"],  # this machine
         ["http://10.1.2.3", "http://localhost.example"]),
    "*": (["http://anything.example:81"], []),
    "x.example, *": (["http://anything.example"], []),
    # addresses
    "10.0.0.0/8": (["https://10.1.2.3:6443", "http://[::ffff:10.0.0.1]"],
                   ["https://11.1.2.3:6443", "https://ten.example"]),
    "10.9.9.9/8": (["https://10.1.2.3:6443"], []),
    "fd00::/8": (["https://[fd00:0:0::1]:6443"], []),
    "10.1.2.3": (["https://10.1.2.3:6443"], ["https://10.1.2.30"]),
    "10.1.2.3:6443": (["https://10.1.2.3:6443"], ["https://10.1.2.3"]),
    "10.1.2.3:443": (["https://10.1.2.3"], []),
    "fd00::1": (["http://[fd00:0::1]"], []),
    "[fd00::1]:80": (["http://[fd00::1]"], []),
    "[fd00::1]:81": ([], ["http://[fd00::1]"]),
    "[fd00::1]": (["http://[fd00::1]"], []),
    # names
    "kube.example": (["https://kube.example", "https://api.kube.example"],
                     ["https://notkube.example"]),
    ".kube.example": (["https://api.kube.example"], ["https://kube.example"]),
    "*.kube.example": (["https://api.kube.example"], ["https://kube.example"]),
    "KUBE.example": (["https://Kube.EXAMPLE"], []),
    "kube.example:6443": (["https://kube.example:6443"], ["https://kube.example"]),
    " a.example ,, kube.example ": (["http://kube.example"], []),
    # invalid entries
    ":80": ([], ["http://kube.example"]),
    "10.0.0.0/99": ([], ["http://10.0.0.1"]),
    ".": ([], ["http://kube.example"]),
}  # fmt: skip


@pytest.mark.parametrize("listed", EXCEPTED)
def test_no_proxy_is_read_as_kubectl_reads_it(listed) -> None:
    direct, by_proxy = EXCEPTED[listed]
    for name in ("NO_PROXY", "no_proxy"):
        found = [u for u in (*direct, *by_proxy) if proxy_for(u, {**EVERY, name: listed}) is None]
        assert found == direct


CHOSEN: list[tuple[str, dict[str, str], str | None]] = [
    ("http://a", EVERY, EVERY["HTTP_PROXY"]),
    ("https://a", EVERY, EVERY["HTTPS_PROXY"]),
    ("https://a", {"HTTP_PROXY": "http://p:1"}, None),
    ("http://a", {"http_proxy": "p:1"}, "http://p:1"),
    ("http://a", {"http_proxy": "p:1", "HTTP_PROXY": "q:1"}, "http://q:1"),
    ("http://a", {"http_proxy": "p:1", "HTTP_PROXY": ""}, "http://p:1"),
    ("http://a", {"ALL_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None),
    ("ftp://a", {"FTP_PROXY": "p:1"}, None),
]


def test_each_scheme_has_its_variable_and_the_proxy_password_is_not_shown() -> None:
    for url, environ, expected in CHOSEN:
        found = proxy_for(url, environ)
        assert (found.url if found else None) == expected
    proxy = proxy_for("https://a", EVERY)
    assert proxy is not None
    assert str(proxy) == "HTTPS_PROXY=https://s:3129"
    assert "pw" not in repr(proxy)


UNUSABLE = {
    "http://": "HTTP_PROXY is not the URL of a proxy, like http://proxy:3128",
    "http://me:s3cret@[::": "HTTP_PROXY is not the URL of a proxy",
    "me:s3cret@p:port": "HTTP_PROXY is not the URL of a proxy",
    "socks5://me:s3cret@p": "HTTP_PROXY: a proxy by socks5:// is not supported, only by http",
}


async def test_every_client_reports_an_unusable_proxy(monkeypatch, tmp_path) -> None:
    for value, message in UNUSABLE.items():
        monkeypatch.setenv("HTTP_PROXY", value)
        with pytest.raises(ProxyError) as unusable:
            proxy_for("http://a.example")
        with pytest.raises(KubeConfigError) as config:
            await load_config(kubeconfig(tmp_path, "http://kube.example"))
        with pytest.raises(ServerError) as client:
            fetch("http://dynsched.example", "/nodes")
        with pytest.raises(ExpectedError) as collect:
            push(CollectOptions("http://push.example", ip="10.0.0.7"), Memory(2, 1))
        with pytest.raises(ValueError, match="HTTP_PROXY") as prometheus:
            PrometheusConfig("http://prometheus.example")
        for error in (str(each.value) for each in (unusable, config, client, collect, prometheus)):
            assert message in error
            assert "s3cret" not in error


class World:
    """A proxy, and a server at ``direct`` that can be reached without it. The address of the latter
    does not count as loopback.
    """

    def __init__(self, server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.direct = f"http://0.0.0.0:{server.port}"
        self._set = monkeypatch.setenv

    def proxied(self, *, no_proxy: str = "", user: str = "") -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            self._set(name, f"http://{user}127.0.0.1:{self.server.port}")
        self._set("NO_PROXY", no_proxy)

    @property
    def last(self) -> Seen:
        return self.server.seen[-1]

    @property
    def by_proxy(self) -> bool:
        return self.last.target.startswith("http://")


@pytest.fixture
def world(monkeypatch) -> Iterator[World]:
    with MisbehavingServer() as server:
        server.default = http(json.dumps(LISTED), Connection="close")
        yield World(server, monkeypatch)


def kubeconfig(folder: Path, server: str, *, user: Any = None, **cluster: str) -> Path:
    return api_support.kubeconfig(folder / "config", server, user=user, **cluster)


async def query(url: str) -> str | None:
    source = PrometheusSource(PrometheusConfig(url, timeout=5.0))
    return (await source.query_expr("x")).error


async def ask_kube(path: Path) -> None:
    async with api_support.api_of(path) as api:
        await api.call(LIST)


async def watch_nodes(path: Path) -> None:
    async with api_support.api_of(path, KubeClient) as client:
        watch, stop = NodeWatch(client), asyncio.Event()
        running = asyncio.create_task(watch.run(stop))
        try:
            await reached(
                lambda: watch.store.synced or watch.store.error is not None or running.done(), True
            )
            if watch.store.error is not None:
                raise ClusterError(watch.store.error)
        finally:
            stop.set()
            await running


KUBE = [ask_kube, watch_nodes]


@pytest.mark.parametrize("ask", KUBE)
async def test_the_api_server_is_requested_through_the_proxy_that_kubectl_would_use(
    world, tmp_path, ask
) -> None:
    cases: list[tuple[bool, str, str]] = [(False, "", ""), (True, "", "me:pw@")]
    for proxied, no_proxy, user in (*cases, (True, "0.0.0.0/8", "me:pw@")):
        if proxied:
            world.proxied(no_proxy=no_proxy, user=user)
        await ask(kubeconfig(tmp_path, world.direct))
        assert world.by_proxy is (proxied and not no_proxy), no_proxy
        assert world.last.headers.get("proxy-authorization") == (BASIC if world.by_proxy else None)


@pytest.mark.parametrize("ask", KUBE)
async def test_no_credentials_are_sent_to_an_api_server_over_plain_http(
    world, tmp_path, ask
) -> None:
    token = tmp_path / "token"
    token.write_text("tok")
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "tok"}}
    plugin = {"apiVersion": version, "command": "echo", "args": [json.dumps(credential)]}
    users: list[dict[str, Any]] = [
        {"token": "tok"},
        {"tokenFile": str(token)},
        {"username": "me", "password": "pw"},
        {"exec": {**plugin, "interactiveMode": "Never"}},
    ]
    with_user = world.direct.replace("//", "//me:pw@")
    for server, user in (*((world.direct, user) for user in users), (with_user, None)):
        await ask(kubeconfig(tmp_path, server, user=user))
    assert len(world.server.seen) >= len(users) + 1
    assert not [seen for seen in world.server.seen if "authorization" in seen.headers]
    world.server.default = http("{}", 401, Connection="close")
    with pytest.raises(ClusterError, match="no credentials are sent by plain HTTP; use https://"):
        await ask(kubeconfig(tmp_path, world.direct))


@pytest.mark.parametrize("ask", KUBE)
async def test_every_request_impersonates_the_user_of_the_kubeconfig(world, tmp_path, ask) -> None:
    await ask(kubeconfig(tmp_path, world.direct, user={"as": "jane", "as-groups": ["a", "b"]}))
    sent = {
        (seen.headers.get("impersonate-user"), seen.headers.get("impersonate-group"))
        for seen in world.server.seen
    }
    assert sent == {("jane", "a\nb")}


@pytest.mark.parametrize("ask", KUBE)
async def test_no_token_is_sent_to_the_target_of_a_redirect(world, tmp_path, ask) -> None:
    authority = Authority(tmp_path, "ca")
    tls = authority.server(authority.issue("server", "IP:127.0.0.1"))
    ca = {"certificate-authority": authority.cert}
    with MisbehavingServer(tls=tls) as server:
        target = f"{world.direct}/api/v1/nodes"
        server.default = http("", 307, Location=target, Connection="close")
        with pytest.raises(
            ClusterError, match=rf"answered 307: it redirects to {target}, which is"
        ):
            await ask(kubeconfig(tmp_path, server.url, user={"token": "tok"}, **ca))
        assert {seen.headers.get("authorization") for seen in server.seen} == {"Bearer tok"}
    assert world.server.seen == []


async def test_over_tls_a_user_in_the_url_takes_precedence_over_the_token(tmp_path, world) -> None:
    authority = Authority(tmp_path, "ca")
    tls = authority.server(authority.issue("server", "IP:127.0.0.1"))
    ca = {"certificate-authority": authority.cert}
    with MisbehavingServer(tls=tls) as server:
        server.default = world.server.default
        for user, sent in (({"token": "tok"}, BASIC), (None, BASIC)):  # and no ~/.netrc
            url = server.url.replace("//", "//me:pw@")
            await ask_kube(kubeconfig(tmp_path, url, user=user, **ca))
            assert server.seen[-1].headers["authorization"] == sent


async def test_a_proxy_in_the_kubeconfig_takes_precedence(world, tmp_path) -> None:
    world.proxied(no_proxy="*")
    own = {"proxy-url": f"http://127.0.0.1:{world.server.port}"}
    await ask_kube(kubeconfig(tmp_path, "http://kube.example:6443", **own))
    assert world.by_proxy
    socks = {"proxy-url": "socks5://p:1080"}
    unsupported = "its proxy-url: a proxy by socks5:// is not support"
    wrong = "its server is not a URL like https://host:6443"
    for server, cluster, message in (
        (world.direct, socks, unsupported),
        ("http://[::", {}, wrong),
        ("https://k.test:port", {}, wrong),
    ):
        with pytest.raises(KubeConfigError, match=message):
            await load_config(kubeconfig(tmp_path, server, **cluster))


@pytest.mark.parametrize("ask", KUBE)
async def test_a_403_from_the_proxy_is_not_reported_as_a_missing_role_and_it_gets_no_token(
    world, tmp_path, ask, caplog
) -> None:
    world.server.default = http("no", 403, content_type="text/plain", Connection="close")
    world.proxied(user="me:s3cret@")
    path = kubeconfig(tmp_path, "https://10.1.2.3:6443", user={"token": "tok"})
    with pytest.raises(
        ClusterError, match="the proxy answered 403; check proxy-url in the"
    ) as error:
        await ask(path)
    shown = f"{error.value}{caplog.text}"
    assert "s3cret" not in shown
    assert base64.b64encode(b"me:s3cret").decode() not in shown
    assert {request.method for request in world.server.seen} == {"CONNECT"}
    assert not [request for request in world.server.seen if "Bearer" in str(request.headers)]


async def test_the_error_names_an_unreachable_proxy_without_its_password(
    tmp_path, monkeypatch
) -> None:
    port = free_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret@127.0.0.1:{port}")
    with pytest.raises(ClusterError) as error:
        await ask_kube(kubeconfig(tmp_path, "https://10.1.2.3:6443"))
    assert f"10.1.2.3:6443: the proxy 127.0.0.1:{port}: connection refused" in str(error.value)
    assert "s3cret" not in str(error.value)


async def test_all_clients_choose_the_proxy_by_the_same_rules(world) -> None:
    def push_to(url: str) -> None:
        push(CollectOptions(url, ip="10.0.0.7"), Memory(2, 1))

    for ask, answer in (
        (lambda url: asyncio.run(query(url)), http(GOOD)),
        (push_to, http("", 202)),
        (lambda url: fetch(url, "/nodes"), http('{"taken_at": "now"}')),
    ):
        world.server.default = answer
        for url, no_proxy, by_proxy in (
            ("http://somewhere.example:9090", "10.0.0.0/8", True),
            (f"http://localhost:{world.server.port}", "", False),
            (world.direct, "0.0.0.0/8", False),
        ):
            world.proxied(user="me:pw@", no_proxy=no_proxy)
            assert await asyncio.to_thread(ask, url) is None or answer != http(GOOD)
            assert world.by_proxy is by_proxy, url
            assert "authorization" not in world.last.headers
            sent = world.last.headers.get("proxy-authorization")
            assert sent == (BASIC if by_proxy else None)


async def test_the_error_for_a_403_from_a_proxy_names_it_without_its_password(world) -> None:
    world.server.default = http("", 403)
    world.proxied(user="me:s3cret@")
    with pytest.raises(ServerError) as refused:
        await asyncio.to_thread(fetch, "http://dynsched.example:9000", "/nodes")
    for error in (
        str(await query("http://prometheus.example:9090")),
        str(await query("https://prometheus.example:9090")),
        str(refused.value),
    ):
        assert "_PROXY=http://127.0.0.1:" in error
        assert "s3cret" not in error


def test_a_url_on_the_command_line_may_omit_the_scheme() -> None:
    for text in ("http://a:9000", "https://a/path"):
        assert parse_http_url(text).geturl() == text
    for text in ("a:9000", "[::1]:9000"):
        assert parse_http_url(text).geturl() == f"http://{text}"
    for text in ("", "ftp://a", "a:b", "http:/a", "http//a", "a:0", "a:99999", "u:p@a", "[::1"):
        with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
            parse_http_url(text)
