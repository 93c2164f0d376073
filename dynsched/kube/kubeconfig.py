"""Which API server, and as whom, by the file that a flag names; else by the service account when
running in a pod (unless a flag names a context: only files have those); else by those that
``KUBECONFIG`` names; else by ``~/.kube/config``.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import load_kube_config_from_dict

from dynsched.kube.exec_plugin import run_plugin
from dynsched.kube.kubeconfig_file import Chosen, Cluster, User, choose
from dynsched.util.errors import KubeConfigError
from dynsched.util.files import read_file
from dynsched.util.proxies import Proxy, ProxyError, parse_proxy, proxy_for
from dynsched.util.tls import TlsFilesError, make_context

SERVICE_ACCOUNT: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the cluster's CA and its own namespace."""
TOKEN_MAX_AGE: Final = 60.0
"""Seconds after which a token that came from a file is read again. The kubelet renews a bound
token when 80 % of its life is over, so a minute late is early enough."""
_MAX_BYTES: Final = 16 * 1024 * 1024
_HEADER_NAME: Final = "!#$&'*+-.^_`|~"  # what may stand in one besides letters and digits


class Tls(NamedTuple):
    """The content of the PEM files. Where it differs, connections have to be opened anew."""

    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""


class _Login(NamedTuple):
    authorization: str | None = None
    cert: bytes = b""
    key: bytes = b""
    refresh_at: float | None = None


@dataclass(slots=True, eq=False)
class KubeConfig:
    """``flag``: the file that was named, if any. ``refresh_at``: when it has to be loaded again (of
    `time.monotonic`; None: after a 401 only). ``context``: the one in use, which a kubeconfig's new
    current-context does not change; None for a pod's service account. ``headers`` say who is
    asking, and are never to be logged. ``ssl_context``: None for an API server by plain HTTP.
    """

    namespace: str
    flag: str | None
    context: str | None
    refresh_at: float | None
    configuration: Configuration = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: Tls = field(repr=False)
    ssl_context: ssl.SSLContext | None = field(repr=False)

    def logs_in_as(self, other: KubeConfig) -> bool:
        """Whether a server that refuses one of the two refuses both."""
        return (self.headers, self.tls) == (other.headers, other.tls)

    @property
    def server(self) -> str:
        """The API server's URL, without anything secret that a URL can carry."""
        return _without_user(self.configuration.host)

    @property
    def cluster(self) -> str:
        """For people: ``production (https://10.0.0.1:6443)``."""
        return f"{self.context or 'of this pod'} ({self.server})"

    @property
    def has_expired(self) -> bool:
        return self.refresh_at is not None and time.monotonic() >= self.refresh_at

    async def reload(self) -> KubeConfig:
        """As it is on disk now (an exec plugin is run again). KubeConfigError."""
        return await load_config(self.flag, self.context)


async def load_config(
    kubeconfig: Path | str | None = None, context: str | None = None
) -> KubeConfig:
    """KubeConfigError when none was found, or when the one that counts is broken."""
    flag = str(kubeconfig) if kubeconfig else None
    if flag is None and context is None and _in_pod():
        return await _load(_service_account(), f"service account in {SERVICE_ACCOUNT}", None)
    paths = _paths(flag)
    # On a thread: a pipe may keep its reader waiting.
    chosen = await asyncio.to_thread(choose, paths, context)
    if chosen is not None:
        return await _load(chosen, f"kubeconfig {os.pathsep.join(paths)}", flag)
    if flag:
        raise KubeConfigError(f"kubeconfig {flag}: no such file; check --kubeconfig")
    named = os.environ.get("KUBECONFIG")
    raise KubeConfigError(
        f"no cluster configuration: not in a pod (no {SERVICE_ACCOUNT}/token), "
        + (f"KUBECONFIG={named} names no file that exists" if named else f"no {paths[0]}")
        + "; name a file with --kubeconfig FILE, or try `dynsched demo`, which needs no cluster"
    )


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and os.access(SERVICE_ACCOUNT / "token", os.R_OK)


def _paths(flag: str | None) -> list[str]:
    if flag:
        return [str(Path(flag).expanduser())]
    named = os.environ.get("KUBECONFIG")
    return named.split(os.pathsep) if named else [str(Path.home() / ".kube" / "config")]


def _service_account() -> Chosen:
    host, file = os.environ["KUBERNETES_SERVICE_HOST"], SERVICE_ACCOUNT / "namespace"
    address = f"[{host}]" if ":" in host else host
    server = f"https://{address}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    cluster = Cluster(server, certificate_authority=str(SERVICE_ACCOUNT / "ca.crt"))
    namespace = file.read_text().strip() if file.is_file() else ""
    return Chosen(None, namespace, cluster, User(token_file=str(SERVICE_ACCOUNT / "token")))


async def _load(chosen: Chosen, source: str, flag: str | None) -> KubeConfig:
    cluster, user = chosen.cluster, chosen.user
    try:
        configuration = _configuration(cluster)
        is_tls = configuration.host.startswith("https://")
        ca, login = b"", _Login()
        if is_tls:  # by plain HTTP anybody on the way could read it; kubectl sends none either
            ca = _ca(cluster)
            login = await _log_in(chosen, ca)
        if not is_tls:
            configuration.host = _without_user(configuration.host)
        elif "@" in urlsplit(configuration.host).netloc:
            # As Go's HTTP client: a user in the URL comes before all others.
            login = login._replace(authorization=None)
        headers = _headers(login.authorization, user)
        tls = Tls(ca, login.cert, login.key)
        context = _ssl_context(cluster, user, tls) if is_tls else None
        # Without it, each client would read all public authorities first: 17 ms.
        configuration.ca_cert_data = ca.decode("ascii", "ignore") or None
    except (KubeConfigError, ProxyError, TlsFilesError) as error:
        raise KubeConfigError(f"{source}: {error}") from None
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        raise KubeConfigError(f"{source}: {file}{error.strerror or error}") from None
    namespace, refresh_at = chosen.namespace or "default", login.refresh_at
    return KubeConfig(
        namespace, flag, chosen.context, refresh_at, configuration, headers, tls, context
    )


def _configuration(cluster: Cluster) -> Configuration:
    """Where to connect to. KubeConfigError, ProxyError."""
    configuration = Configuration()
    server = cluster.server if "://" in cluster.server else f"http://{cluster.server}"
    try:
        parts = urlsplit(server)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of .port, which is no number
        known = None
    if not known:
        raise KubeConfigError("its server is not a URL like https://host:6443")
    configuration.host = parts._replace(query="", fragment="").geturl().rstrip("/")
    configuration.tls_server_name = cluster.tls_server_name or None
    proxy: Proxy | None
    if cluster.proxy_url:  # comes before the environment's, in client-go too
        proxy = parse_proxy("its proxy-url", cluster.proxy_url)
    else:
        proxy = proxy_for(_without_user(configuration.host))
    configuration.proxy = proxy.url if proxy else None
    return configuration


async def _log_in(chosen: Chosen, ca: bytes) -> _Login:
    """By the first way that the user has, in client-go's order. KubeConfigError, OSError."""
    user = chosen.user
    cert, key = _pem(user, "client_certificate"), _pem(user, "client_key")
    if user.token or user.token_file:
        due = time.monotonic() + TOKEN_MAX_AGE if user.token_file else None
        return _Login(f"Bearer {_token(user)}", cert, key, due)
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return _Login(f"Basic {pair}", cert, key)
    if user.exec and not cert:
        found = await run_plugin(user.exec, chosen.cluster, ca)
        expiry, due = found.expiration_timestamp, None
        if expiry:  # not before its end: until then a plugin may answer from its own cache
            due = time.monotonic() + (expiry - datetime.now(UTC)).total_seconds()
        authorization = f"Bearer {found.token.strip()}" if found.token else None
        cert = (found.client_certificate_data or "").encode()
        key = (found.client_key_data or "").encode()
        return _Login(authorization, cert, key, due)
    if user.auth_provider:
        return _Login(await _by_auth_provider(chosen.cluster, user.auth_provider), cert, key)
    return _Login(None, cert, key)


def _token(user: User) -> str:
    """The one in its file comes first, if there is any. KubeConfigError, OSError."""
    found = b""
    try:
        found = read_file(user.token_file, _MAX_BYTES) if user.token_file else b""
    except OSError:
        if not user.token:
            raise
    if token := found.decode("utf-8", "replace").strip() or user.token.strip():
        return token
    raise KubeConfigError(f"the token file {user.token_file} is empty")


async def _by_auth_provider(cluster: Cluster, provider: dict[str, Any]) -> str:
    """With OpenID Connect, the only kind that kubectl still has."""
    if provider.get("name") != "oidc":
        raise KubeConfigError("its auth-provider is one that kubectl no longer has: use exec")
    whole = {
        "clusters": [{"name": "it", "cluster": {"server": cluster.server}}],
        "users": [{"name": "it", "user": {"auth-provider": provider}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    configuration = Configuration()
    try:
        await load_kube_config_from_dict(whole, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, aiohttp.ClientError, ValueError, KeyError, TypeError) as error:
        # The package quotes parts of the file, tokens and all, behind a brace.
        text = " ".join(str(error).partition("{")[0].split()) or type(error).__name__
        raise KubeConfigError(f"auth-provider oidc: {text}") from None
    return str(configuration.api_key["BearerToken"])


def _headers(authorization: str | None, user: User) -> tuple[tuple[str, str], ...]:
    """Who is asking, and as whom. KubeConfigError."""
    found = [("Authorization", authorization)] if authorization else []
    if user.as_user:
        found += [("Impersonate-User", user.as_user)]
        found += [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
        found += [("Impersonate-Group", group) for group in user.as_groups]
        for name, values in user.as_user_extra.items():
            escaped = quote(name.lower(), safe=_HEADER_NAME)
            found += [(f"Impersonate-Extra-{escaped}", value) for value in values]
    for name, value in found:
        if not value.isprintable():
            raise KubeConfigError(f"what it has for the header {name} cannot stand in one")
    return tuple(found)


def _ca(cluster: Cluster) -> bytes:
    found = _pem(cluster, "certificate_authority")
    # Where nothing of it is ASCII, Python would trust the public authorities instead.
    if cluster.certificate_authority_data and b"-----BEGIN " not in found:
        raise KubeConfigError("the CA's data holds no certificate in PEM form")
    return found


def _pem(part: Cluster | User, name: str) -> bytes:
    """The content of the file that the field names, or else of the field with the data itself."""
    if data := getattr(part, f"{name}_data"):
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise KubeConfigError(f"{name.replace('_', '-')}-data is not base64") from None
    file = getattr(part, name)
    return read_file(file, _MAX_BYTES) if file else b""


def _ssl_context(cluster: Cluster, user: User, tls: Tls) -> ssl.SSLContext:
    """Raises TlsFilesError. OpenSSL takes a client's certificate from files only: one that came as
    data is in a file for this moment.
    """
    cert, key = user.client_certificate, user.client_key
    with_files = not tls.cert or (cert and key)
    with nullcontext("") if with_files else tempfile.TemporaryDirectory() as folder:
        if folder:
            cert, key = (f"{folder}{os.sep}client-{kind}-data" for kind in ("certificate", "key"))
            Path(cert).write_bytes(tls.cert)
            Path(key).write_bytes(tls.key)
        try:
            return make_context(
                ssl.Purpose.SERVER_AUTH,
                cert=cert or None,
                key=key or None,
                ca=cluster.certificate_authority or None,
                ca_data=tls.ca.decode("ascii", "ignore"),
                verify=not cluster.insecure_skip_tls_verify,
            )
        except TlsFilesError as error:
            text = str(error)
            raise TlsFilesError(text.replace(f"{folder}{os.sep}", "") if folder else text) from None


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
