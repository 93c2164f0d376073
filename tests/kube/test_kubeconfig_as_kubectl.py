"""kubectl is the specification of how a kubeconfig is read: each case runs with kubectl and with
dynsched, and the requests that arrive are compared.
"""

import base64
import json
import os
import shutil
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from certificates import Authority
from misbehaving_server import MisbehavingServer, Seen, http
from programs import need, run

from dynsched.kube.credentials import load_credentials
from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError

pytestmark = pytest.mark.slow

V1 = "client.authentication.k8s.io/v1"
OLDEST = 26  # minor version of kubectl; older ones lack as-uid, and still accept removed plugins
PATH = "/version"
# Its token is all of its input, encoded, so that the input arrives at the server.
PLUGIN = """#!/bin/sh
token=$(printf '%s\\n' "$KUBERNETES_EXEC_INFO" "$0" "$*" "$PWD" "$GIVEN" | base64 -w0)
printf '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "%s"}}' "$API" "$token"
"""
Content = dict[str, Any] | str


class Case(NamedTuple):
    """Contents of files by name, with $WORDS that `World` replaces.

    KUBECONFIG is ``env``; if that is None, it names all files.
    """

    files: dict[str, Content]
    env: str | None = None
    context: str | None = None


def config(
    name: str = "x", user: Any = None, current: str | None = None, **cluster: Any
) -> Content:
    trust = {} if cluster else {"certificate-authority": "$CA"}
    named = {
        "clusters": [{"name": name, "cluster": {"server": "$TLS", **trust, **cluster}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": name}}],
    }
    return {**named, "current-context": name if current is None else current}


def only(kind: str, name: str = "x") -> Content:
    """One section of a kubeconfig."""
    whole = config(name)
    assert isinstance(whole, dict)
    return {kind: whole[kind]}


def plugin(command: str = "./plugin", **more: Any) -> Any:
    env = [{"name": "API", "value": more.get("apiVersion", V1)}]
    base = {"apiVersion": V1, "command": command, "env": env, "interactiveMode": "Never"}
    return {"exec": {name: value for name, value in {**base, **more}.items() if value != "none"}}


def one(user: Any = None, **cluster: Any) -> Case:
    return Case({"k": config(user=user, **cluster)})


def text(content: str) -> Case:
    return Case({"k": content})


CERT = {"client-certificate": "me.crt"}
PAIR = {**CERT, "client-key": "me.key"}
DATA = {"client-certificate-data": "$CERT_DATA", "client-key-data": "$KEY_DATA"}
CA, INSECURE = {"certificate-authority": "$CA"}, {"insecure-skip-tls-verify": True}
AS = {"token": "t", "as": "jane", "as-uid": "u-1", "as-groups": ["a b", "c,d"]}
EXTRA = {"as-user-extra": {"Example.org/some scope%": ["one", "two"]}}
EXTENSIONS = [
    {"name": f"{V1.rpartition('/')[0]}/exec", "extension": {"audience": "a", "nothing": None}},
    {"name": "other", "extension": {"b": 1}},
]
WHOLE = json.dumps(config())
MERGED = "u: &u {token: u}\nv: &v {token: v, as: jane}\n" + yaml.safe_dump(config()).replace(
    "token: token-x", "{$USER}"
)
CASES: dict[str, Case] = {
    # files
    "the first current-context": Case({"a": config("a"), "b": config("b")}),
    "the first user of a name": Case({"a": config("x"), "b": config("x", {"token": "other"})}),
    "the first user of a name, not merged": Case(
        {"a": config("x", {"token": "t"}), "b": config("x", {"token": "s", "as": "jane"})}
    ),
    "one file per section": Case({kind: only(kind) for kind in (
        "users", "clusters", "contexts")} | {"c": {"current-context": "x"}}),
    "an empty current-context first": Case({"a": config("a", current=""), "b": config("b")}),
    "an empty file first": Case({"empty": "", "a": config()}),
    "a comment, null and empty maps first": Case(
        {"comment": "# none\n", "null": "null\n", "map": "{}\n", "---": "---\n", "a": config()}
    ),
    "sections that are null": Case({"a": "users: null\nclusters:\ncontexts: ~\n", "b": config()}),
    "missing files and empty names": Case({"a": config()}, env=":$DIR/gone::$DIR/a:"),
    "the same file twice": Case({"a": config()}, env="$DIR/a:$DIR/a"),
    "another context": Case({"a": config("a"), "b": config("b")}, context="b"),
    "an unknown context": Case({"a": config()}, context="b"),
    "a tilde is not expanded": Case(
        {"home/k": config("a"), "b": config("b")}, env="~/k:$DIR/b"
    ),
    "a relative name": Case({"elsewhere/k": config()}, env="k"),
    "a broken file and a good one": Case({"a": config(), "b": "a: ["}),
    "a folder": Case({"sub/a": config(), "a": config()}, env="$DIR/sub:$DIR/a"),
    "an unknown current-context": Case({"a": config(current="gone")}),
    "no current-context": Case({"a": only("contexts"), "b": only("clusters")}),
    "an unknown cluster": Case({"a": only("contexts"), "b": "current-context: x"}),
    # syntax
    "JSON": text(WHOLE),
    "JSON with tabs": text(json.dumps(config(), indent="\t")),
    "two documents": text(f"{WHOLE}\n---\na: b\n"),
    "a byte order mark": text(f"\ufeff{WHOLE}"),
    "a list": text("[]"),
    "strings like dates and times": text(
        WHOLE.replace('"x"', "2024-01-01").replace('"token-x"', "1:20:30.5")
    ),
    "a string like a time": text(WHOLE.replace('"token-x"', "12:30:45")),
    "an equals sign as token": text(WHOLE.replace('"token-x"', "=")),
    "a merge key first": text(MERGED.replace("$USER", "<<: [*u, *v], token: mine")),
    "a merge key last": text(MERGED.replace("$USER", "token: mine, <<: [*u, *v]")),
    "a number as token": one({"token": 123}),
    "a number as name": text(WHOLE.replace('"x"', "1")),
    "the same name twice": text(WHOLE.replace('"users": [', '"users": [{"name": "x"}, ')),
    "an unknown field": one({"token": "t", "some": "thing"}),
    "a field in capitals": one({"Token": "t", **PAIR}),
    # users
    "a token and a password": one({"token": "t", "password": "p"}),
    "a token file": one({"tokenFile": "token"}),
    "a token file and a token": one({"tokenFile": "token", "token": "old"}),
    "an empty token file and a token": one({"tokenFile": "empty", "token": "old"}),
    "a missing token file and a token": one({"tokenFile": "gone", "token": "old"}),
    "a missing token file": one({"tokenFile": "gone"}),
    "a user and password": one({"username": "me", "password": "pw: ü"}),
    "a user without password": one({"username": "me"}),
    "a password and a token file": one({"password": "pw", "tokenFile": "token"}),
    "a password and a certificate": one({"password": "pw", **PAIR}),
    "a token and a user": one({"username": "me", "password": "pw", "token": "t"}),
    "a token file and a user": one({"username": "me", "password": "pw", "tokenFile": "token"}),
    "an old auth-provider": one({"auth-provider": {"name": "gcp"}}),
    "null fields": one({"token": "t", "tokenFile": None, "exec": None, "as-groups": None}),
    "a certificate": one(PAIR),
    "a certificate and a token": one({**PAIR, "token": "t"}),
    "certificate data": one(DATA),
    "a certificate file and key data": one({**CERT, "client-key-data": "$KEY_DATA"}),
    "empty certificate data": one({**PAIR, "client-certificate-data": ""}),
    "a certificate as file and data": one({**PAIR, "client-certificate-data": "$CERT_DATA"}),
    "a certificate without key": one(CERT),
    "a key without certificate": one({"client-key": "me.key", "token": "t"}),
    "a missing certificate file": one({"client-certificate": "gone", "client-key": "me.key"}),
    "data that is not base64": one({"client-certificate-data": "%", "client-key-data": "%"}),
    # impersonation
    "as": one({"token": "t", "as": "jane"}),
    "as, with all fields": one({**AS, **EXTRA}),
    "groups without as": one({"token": "t", "as-groups": ["a"]}),
    "a uid without as": one({"token": "t", "as-uid": "a"}),
    "as, empty": one({"token": "t", "as": "", "as-groups": []}),
    "as, over plain HTTP": one({**AS, **EXTRA}, server="$PLAIN"),
    # plugins
    "a plugin": one(plugin()),
    "a plugin in another folder": Case({"sub/k": config(user=plugin("../plugin"))}),
    "a plugin in PATH": one(plugin("plugin-in-path")),
    "a plugin with arguments": one(plugin(args=["a b", "c"])),
    "a plugin with a variable": one(plugin(env=[{"name": n, "value": v} for n, v in (
        ("API", V1), ("GIVEN", "é"), ("KUBERNETES_EXEC_INFO", "mine"))])),
    "a plugin in its own PATH": one(plugin("own", env=[
        {"name": "PATH", "value": "$DIR/own"}])),
    "a plugin that is not in its own PATH": one(plugin("plugin-in-path", env=[
        {"name": "PATH", "value": "/bin:/usr/bin"}, {"name": "API", "value": V1}])),
    "a plugin with a nameless variable": one(plugin(env=[{"value": "a"}])),
    "a plugin with a zero byte": one(plugin(args=["a\0b"])),
    "a plugin with null": one(plugin("plugin-v1", env=None, args=None)),
    "a plugin with cluster info": one(plugin(provideClusterInfo=True)),
    "a plugin with a whole cluster": one(plugin(provideClusterInfo=True), extensions=EXTENSIONS, **{
        "server": "$NAMED/path", "tls-server-name": "kube.internal",
        "certificate-authority-data": "$CA_DATA", "disable-compression": True}),
    "a plugin of an insecure cluster": one(plugin(provideClusterInfo=True), **INSECURE),
    "a plugin with v1beta1": one(plugin(apiVersion=f"{V1}beta1", interactiveMode="none")),
    "a plugin with v1alpha1": one(plugin(apiVersion=f"{V1}alpha1")),
    "a plugin without a mode": one(plugin(interactiveMode="none")),
    "a plugin with a wrong mode": one(plugin(interactiveMode="Sometimes")),
    "a plugin that may be interactive": one(plugin(interactiveMode="IfAvailable")),
    "an interactive plugin without a terminal": one(plugin(interactiveMode="Always")),
    "a missing plugin": one(plugin("./gone")),
    "a plugin that fails": one(plugin("false")),
    "a plugin without output": one(plugin("true")),
    "a plugin that answers in another version": one(plugin(env=[
        {"name": "API", "value": f"{V1}beta1"}])),
    "a plugin and a token": one({**plugin("false"), "token": "t"}),
    "a plugin and a user": one({**plugin("false"), "username": "me", "password": "pw"}),
    "a plugin and a certificate": one({**plugin("false"), **PAIR}),
    "a plugin, over plain HTTP": one(plugin("false"), server="$PLAIN"),
    "a plugin without a command": one(plugin("none")),
    # clusters
    "a token over plain HTTP": one(server="$PLAIN"),
    "no scheme": one(server="$HOST"),
    "no scheme, and a CA": one(server="$HOST", **CA),
    "a user in the URL, and a token": one(server="https://u:p%40@$SECURE", **CA),
    "a user in the URL, and a certificate": one(PAIR, server="https://u:p@$SECURE", **CA),
    "a scheme in capitals": one(server="HTTPS$//TLS", **CA),
    "a path": one(server="$TLS/some/path/", **CA),
    "a path and a query": one(server="$TLS/some?x=y#z", **CA),
    "no server": one(server=None),
    "an unsupported scheme": one(server="ftp://127.0.0.1"),
    "a relative CA": Case({"sub/k": config(**{"certificate-authority": "../ca.crt"})}),
    "CA data": one(**{"certificate-authority-data": "$CA_DATA"}),
    "a CA as file and data": one(**CA, **{"certificate-authority-data": "$CA_DATA"}),
    "no CA": one(server="$TLS"),
    "a CA file without a certificate": one(**{"certificate-authority": "token"}),
    "a missing CA file": one(**{"certificate-authority": "gone"}),
    "insecure": one(**INSECURE),
    "insecure, as a string": one(**{"insecure-skip-tls-verify": "true"}),
    "insecure, with a CA": one(**INSECURE, **CA),
    "a certificate for another name": one(server="$NAMED", **CA),
    "a tls-server-name": one(server="$NAMED", **CA, **{"tls-server-name": "kube.internal"}),
    "a proxy": one(server="http://kube.test:81", **{"proxy-url": "$PLAIN"}),
    "an invalid proxy": one(server="http://kube.test", **{"proxy-url": "$NAMED$"}),
}  # fmt: skip


class World:
    """The servers, and the replacements for $WORDS in the files."""

    def __init__(self, folder: Path, servers: dict[str, MisbehavingServer]) -> None:
        ca, me = folder / "ca.crt", (folder / "me.crt", folder / "me.key")
        data = [base64.b64encode(file.read_bytes()).decode() for file in (ca, *me)]
        self.folder, self.servers = folder, servers
        self.words = {
            "HTTPS$//TLS": servers["TLS"].url.replace("https", "HTTPS"),
            **{f"${name}": server.url for name, server in servers.items()},
            "$SECURE": servers["TLS"].url.removeprefix("https://"),
            "$HOST": servers["PLAIN"].url.removeprefix("http://"),
            **dict(zip(("$CA_DATA", "$CERT_DATA", "$KEY_DATA"), data, strict=True)),
            "$CA": str(ca),
            "$DIR": str(folder),
        }

    def expand(self, content: str) -> str:
        for word, meaning in self.words.items():
            content = content.replace(word, meaning)
        return content

    def write(self, case: Case) -> str:
        """Write the files, and return the value of KUBECONFIG."""
        for name, content in case.files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            whole = content if isinstance(content, str) else yaml.safe_dump(content)
            path.write_text(self.expand(whole))
        names = os.pathsep.join(f"$DIR/{name}" for name in case.files)
        return self.expand(names if case.env is None else case.env)

    def take(self) -> dict[str, Any] | None:
        """The sender of the last request, or None if there was no request."""
        seen = [each for server in self.servers.values() for each in server.seen]
        requests = [each for each in seen if each.method == "GET"]
        for server in self.servers.values():
            server.seen.clear()
        return sender_of(requests[-1]) if requests else None


def sender_of(seen: Seen) -> dict[str, Any]:
    impersonated = {
        name: sorted(value.split("\n"))
        for name, value in seen.headers.items()
        if name.startswith("impersonate-")
    }
    login: Any = seen.headers.get("authorization")
    if login and login.startswith("Bearer ") and len(login) > 100:
        info, *others = base64.b64decode(login.partition(" ")[2]).decode().strip().split("\n")
        login = json.loads(info), [line for line in others if line]
    target = seen.target.partition("?")[0]
    return {"target": target, "login": login, "name": seen.client_name, "as": impersonated}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ca = Authority(folder, "ca")
    for name, alternative in (
        ("127.0.0.1", "IP:127.0.0.1"),
        ("kube.internal", "DNS:kube.internal"),
    ):
        ca.issue(name, alternative)
    ca.issue("me")
    return folder


@pytest.fixture(scope="module")
def kubectl() -> str:
    path = need("kubectl", "kubernetes-client")
    found = run(path, "version", "--client", "-o", "json", check=True)
    minor = json.loads(found.stdout)["clientVersion"]["minor"]
    if int(minor.rstrip("+")) < OLDEST:
        pytest.skip(f"kubectl 1.{minor} does not know all current fields")
    return path


@pytest.fixture
def world(certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith("KUBERNETES_"):
            monkeypatch.delenv(name)
    for name, copied in (("ca-ca.crt", "ca.crt"), ("ca-me.crt", "me.crt"), ("ca-me.key", "me.key")):
        shutil.copy(certificates / name, tmp_path / copied)
    (tmp_path / "token").write_text("token-of-file\n")
    (tmp_path / "empty").write_text("")
    for name in ("elsewhere", "home", "bin", "own"):
        (tmp_path / name).mkdir()
    for name in ("plugin", "bin/plugin-in-path", "bin/plugin-v1", "own/own"):
        (tmp_path / name).write_text(PLUGIN.replace('"$API"', f'"${{API:-{V1}}}"'))
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with ExitStack() as running:
        servers = {}
        for name, subject in (("PLAIN", None), ("TLS", "127.0.0.1"), ("NAMED", "kube.internal")):
            tls = None
            if subject:
                tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                tls.load_cert_chain(
                    certificates / f"ca-{subject}.crt", certificates / f"ca-{subject}.key"
                )
                tls.load_verify_locations(tmp_path / "ca.crt")
                tls.verify_mode = ssl.CERT_OPTIONAL
            servers[name] = running.enter_context(MisbehavingServer(tls=tls))
            servers[name].default = http('{"major": "1", "minor": "36", "gitVersion": "v1.36.2"}')
        yield World(tmp_path, servers)


@pytest.mark.parametrize("name", CASES)
async def test_a_request_equals_that_of_kubectl(world: World, kubectl, monkeypatch, name) -> None:
    case = CASES[name]
    monkeypatch.setenv("KUBECONFIG", world.write(case))
    words = [kubectl, *(["--context", case.context] if case.context else [])]
    done = run(*words, "version")
    by_kubectl = world.take() if done.returncode == 0 else None
    by_dynsched, error = None, ""
    try:
        async with KubeApi(await load_credentials(None, case.context)) as api:
            await api.call(ApiRequest("get", "version", PATH))
            by_dynsched = world.take()
            view = run(*words, "config", "view", "--raw", "--minify", "-o", "json", check=True)
            shown = json.loads(view.stdout)
            context = shown["contexts"][0]
            assert api.config.context == context["name"] == shown["current-context"]
            assert api.config.namespace == context["context"].get("namespace", "default")
            server = shown["clusters"][0]["cluster"]["server"].lower().partition("?")[0]
            assert server.rstrip("/").rpartition("@")[2] in api.config.server.lower()
    except ClusterError as refused:
        error = str(refused)
        assert "\n" not in error
    assert by_dynsched == by_kubectl, (error, done.stderr)
