"""What a process is told: flags and environment as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dynsched.sources.prometheus import PrometheusConfig
from dynsched.web.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a process is told; ``interval`` in seconds. ``context`` is one of the
    kubeconfig's, None its current one. ``lease_namespace`` None is the pod's, or the context's.
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
    tls: TlsConfig | None = None
