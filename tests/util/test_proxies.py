"""Which proxy each client asks, and that none of them reads ~/.netrc: with a server that is asked
in place of every other host, and sees by the request whether it was taken for a proxy.
"""

import asyncio
import base64
import json
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_support
import pytest
from asking import fetch
from misbehaving_server import GOOD, MisbehavingServer, Seen, http

from dynsched.engine.load.recent import RecentPods
from dynsched.kube.failures import Call, ProxyRefusedError
from dynsched.kube.kopf_operator import NodeOperator, WatchBrokenError, _explained
from dynsched.kube.kubeconfig import KubeConfigError, load_config
from dynsched.kube.pod_watch import PodWatch
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.client import ServerError
from dynsched.tools.collect import Collect, Memory, push
from dynsched.util.errors import ClusterError, ExpectedError
from dynsched.util.proxies import ProxyError, parse_proxy, proxy_for

LISTED = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
LIST = Call("list", "nodes", "/api/v1/nodes")
BASIC = "Basic " + base64.b64encode(b"me:pw").decode()


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    netrc = tmp_path / "netrc"
    netrc.touch(0o600)
    netrc.write_text("default login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))  # in every test: nobody may read it


# The rules are those of Go's httpproxy.
EVERY = {"HTTP_PROXY": "http://p:3128", "HTTPS_PROXY": "https://me:pw@s:3129"}
# What NO_PROXY lists, which URLs are asked directly by it, and which by the proxy.
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
    # what is no entry
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
    ("http://a", {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://s:1"}, "http://p:1"),
    ("https://a", {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://s:1"}, "http://s:1"),
    ("https://a", {"HTTP_PROXY": "http://p:1"}, None),
    ("http://a", {"http_proxy": "p:1"}, "http://p:1"),
    ("http://a", {"http_proxy": "p:1", "HTTP_PROXY": "q:1"}, "http://q:1"),
    ("http://a", {"http_proxy": "p:1", "HTTP_PROXY": ""}, "http://p:1"),
    ("http://a", {"ALL_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None),
    ("ftp://a", {"FTP_PROXY": "p:1"}, None),
]


def test_each_scheme_has_its_variable_and_a_proxys_password_is_for_the_proxy_only() -> None:
    for url, environ, expected in CHOSEN:
        found = proxy_for(url, environ)
        assert (found.url if found else None) == expected
    proxy = proxy_for("https://a", EVERY)
    assert proxy is not None
    assert (proxy.authorization, str(proxy)) == (BASIC, "HTTPS_PROXY=https://s:3129")
    assert "pw" not in repr(proxy)
    encoded = base64.b64encode(b"u@x:").decode()
    assert parse_proxy("X", "http://u%40x@p").authorization == f"Basic {encoded}"


UNUSABLE = {
    "http://": "HTTP_PROXY is not the URL of a proxy, like http://proxy:3128",
    "http://me:s3cret@[::": "HTTP_PROXY is not the URL of a proxy",
    "me:s3cret@p:port": "HTTP_PROXY is not the URL of a proxy",
    "socks5://me:s3cret@p": "HTTP_PROXY: a proxy by socks5:// is not supported, only by http",
}


async def test_a_proxy_that_cannot_be_used_is_told_by_every_client(monkeypatch, tmp_path) -> None:
    for value, said in UNUSABLE.items():
        monkeypatch.setenv("HTTP_PROXY", value)
        with pytest.raises(ProxyError) as unusable:
            proxy_for("http://a.example")
        with pytest.raises(KubeConfigError) as config:
            await load_config(kubeconfig(tmp_path, "http://kube.example"))
        with pytest.raises(ServerError) as client:
            fetch("http://dynsched.example", "/nodes")
        with pytest.raises(ExpectedError) as collect:
            push(Collect("http://push.example", ip="10.0.0.7"), Memory(2, 1))
        with pytest.raises(ValueError, match="HTTP_PROXY") as prometheus:
            PrometheusConfig("http://prometheus.example")
        assert said in str(unusable.value)
        for told in (str(each.value) for each in (config, client, collect, prometheus)):
            assert said in told
            assert "s3cret" not in told


class Everywhere:
    """A server that is asked whatever host a client wants, directly or as its proxy."""

    def __init__(self, server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self._set = monkeypatch.setenv
        connect, resolve = socket.socket.connect, socket.getaddrinfo
        address = ("127.0.0.1", server.port)

        async def sock_connect(loop: Any, sock: socket.socket, _: object) -> None:
            sock.setblocking(True)
            connect(sock, address)
            sock.setblocking(False)

        monkeypatch.setattr(socket.socket, "connect", lambda one, _: connect(one, address))
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda _, port, *a, **k: resolve("127.0.0.1", port, *a, **k)
        )
        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", sock_connect)

    def proxied(self, *, no_proxy: str = "", user: str = "") -> None:
        self._set("HTTP_PROXY", f"http://{user}proxy.example:3128")
        self._set("NO_PROXY", no_proxy)

    @property
    def last(self) -> Seen:
        return self.server.seen[-1]

    @property
    def by_proxy(self) -> bool:
        return self.last.target.startswith("http://")


@pytest.fixture
def everywhere(monkeypatch) -> Iterator[Everywhere]:
    with MisbehavingServer() as server:
        server.default = http(json.dumps(LISTED), Connection="close")
        yield Everywhere(server, monkeypatch)


def kubeconfig(folder: Path, server: str, *, token: str | None = "tok", **cluster: str) -> str:
    user = {"token": token} if token else {}
    return str(api_support.kubeconfig(folder / "config", server, user=user, **cluster))


async def query(url: str, **options: str) -> str | None:
    source = PrometheusSource(PrometheusConfig(url, timeout=5.0, **options))
    try:
        return (await source.query_expr("x")).error
    finally:
        await source.close()


async def ask_kube(path: str) -> None:
    async with api_support.api_of(path) as api:
        await api.call(LIST)


async def watch_pods(path: str) -> None:
    async with api_support.api_of(path) as api:
        await PodWatch(api, RecentPods()).follow("1")


async def watch_nodes(path: str) -> None:
    """With the session that kopf is given."""
    config = await load_config(path)
    session = NodeOperator(config, lambda *_: None)._session(config)
    async with session, session.get(f"{config.server}/api/v1/nodes") as answer:
        await answer.read()


KUBE = {"calls": ask_kube, "the watch of pods": watch_pods, "kopf": watch_nodes}


@pytest.mark.parametrize("ask", KUBE.values(), ids=KUBE.keys())
async def test_the_api_server_is_asked_by_the_proxy_that_kubectl_would_take(
    everywhere, tmp_path, ask
) -> None:
    direct = "10.0.0.0/8", "10.1.2.3:6443", "10.1.2.3"
    ways: list[tuple[bool, str, str]] = [(False, "", ""), (True, "", "me:pw@"), (True, "", "")]
    for proxied, no_proxy, user in (*ways, *((True, listed, "") for listed in direct)):
        if proxied:
            everywhere.proxied(no_proxy=no_proxy, user=user)
        for token in ("tok", None):
            await ask(kubeconfig(tmp_path, "http://10.1.2.3:6443", token=token))
            assert everywhere.by_proxy is (proxied and not no_proxy), no_proxy
            sent = everywhere.last.headers  # nothing of ~/.netrc
            assert sent.get("authorization") == (f"Bearer {token}" if token else None)
            assert sent.get("proxy-authorization") == (BASIC if user else None)


async def test_what_a_kubeconfig_says_itself_comes_first(everywhere, tmp_path) -> None:
    url = "http://me:pw@10.1.2.3:6443"
    for token, sent in (("tok", "Bearer tok"), (None, BASIC)):  # the token before the URL's user
        await ask_kube(kubeconfig(tmp_path, url, token=token))
        assert everywhere.last.headers["authorization"] == sent
    everywhere.proxied(no_proxy="*")
    await ask_kube(kubeconfig(tmp_path, url, **{"proxy-url": "http://own.example:3128"}))
    assert everywhere.by_proxy
    socks = {"proxy-url": "socks5://p:1080"}
    told = "its proxy-url: a proxy by socks5:// is not support"
    wrong = "its server is not a URL like https://host:6443"
    for server, cluster, said in (
        (url, socks, told), ("http://[::", {}, wrong), ("https://kube.example:port", {}, wrong)
    ):  # fmt: skip
        with pytest.raises(KubeConfigError, match=said):
            await load_config(kubeconfig(tmp_path, server, **cluster))


async def told(asking: Any, kind: type[Exception]) -> tuple[str, str]:
    """The message of what is raised; and all that a log could show of it."""
    with pytest.raises(kind) as raised:
        await asking
    whole = "".join(traceback.format_exception(raised.value))
    error: BaseException | None = raised.value
    while error is not None:
        whole += repr(error)
        error = error.__cause__
    return str(raised.value), whole


async def test_a_proxy_that_refuses_is_not_a_missing_role_and_sees_no_token(
    everywhere, tmp_path, monkeypatch
) -> None:
    everywhere.server.default = http("no", 403, content_type="text/plain", Connection="close")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cret@proxy.example:3128")
    path = kubeconfig(tmp_path, "https://10.1.2.3:6443")
    said = "the proxy answered 403; check proxy-url in the kubeconfig, HTTP_PROXY, HTTPS_PROXY and"
    for ask in (ask_kube, watch_pods):
        message, whole = await told(ask(path), ClusterError)
        assert said in message
        assert "s3cret" not in whole
    _, whole = await told(watch_nodes(path), ProxyRefusedError)  # asyncio logs it, as it is
    assert isinstance(_explained("server", ProxyRefusedError(403)), WatchBrokenError)
    assert said in str(_explained("server", ProxyRefusedError(403)))
    assert "s3cret" not in whole
    assert base64.b64encode(b"me:s3cret").decode() not in whole
    assert {request.method for request in everywhere.server.seen} == {"CONNECT"}
    assert not [request for request in everywhere.server.seen if "Bearer" in str(request.headers)]


async def test_a_proxy_that_is_away_is_named_and_its_password_is_not(tmp_path, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret@127.0.0.1:{port}")
    path = kubeconfig(tmp_path, "https://10.1.2.3:6443")
    message, whole = await told(ask_kube(path), ClusterError)
    said = f"10.1.2.3:6443: the proxy 127.0.0.1:{port}: connection refused; check proxy-url"
    assert said in message
    assert "s3cret" not in whole


async def test_prometheus_is_asked_by_the_same_rules(everywhere) -> None:
    everywhere.server.default = http(GOOD)
    for url, user, no_proxy in (
        ("http://prometheus.example:9090", "me:pw@", ""),
        ("http://localhost:9090", "", "10.0.0.0/8"),
        ("http://127.0.0.2:9090", "", "10.0.0.0/8"),
        ("http://10.1.2.3:9090", "", "10.0.0.0/8"),
    ):
        everywhere.proxied(user=user, no_proxy=no_proxy)
        assert await query(url) is None
        assert everywhere.by_proxy is bool(user), url
        assert "authorization" not in everywhere.last.headers
        assert everywhere.last.headers.get("proxy-authorization") == (BASIC if user else None)


async def test_a_403_by_a_proxy_is_not_laid_to_the_credentials_alone(
    everywhere, monkeypatch
) -> None:
    everywhere.server.default = http("", 403)
    everywhere.proxied(user="me:s3cret@")
    error = str(await query("http://prometheus.example:9090"))
    assert "either the proxy refuses, and NO_PROXY leads past it, or these credentials" in error
    named = "through the proxy that the environment sets: HTTP_PROXY=http://proxy.example:3128)"
    assert error.endswith(named)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cret@proxy.example:3128")
    tunnelled = str(await query("https://prometheus.example:9090"))
    assert "the proxy refused to connect to it (403 Forbidden) (through the proxy" in tunnelled
    assert "s3cret" not in error + tunnelled


def test_a_running_dynsched_is_asked_by_the_same_rules(everywhere) -> None:
    everywhere.server.default = http('{"taken_at": "now"}')
    everywhere.proxied(user="me:pw@", no_proxy="10.0.0.0/8")
    fetch("http://dynsched.example:9000", "/nodes")
    assert everywhere.last.target == "http://dynsched.example:9000/nodes"
    assert everywhere.last.headers["proxy-authorization"] == BASIC
    fetch("http://10.1.2.3:9000", "/nodes")
    assert everywhere.last.target == "/nodes"
    everywhere.proxied(user="me:s3cret@")
    everywhere.server.default = http("", 403)
    with pytest.raises(ServerError) as refused:
        fetch("http://dynsched.example:9000", "/nodes")
    assert "(through the proxy that the environment sets: HTTP_PROXY=http://p" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_redirect_past_the_proxy_takes_no_password_along(everywhere) -> None:
    everywhere.server.replies[""] = lambda request, connection: connection.sendall(
        http('{"taken_at": "now"}')
        if "10.1.2.3" in request.headers["host"]
        else http("", 302, Location="http://10.1.2.3:9000/nodes")
    )
    everywhere.proxied(user="me:pw@", no_proxy="10.0.0.0/8")
    fetch("http://dynsched.example:9000", "/nodes")
    first, second = everywhere.server.seen
    assert "proxy-authorization" in first.headers
    assert second.target == "/nodes"
    assert "proxy-authorization" not in second.headers


def test_the_pushgateway_is_asked_by_the_same_rules(everywhere) -> None:
    everywhere.server.default = http("", 202)
    everywhere.proxied()
    push(Collect("http://push.example:9091", ip="10.0.0.7"), Memory(2, 1))
    assert (everywhere.last.method, everywhere.by_proxy) == ("PUT", True)
    everywhere.proxied(no_proxy="10.0.0.0/8")
    push(Collect("http://10.1.2.3:9091", ip="10.0.0.7"), Memory(2, 1))
    assert not everywhere.by_proxy
    everywhere.server.default = http("", 403)
    with pytest.raises(ExpectedError, match="it answered 403 Forbidden; is this a Pushgateway"):
        push(Collect("http://10.1.2.3:9091", ip="10.0.0.7"), Memory(2, 1))
