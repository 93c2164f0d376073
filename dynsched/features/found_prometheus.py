"""Chooses the Prometheus to query: the configured one, or one found in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dynsched.kube.prometheus_services import find_prometheus
from dynsched.kube.transport import KubeApi
from dynsched.sources.prometheus import PrometheusConfig


async def found_or_named(
    api: KubeApi, config: PrometheusConfig, log: Callable[[str], None]
) -> PrometheusConfig | None:
    """``config`` if its URL was set, else a Prometheus found in the cluster; None if none is found.

    A found one is queried with the credentials of ``api`` only. ``log`` is called with one line at
    a time: which Prometheus was found, or why none was.
    """
    if not config.is_default:
        return config
    found, why_not = await find_prometheus(api)
    if found is None:
        for line in why_not:
            log(line)
        return None
    log(f"{found.kind.program} found: {found}, asked through the API server")
    # Only the timeout of ``config`` is used: its credentials are not meant for this server.
    fetch = partial(found.fetch, api)
    return PrometheusConfig(found.url(api), timeout=config.timeout, fetch=fetch)


async def found_or_default(
    api: KubeApi, config: PrometheusConfig, log: Callable[[str], None]
) -> PrometheusConfig:
    """Like `found_or_named`, but ``config`` with its default URL if none is found."""
    found = await found_or_named(api, config, log)
    if found is None:
        log(
            f"querying {config.url}; set another URL with --prom, or without a Prometheus use the "
            "rules of docs/examples/metrics-server.yaml"
        )
    return found or config
