"""The Prometheus that is asked: the one that a person named, or the one in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dynsched.kube.prometheus_services import find_prometheus
from dynsched.kube.transport import KubeApi
from dynsched.sources.prometheus import PrometheusConfig


async def found_or_named(
    api: KubeApi, config: PrometheusConfig, log: Callable[[str], None]
) -> PrometheusConfig | None:
    """``config``; where nobody named its URL, one that is found and asked by ``api``'s login alone.
    None where there is none. ``log`` takes lines: which one it is, or why there is none.
    """
    if not config.is_default:
        return config
    found, why_not = await find_prometheus(api)
    if found is None:
        for line in why_not:
            log(line)
        return None
    log(f"{found.kind.program} found: {found}, asked through the API server")
    # Nothing else of ``config``: its credentials are not meant for this server.
    fetch = partial(found.fetch, api)
    return PrometheusConfig(found.url(api), timeout=config.timeout, fetch=fetch)


async def found_or_default(
    api: KubeApi, config: PrometheusConfig, log: Callable[[str], None]
) -> PrometheusConfig:
    """The same, or ``config`` with its default URL where none is found."""
    found = await found_or_named(api, config, log)
    if found is None:
        log(
            f"asking {config.url}; name another by --prom URL, or without any Prometheus take the "
            "rules of docs/examples/metrics-server.yaml"
        )
    return found or config
