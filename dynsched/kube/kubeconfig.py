"""Which API server, and as whom. The `kubernetes` package reads the files; this module picks them:
the one that a flag names; else the service account when running in a pod (unless a flag names a
context: only files have those); else those that ``KUBECONFIG`` names; else ``~/.kube/config``.
"""

from __future__ import annotations

import os
import shlex
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import load_kube_config

from dynsched.util.errors import ClusterError
from dynsched.util.files import fingerprint, require_file
from dynsched.util.proxies import Proxy, ProxyError, parse_proxy, proxy_for

SERVICE_ACCOUNT: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the cluster's CA and its own namespace."""
TOKEN_MAX_AGE: Final = 60.0
"""Seconds after which a token that came from a file is read again. The kubelet renews a bound
token when 80 % of its life is over, so a minute late is early enough."""

# What the package's loaders raise for a broken file, besides their own ConfigException.
_BROKEN: Final = (yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError)
_READ_ERRORS: Final = (ConfigException, *_BROKEN)


class KubeConfigError(ClusterError):
    """No usable configuration."""


@dataclass(slots=True, eq=False)
class KubeConfig:
    """``flag``: the file that was named, if any. ``refresh_at``: when it has to be loaded again (of
    `time.monotonic`; None: after a 401 only). ``context``: the one in use, which a kubeconfig's new
    current-context does not change; None for a pod's service account.
    """

    namespace: str
    flag: str | None
    refresh_at: float | None
    configuration: Configuration = field(repr=False)
    context: str | None = None
    authorization: str | None = field(init=False, repr=False)
    """The value of the Authorization header; never to be logged."""
    tls_files: Mapping[str, tuple[int, ...]] = field(init=False)
    """CA, client certificate and key. Where they differ, connections have to be opened anew."""

    def __post_init__(self) -> None:
        wanted = self.configuration
        self.authorization = wanted.api_key.get("BearerToken")
        named = (wanted.ssl_ca_cert, wanted.cert_file, wanted.key_file)
        self.tls_files = {path: fingerprint(require_file(path)) for path in named if path}

    def logs_in_as(self, other: KubeConfig) -> bool:
        """Whether a server that refuses one of the two refuses both."""
        return (self.authorization, self.tls_files) == (other.authorization, other.tls_files)

    @property
    def server(self) -> str:
        """The API server's URL, without anything secret that a URL can carry."""
        parts = urlsplit(self.configuration.host)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    @property
    def cluster(self) -> str:
        """For people: ``production (https://10.0.0.1:6443)``."""
        return f"{self.context or 'of this pod'} ({self.server})"

    @property
    def has_expired(self) -> bool:
        return self.refresh_at is not None and time.monotonic() >= self.refresh_at

    def ssl_context(self) -> ssl.SSLContext | None:
        """None for an API server by plain HTTP. Raises KubeConfigError."""
        if not self.server.startswith("https://"):
            return None
        try:
            return RESTClientObject(self.configuration).ssl_context
        except OSError as error:  # an SSLError is one too
            why = getattr(error, "reason", None) or error.strerror or str(error)
            raise KubeConfigError(
                f"the certificates for {self.server} cannot be used, in "
                f"{', '.join(self.tls_files)}: {str(why).replace('_', ' ').lower()}"
            ) from error

    async def reload(self) -> KubeConfig:
        """As it is on disk now (an exec plugin is run again). KubeConfigError."""
        return await load_config(self.flag, self.context)


async def load_config(
    kubeconfig: Path | str | None = None, context: str | None = None
) -> KubeConfig:
    """KubeConfigError when none was found, or when the one that counts is broken."""
    try:
        flag = str(kubeconfig) if kubeconfig else None
        files = _files(flag, context)
        if files is None:
            return _from_service_account()
        return await _from_files(files, flag, context)
    except PermissionError as error:  # of the file, or of a folder above it
        raise KubeConfigError(
            f"kubeconfig {error.filename}: {error.strerror}; check its permissions"
        ) from error


def _files(kubeconfig: str | None, context: str | None) -> str | None:
    """The file or files (as in ``KUBECONFIG``) to read; None for the service account."""
    if kubeconfig:
        if not Path(kubeconfig).expanduser().is_file():
            raise KubeConfigError(f"kubeconfig {kubeconfig}: no such file; check --kubeconfig")
        return kubeconfig
    in_pod = os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").is_file()
    if in_pod and context is None:
        return None
    named = os.environ.get("KUBECONFIG", "")
    if any(Path(path).expanduser().is_file() for path in named.split(os.pathsep) if path):
        return named
    usual = Path.home() / ".kube" / "config"
    if not named and usual.is_file():
        return str(usual)
    raise KubeConfigError(
        f"no cluster configuration: not in a pod (no {SERVICE_ACCOUNT}/token), "
        + (f"KUBECONFIG={named} names no file that exists" if named else f"no {usual}")
        + "; name a file with --kubeconfig FILE, or try `dynsched demo`, which needs no cluster"
    )


def _from_service_account() -> KubeConfig:
    configuration = Configuration()
    try:
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            token_filename=str(SERVICE_ACCOUNT / "token"),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
            try_refresh_token=False,  # we reload as a whole
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except _READ_ERRORS as error:
        raise KubeConfigError(
            f"service account in {SERVICE_ACCOUNT}: {_one_line(error)}; "
            "check automountServiceAccountToken, or name a file with --kubeconfig"
        ) from error
    file = SERVICE_ACCOUNT / "namespace"
    namespace = file.read_text().strip() if file.is_file() else ""
    due = time.monotonic() + TOKEN_MAX_AGE
    return _finished(configuration, "service account", namespace, refresh_at=due)


async def _from_files(paths: str, flag: str | None, context: str | None) -> KubeConfig:
    configuration = Configuration()
    try:
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
        chosen: Mapping[str, Any] = loader.current_context["context"]
    except PermissionError:
        raise
    except _READ_ERRORS as error:
        named = "" if os.pathsep in paths else f" --kubeconfig {shlex.quote(paths)}"
        raise KubeConfigError(
            f"kubeconfig {paths}: {_one_line(error)}; see kubectl config view{named}"
        ) from error
    if not configuration.host.lower().startswith("https://"):
        # Anybody on the way could read them; kubectl sends none either.
        configuration.api_key, configuration.cert_file, configuration.key_file = {}, None, None
        user: Mapping[str, Any] = {}
    else:
        user = getattr(loader._user, "value", loader._user) or {}  # noqa: SLF001 - no public way
    if "exec" in user and not (configuration.api_key or configuration.cert_file):
        command = (user["exec"] or {}).get("command", "?")
        raise KubeConfigError(
            f"kubeconfig {paths}: the exec plugin {command} gave no credentials; run it by hand"
        )
    due = None
    if expiry := getattr(loader, "exec_plugin_expiry", None):
        # Not before its end, as client-go: until then a plugin may answer from its own cache.
        due = time.monotonic() + (expiry - datetime.now(UTC)).total_seconds()
    elif "tokenFile" in user:
        due = time.monotonic() + TOKEN_MAX_AGE
    namespace = chosen.get("namespace") or ""
    where, name = f"kubeconfig {paths}", loader.current_context["name"]
    return _finished(configuration, where, namespace, refresh_at=due, flag=flag, context=name)


def _finished(
    configuration: Configuration,
    source: str,
    namespace: str,
    *,
    refresh_at: float | None,
    flag: str | None = None,
    context: str | None = None,
) -> KubeConfig:
    if "BearerToken" in configuration.api_key:
        # A file may end in a newline; a header may not.
        configuration.api_key["BearerToken"] = configuration.api_key["BearerToken"].strip()
    # As client-go: a CA without an authority key identifier (old kubeadm) is still a CA.
    configuration.disable_strict_ssl_verification = True
    try:
        found = KubeConfig(namespace or "default", flag, refresh_at, configuration, context)
        _ = urlsplit(configuration.host).port  # it raises where it is no number
        if found.authorization or not found.server.lower().startswith("https://"):
            # As client-go: a user in the URL gives way; aiohttp would refuse to send both.
            configuration.host = found.server
        if configuration.proxy:  # the cluster's own, which comes first in client-go too
            proxy: Proxy | None = parse_proxy("its proxy-url", configuration.proxy)
        else:
            proxy = proxy_for(found.server)
    except (ProxyError, OSError) as error:
        raise KubeConfigError(f"{source}: {error}") from None
    except ValueError:
        raise KubeConfigError(f"{source}: its server is not a URL like https://host:6443") from None
    configuration.proxy = proxy.url if proxy else None
    return found


def _one_line(error: BaseException) -> str:
    """The error in one line. The package names a part of the file by its whole content, tokens
    and all (`... in FILE/{'name': ..., 'user': {'token': ...`): nothing after a brace is shown.
    """
    what, absent, file = str(error).partition("File does not exists: ")
    if absent and not what:
        return f"{file}, which it names as certificate, key or token file, does not exist"
    text = str(error).partition("{")[0] or type(error).__name__
    return " ".join(text.split()).removeprefix("Invalid kube-config file. ").rstrip("/ ")
