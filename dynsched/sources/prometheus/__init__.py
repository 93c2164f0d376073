"""Samples from Prometheus, or from anything that answers its query API.

    PrometheusSource(PrometheusConfig("http://prometheus:9090")).query(rule) -> QueryResult

The promises of this package:

- A query never raises for what the server, the network or a credential file does: it comes back
  with ``error``, one line that says what is wrong, where, and what to do. No answer is read as
  zero load.
- A query ends within ``PrometheusConfig.timeout``, whatever the server does.
- One query is one HTTP request: nothing is retried. (POST is tried first; a server that refuses
  the method itself is asked again by GET.)
- No credential appears in an error, a warning, a log line or a repr.

``config`` where to ask and with which credentials; ``source`` the asynchronous face; ``session``
one query on a thread that can be ended from outside, asked by prometheus-api-client; ``decode`` and
``vectors`` the JSON; ``query_errors`` the words for what went wrong.
docs/decisions/0009 says why.
"""

from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.source import PageResult, PrometheusSource
from dynsched.sources.prometheus.vectors import RangeResult

__all__ = ["PageResult", "PrometheusConfig", "PrometheusSource", "RangeResult"]
