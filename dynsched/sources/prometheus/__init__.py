"""Samples from Prometheus, or from any server with its query API.

Failures of the server, the network or a credential file are returned as ``error``, not raised. A
query ends within ``PrometheusConfig.timeout`` and is not retried. No credential appears in an
error, a warning, a log line or a repr.
"""

from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.source import PrometheusSource, RangeResult, ServerClock

__all__ = ["PrometheusConfig", "PrometheusSource", "RangeResult", "ServerClock"]
