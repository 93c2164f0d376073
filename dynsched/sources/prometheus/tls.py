"""The TLS side of a connection to Prometheus: one SSLContext, made again when its files change.

requests would make one for each connection, which costs 15 ms with the public authorities, and
would tell a damaged certificate file from a damaged handshake by its wording only. It also lets
REQUESTS_CA_BUNDLE win over a session's own CA file; here the configured one always wins.
"""

from __future__ import annotations

import os
import ssl
import threading
from typing import Final

import requests.utils

from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.query_errors import QueryFailedError, file_problem
from dynsched.util.tls import TlsFilesError, fingerprints, make_context

_BUNDLE_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class TlsFiles:
    """The CA bundle and the client certificate of one configuration. Safe to use from threads."""

    def __init__(self, config: PrometheusConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._made: tuple[object, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext | None:
        """The context for a connection made now; None for http://.

        QueryFailedError names the file that is missing or that does not hold what it should.
        """
        config = self._config
        if not config.url.startswith("https://"):
            return None
        verify = not config.insecure_skip_verify
        what, ca = self._ca_bundle() if verify else ("CA", None)
        cert, key = config.cert_file, config.key_file
        try:
            with self._lock:
                seen = fingerprints(ca, cert, key)
                if self._made is None or self._made[0] != seen:
                    context = make_context(
                        ssl.Purpose.SERVER_AUTH, cert=cert, key=key, ca=ca, verify=verify
                    )
                    self._made = (seen, context)
                return self._made[1]
        except TlsFilesError as error:
            raise QueryFailedError(str(error)) from None
        except OSError as error:
            whats = {cert: "client certificate", key: "client key"}
            file = error.filename
            raise QueryFailedError(file_problem(whats.get(file, what), file, error)) from None

    def _ca_bundle(self) -> tuple[str, str]:
        if self._config.ca_file:
            return "CA", self._config.ca_file
        for variable in _BUNDLE_VARIABLES:
            if path := os.environ.get(variable):
                return f"CA (from {variable})", path
        return "CA", requests.utils.DEFAULT_CA_BUNDLE_PATH
