"""Chooses the API server and the login: from the file that a flag names; else from the service
account if running in a pod (unless a flag names a context, which only files have); else from the
files in ``KUBECONFIG``; else from ``~/.kube/config``.
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
"""Seconds after which a token file is read again. The kubelet renews a bound token after 80 % of
its lifetime, so one minute later is early enough."""
_MAX_BYTES: Final = 16 * 1024 * 1024
_HEADER_NAME: Final = "!#$&'*+-.^_`|~"  # valid in addition to letters and digits


class Tls(NamedTuple):
    """The content of the PEM files. If it changes, connections must be reopened."""

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
    """The API server, and the login to it.

    ``flag``: the file that a flag named, if any. ``refresh_at``: when to reload, in seconds of
    `time.monotonic`; None: only after a 401. ``context``: the one in use, also after the
    kubeconfig's current-context changes; None for a pod's service account. ``headers`` identify the
    user, and must never be logged. ``ssl_context``: None for plain HTTP.
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
        """Whether both send the same login, so that a server that refuses one refuses the other."""
        return (self.headers, self.tls) == (other.headers, other.tls)

    @property
    def server(self) -> str:
        """The API server's URL without user and password."""
        return _without_user(self.configuration.host)

    @property
    def cluster(self) -> str:
        """Context and server, for people: ``production (https://10.0.0.1:6443)``."""
        return f"{self.context or 'of this pod'} ({self.server})"

    @property
    def has_expired(self) -> bool:
        return self.refresh_at is not None and time.monotonic() >= self.refresh_at

    async def reload(self) -> KubeConfig:
        """Load it again from disk; an exec plugin runs again. KubeConfigError."""
        return await load_config(self.flag, self.context)


async def load_config(
    kubeconfig: Path | str | None = None, context: str | None = None
) -> KubeConfig:
    """Load the configuration. KubeConfigError if there is none, or the chosen one is broken."""
    flag = str(kubeconfig) if kubeconfig else None
    if flag is None and context is None and _in_pod():
        return await _load(_service_account(), f"service account in {SERVICE_ACCOUNT}", None)
    paths = _paths(flag)
    # On a thread, because reading from a pipe may block.
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
        if is_tls:  # over plain HTTP anyone could read it; kubectl sends none either
            ca = _ca(cluster)
            login = await _log_in(chosen, ca)
        if not is_tls:
            configuration.host = _without_user(configuration.host)
        elif "@" in urlsplit(configuration.host).netloc:
            # As in Go's HTTP client, a user in the URL takes precedence.
            login = login._replace(authorization=None)
        headers = _headers(login.authorization, user)
        tls = Tls(ca, login.cert, login.key)
        context = _ssl_context(cluster, user, tls) if is_tls else None
        # Without it, each client would first load all public CAs, which takes 17 ms.
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
    except ValueError:  # .port is not a number
        known = None
    if not known:
        raise KubeConfigError("its server is not a URL like https://host:6443")
    configuration.host = parts._replace(query="", fragment="").geturl().rstrip("/")
    configuration.tls_server_name = cluster.tls_server_name or None
    proxy: Proxy | None
    if cluster.proxy_url:  # takes precedence over the environment, as in client-go
        proxy = parse_proxy("its proxy-url", cluster.proxy_url)
    else:
        proxy = proxy_for(_without_user(configuration.host))
    configuration.proxy = proxy.url if proxy else None
    return configuration


async def _log_in(chosen: Chosen, ca: bytes) -> _Login:
    """Log in by the user's first method, in client-go's order. KubeConfigError, OSError."""
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
        if expiry:  # not earlier: before its end a plugin may answer from its own cache
            due = time.monotonic() + (expiry - datetime.now(UTC)).total_seconds()
        authorization = f"Bearer {found.token.strip()}" if found.token else None
        cert = (found.client_certificate_data or "").encode()
        key = (found.client_key_data or "").encode()
        return _Login(authorization, cert, key, due)
    if user.auth_provider:
        return _Login(await _by_auth_provider(chosen.cluster, user.auth_provider), cert, key)
    return _Login(None, cert, key)


def _token(user: User) -> str:
    """The token; one from the token file takes precedence. KubeConfigError, OSError."""
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
    """The Authorization header from OpenID Connect, the only provider left in kubectl."""
    if provider.get("name") != "oidc":
        raise KubeConfigError("kubectl no longer supports its auth-provider: use exec")
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
        # The package's error quotes parts of the file, including tokens, after a brace.
        text = " ".join(str(error).partition("{")[0].split()) or type(error).__name__
        raise KubeConfigError(f"auth-provider oidc: {text}") from None
    return str(configuration.api_key["BearerToken"])


def _headers(authorization: str | None, user: User) -> tuple[tuple[str, str], ...]:
    """The headers for login and impersonation. KubeConfigError."""
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
            raise KubeConfigError(f"its value for the header {name} is not valid in a header")
    return tuple(found)


def _ca(cluster: Cluster) -> bytes:
    found = _pem(cluster, "certificate_authority")
    # If none of it were ASCII, Python would trust the public CAs instead.
    if cluster.certificate_authority_data and b"-----BEGIN " not in found:
        raise KubeConfigError("the CA's data holds no certificate in PEM form")
    return found


def _pem(part: Cluster | User, name: str) -> bytes:
    """The decoded field ``NAME-data``, or else the content of the file in the field ``NAME``."""
    if data := getattr(part, f"{name}_data"):
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise KubeConfigError(f"{name.replace('_', '-')}-data is not base64") from None
    file = getattr(part, name)
    return read_file(file, _MAX_BYTES) if file else b""


def _ssl_context(cluster: Cluster, user: User, tls: Tls) -> ssl.SSLContext:
    """A context with the cluster's CA and the user's certificate. TlsFilesError. OpenSSL reads a
    client's certificate only from files, so data is written to temporary files meanwhile.
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
