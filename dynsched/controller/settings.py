"""The settings of a process: flags and environment as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from dynsched.sources.prometheus import PrometheusConfig
from dynsched.util.tls import TlsConfig
from dynsched.web.server import parse_address

DEFAULT_PROMETHEUS: Final = "http://localhost:9090"


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed flags of `run` and `plan`; docs/cli.md explains each."""

    prometheus: PrometheusConfig
    rules: Path = Path("rules.yaml")
    kubeconfig: Path | None = None
    context: str | None = None
    interval: float = 10.0
    """Seconds from the start of one tick to the start of the next."""
    webaddr: str = ":9000"
    dry_run: bool = False
    leader_elect: bool = True
    lease_namespace: str | None = None
    """None: the pod's namespace, else that of the context."""
    bind: bool = False
    pod_uid: str | None = None
    """The uid of the pod that the process runs in; None if unknown."""
    node_metrics: bool = True
    tls: TlsConfig | None = None
    """None: plain HTTP."""
    extender_addr: str | None = None
    """None: the extender is served on ``webaddr``."""
    extender_client_ca: Path | None = None
    """The CA of the clients of ``extender_addr``; None: that of ``tls``."""
    webhook_cert_dir: Path | None = None
    """None: no webhook. Pods get the order by the API server's policies."""
    webhook_addr: str = ":9443"
    cluster_name: str | None = None
    web_auth: bool = False
    web_auth_audience: tuple[str, ...] = ()

    @property
    def extender_tls(self) -> TlsConfig | None:
        if self.tls is None or self.extender_client_ca is None:
            return self.tls
        return replace(self.tls, client_ca=self.extender_client_ca)

    @property
    def elects(self) -> bool:
        """Whether to take part in leader election. A dry run must not keep others waiting."""
        return self.leader_elect and not self.dry_run


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Settings from flags, of which those for Prometheus begin with ``prom_``.

    Raises UsageError if flags contradict each other.
    """
    prometheus: dict[str, Any] = {
        name.removeprefix("prom_"): str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if name.startswith("prom_")
    }
    headers = dict(prometheus.pop("header"))
    others = {name: value for name, value in flags.items() if not name.startswith("prom")}
    cert, key, ca = (others.pop(name, None) for name in ("tls_cert", "tls_key", "tls_client_ca"))
    if bool(cert) != bool(key) or (ca and not cert):
        raise click.UsageError("--tls-cert and --tls-key go together; --tls-client-ca needs both")
    tls = TlsConfig(cert, key, ca) if cert and key else None
    try:
        if "webaddr" in others:
            _require_callers_known(flags)
            parse_address(flags["webhook_addr"])
        url, is_default = _prometheus_url(flags), flags["prom"] is None
        config = PrometheusConfig(url, headers=headers, is_default=is_default, **prometheus)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if flags.get("web_auth_audience") and not flags.get("web_auth"):
        raise click.UsageError("--web-auth-audience needs --web-auth")
    return Settings(prometheus=config, tls=tls, **others)


def _prometheus_url(flags: Mapping[str, Any]) -> str:
    """The URL of Prometheus. Raises UsageError if credentials would go to the default URL."""
    url: str | None = flags["prom"]
    secrets = ("bearer_token", "bearer_token_file", "username", "header")
    if url is None and any(flags[f"prom_{name}"] for name in secrets):
        raise click.UsageError(
            "credentials for Prometheus are not sent to a default address: name its URL with --prom"
        )
    return url or DEFAULT_PROMETHEUS


def _require_callers_known(flags: Mapping[str, Any]) -> None:
    """Raise UsageError if the extender's flags are incomplete, or let any client that can connect
    bind any pod to any node; ValueError for an invalid address.
    """
    address, own = parse_address(flags["webaddr"]), flags.get("extender_addr")
    client_ca, flag = flags.get("tls_client_ca"), "--webaddr"
    if own is not None:
        address, flag = parse_address(own), "--extender-addr"
        client_ca = flags.get("extender_client_ca") or client_ca
    elif flags.get("extender_client_ca") is not None:
        raise click.UsageError("--extender-client-ca needs --extender-addr")
    if flags.get("extender_client_ca") is not None and flags.get("tls_cert") is None:
        raise click.UsageError("--extender-client-ca needs --tls-cert and --tls-key")
    if flags.get("bind") and client_ca is None and not address.loopback:
        raise click.UsageError(
            f"--bind lets every client that can connect to {address} bind any pod to any node: "
            f"give --tls-client-ca (with --tls-cert and --tls-key), or a loopback {flag} such as "
            "127.0.0.1:9000"
        )
