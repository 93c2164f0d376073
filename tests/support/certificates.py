"""Throw-away certificates, made by the openssl command."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM files."""

    cert: str
    key: str


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._own = self._request(name, "-x509", "-days", "2")
        self.cert = self._own.cert

    def issue(self, name: str, *alternatives: str) -> Pair:
        """A certificate for ``alternatives``, as ``DNS:localhost`` or ``IP:127.0.0.1``."""
        names = ",".join(alternatives or (f"DNS:{name}",))
        signed = ("-CA", self._own.cert, "-CAkey", self._own.key, "-days", "2")
        return self._request(name, "-x509", *signed, "-addext", f"subjectAltName={names}")

    def server(self, pair: Pair, *, clients: str | None = None) -> ssl.SSLContext:
        """A server's context; ``clients`` is the CA that its clients must be signed by."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        if clients:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _request(self, name: str, *options: str) -> Pair:
        pair = Pair(
            str(self._folder / f"{self._name}-{name}.crt"),
            str(self._folder / f"{self._name}-{name}.key"),
        )
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        files = ("-keyout", pair.key, "-out", pair.cert, "-subj", f"/CN={name}")
        words = ("openssl", "req", *key, *files, *options)
        subprocess.run(words, check=True, capture_output=True, timeout=90)
        return pair
