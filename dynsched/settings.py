"""What a process is told: flags and environment as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dynsched.core.defaults import EXTENDER_MEMORY
from dynsched.sources.prometheus import PrometheusConfig
from dynsched.web.server import Address, parse_address
from dynsched.web.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a process is told; ``interval`` in seconds. ``context`` is one of the
    kubeconfig's, None its current one. ``lease_namespace`` None is the pod's, or the context's.
    ``extender_memory``: MiB for the questions of schedulers that are under way.
    """

    prometheus: PrometheusConfig
    rules: Path = Path("rules.yaml")
    kubeconfig: Path | None = None
    context: str | None = None
    interval: float = 10.0
    webaddr: str = ":9000"
    dry_run: bool = False
    leader_elect: bool = True
    lease_namespace: str | None = None
    bind: bool = False
    extender_memory: int = EXTENDER_MEMORY
    tls: TlsConfig | None = None


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """What the flags come to; those of Prometheus begin with ``prom_``. UsageError where they
    contradict each other.
    """
    prometheus: dict[str, Any] = {
        name.removeprefix("prom_"): str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if name.startswith("prom_")
    }
    headers = dict(prometheus.pop("header"))
    given_tls = {name: flags.get(name) for name in ("tls_cert", "tls_key", "tls_client_ca")}
    others = {
        name: value
        for name, value in flags.items()
        if not name.startswith("prom") and name not in given_tls
    }
    try:
        if "webaddr" in others:
            _require_callers_known(parse_address(others["webaddr"]), flags)
        config = PrometheusConfig(flags["prom"], headers=headers, **prometheus)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return Settings(prometheus=config, tls=_tls(*given_tls.values()), **others)


def _require_callers_known(address: Address, flags: Mapping[str, Any]) -> None:
    """UsageError where anybody who reaches the port could bind any pod to any node."""
    if flags.get("bind") and flags.get("tls_client_ca") is None and not address.loopback:
        raise click.UsageError(
            f"--bind lets whoever reaches {address} bind any pod to any node: give --tls-client-ca "
            "(with --tls-cert and --tls-key), or a loopback --webaddr such as 127.0.0.1:9000"
        )


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsConfig | None:
    if cert is not None and key is not None:
        return TlsConfig(cert, key, client_ca)
    if cert is not None or key is not None or client_ca is not None:
        raise click.UsageError("--tls-cert and --tls-key go together; --tls-client-ca needs both")
    return None
