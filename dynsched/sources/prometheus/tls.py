"""The TLS side of a connection to Prometheus: one SSLContext, made again when its files change.

requests would make one for each connection, which costs 15 ms with the public authorities, and
would tell a damaged certificate file from a damaged handshake by its wording only. It also lets
REQUESTS_CA_BUNDLE win over a session's own CA file; here the configured one always wins.
"""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path
from typing import Final

import requests.utils

from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.query_errors import QueryFailedError, file_problem
from dynsched.util.files import fingerprint, require_file
from dynsched.util.formatting import one_line

_BUNDLE_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_MAX_BYTES: Final = 16 * 1024 * 1024  # a bundle of all public authorities has 0.3
_Fingerprint = tuple[tuple[str, tuple[int, ...]], ...]


class TlsFiles:
    """The CA bundle and the client certificate of one configuration. Safe to use from threads."""

    def __init__(self, config: PrometheusConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._made: tuple[_Fingerprint, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext | None:
        """The context for a connection made now; None for http://.

        QueryFailedError names the file that is missing or that does not hold what it should.
        """
        if not self._config.url.startswith("https://"):
            return None
        with self._lock:
            # Taken before the files are read: one that changes meanwhile is read again next time.
            fingerprint = tuple(self._stat(what, path) for what, path in self._files())
            if self._made is None or self._made[0] != fingerprint:
                self._made = (fingerprint, self._make())
            return self._made[1]

    def _ca_bundle(self) -> tuple[str, str]:
        """What it is called in a message, and its path."""
        if self._config.ca_file:
            return "CA", self._config.ca_file
        for variable in _BUNDLE_VARIABLES:
            if path := os.environ.get(variable):
                return f"CA (from {variable})", path
        return "CA", requests.utils.DEFAULT_CA_BUNDLE_PATH

    def _files(self) -> list[tuple[str, str]]:
        files = [] if self._config.insecure_skip_verify else [self._ca_bundle()]
        if self._config.cert_file and self._config.key_file:
            files.append(("client certificate", self._config.cert_file))
            files.append(("client key", self._config.key_file))
        return files

    @staticmethod
    def _stat(what: str, path: str) -> tuple[str, tuple[int, ...]]:
        try:
            is_folder = Path(path).is_dir()  # of authorities; of a certificate, loading it says so
            found = Path(path).stat() if is_folder else require_file(path, _MAX_BYTES)
        except OSError as error:
            raise QueryFailedError(file_problem(what, path, error)) from None
        return path, fingerprint(found)

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._config.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            _load_ca(context, *self._ca_bundle())
        if self._config.cert_file and self._config.key_file:
            _load_pair(context, self._config.cert_file, self._config.key_file)
        return context


def _load_ca(context: ssl.SSLContext, what: str, path: str) -> None:
    try:
        if Path(path).is_dir():
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise QueryFailedError(f"the {what} file {path} holds no certificate in PEM form") from None
    except OSError as error:
        raise QueryFailedError(file_problem(what, path, error)) from None


def _no_passphrase() -> str:
    # Without this OpenSSL asks at the terminal, and the query hangs.
    raise ValueError


def _load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    pair = f"the client certificate {cert} with the key {key}"
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise QueryFailedError(f"{pair}: the key belongs to another certificate") from None
        why = one_line((error.reason or str(error)).replace("_", " ").lower())
        raise QueryFailedError(f"{pair} cannot be used ({why}); both must be PEM") from None
    except ValueError:
        raise QueryFailedError(
            f"{pair}: the key is encrypted; give one without a passphrase"
        ) from None
    except OSError as error:
        raise QueryFailedError(file_problem("client certificate or key", cert, error)) from None
