"""What a process is told: flags and environment as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynsched.sources.prometheus import PrometheusConfig
from dynsched.web.bodies import MEMORY, MIB
from dynsched.web.tls import TlsConfig

EXTENDER_MEMORY: Final = MEMORY // MIB


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
