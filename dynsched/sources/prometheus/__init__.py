"""Samples from Prometheus, or from anything that answers its query API.

A query never raises for what the server, the network or a credential file does: it comes back with
``error``. It ends within ``PrometheusConfig.timeout``; nothing is retried. No credential appears in
an error, a warning, a log line or a repr.
"""

from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.source import PrometheusSource, RangeResult, ServerClock

__all__ = ["PrometheusConfig", "PrometheusSource", "RangeResult", "ServerClock"]
