"""URL and credentials of Prometheus. Validated on creation; files are read at each query."""

from __future__ import annotations

import base64
import math
import re
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

import requests.utils

from dynsched.sources.prometheus.query_errors import QueryFailedError
from dynsched.util.files import read_file
from dynsched.util.proxies import Proxy, ProxyError, proxy_for
from dynsched.util.tls import TlsFilesError, fingerprints, make_context

DEFAULT_TIMEOUT: Final = 10.0
_SECRET_LIMIT: Final = 64 * 1024  # bytes; a larger file is not a credential file
_TOKEN: Final = re.compile(r"[!-~]+")  # valid in a header: visible ASCII
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"([!-~]([ -~]*[!-~])?)?")  # printable ASCII, no end spaces
# Shorter texts are not masked, because that would make messages unreadable.
_MIN_SECRET_LENGTH: Final = 4

Fetch = Callable[[str, float], Coroutine[None, None, tuple[int, Mapping[str, str], bytes]]]
"""Gets a path and query within a number of seconds: status, headers, body. ClusterError."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers of one request, and the secrets in them."""

    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def redact(self, text: str) -> str:
        """``text`` without the secrets: a server may echo what it received."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """The configuration of one Prometheus. Raises ValueError that lists all problems.

    ``timeout``: seconds for a whole query. A user and password in ``url`` become ``username`` and
    ``password``. Each query uses the current content of ``*_file``. Without ``ca_file``, the public
    CAs are trusted. ``external_url``: where people open its pages; None: at ``url``. ``fetch`` gets
    the paths below ``url`` with another connection and login; the credentials of this configuration
    are then not sent.
    """

    url: str
    timeout: float = DEFAULT_TIMEOUT
    bearer_token: str | None = field(default=None, repr=False)
    bearer_token_file: str | None = None
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure_skip_verify: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    external_url: str | None = None
    is_default: bool = False
    """Whether ``url`` is the default, so that a Prometheus found in the cluster may replace it."""
    fetch: Fetch | None = field(default=None, repr=False)
    proxy: Proxy | None = field(default=None, init=False)
    """The proxy for ``url`` in the environment; None for a direct connection."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(self.headers))
        problems = [*self._settle_url(), *self._settle_external_url(), *self._auth_problems()]
        problems += [
            f"--prom-header {name!r}: it must be a header's name and a value in printable ASCII"
            for name, value in self.headers.items()
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value))
        ]
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            problems.append(f"--prom-timeout is {self.timeout!r}: give seconds above 0")
        if bool(self.cert_file) != bool(self.key_file):
            given, missing = ("cert", "key") if self.cert_file else ("key", "cert")
            problems.append(f"--prom-{given}-file needs --prom-{missing}-file too")
        if self.insecure_skip_verify and self.ca_file:
            problems.append("give either --prom-ca-file or --prom-insecure-skip-verify, not both")
        if problems:
            raise ValueError("; ".join(problems))

    def _settle_url(self) -> list[str]:
        """Move user and password out of the URL; returns the problems."""
        if not _is_url(self.url):
            # The message must not repeat a password from the URL.
            return [f"Prometheus URL {_shown(self.url)!r}: {_WANTED}"]
        parts = urlsplit(self.url)
        userinfo, at, address = parts.netloc.rpartition("@")
        object.__setattr__(self, "url", f"{parts.scheme}://{address}{parts.path.rstrip('/')}")
        if at and (self.username is not None or self.password is not None or self.password_file):
            return ["the URL of Prometheus contains a user, and another one is configured"]
        if at:
            user, _, password = userinfo.partition(":")
            object.__setattr__(self, "username", unquote(user))
            object.__setattr__(self, "password", unquote(password))
        try:
            object.__setattr__(self, "proxy", proxy_for(self.url))
        except ProxyError as error:
            return [str(error)]
        return []

    def _settle_external_url(self) -> list[str]:
        if self.external_url is None:
            return []
        if not _is_url(self.external_url) or "@" in urlsplit(self.external_url).netloc:
            return [f"--prom-external-url {_shown(self.external_url)!r}: {_WANTED}, without a user"]
        object.__setattr__(self, "external_url", self.external_url.rstrip("/"))
        return []

    def _auth_problems(self) -> list[str]:
        has_user = self.username is not None
        ways = {
            "--prom-bearer-token": self.bearer_token is not None,
            "--prom-bearer-token-file": bool(self.bearer_token_file),
            "--prom-username": has_user,
            "--prom-header Authorization": "authorization" in map(str.lower, self.headers),
        }
        given = [flag for flag, is_given in ways.items() if is_given]
        problems = [f"give only one of {' and '.join(given)}"] if len(given) > 1 else []
        if self.bearer_token is not None and not _TOKEN.fullmatch(self.bearer_token):
            problems.append("--prom-bearer-token is empty or has a space or line break in it")
        passwords = [self.password is not None, bool(self.password_file)]
        if all(passwords):
            problems.append("give either --prom-password or --prom-password-file, not both")
        if has_user != any(passwords):
            problems.append(
                "--prom-username and --prom-password-file (or --prom-password) go together"
            )
        return problems

    def credentials(self) -> Credentials:
        """The credentials to send now. QueryFailedError if a file cannot be used."""
        headers = dict(self.headers)
        secrets = [part for value in headers.values() for part in (value, *value.split())]
        token, password = self.bearer_token, self.password or ""
        if self.bearer_token_file:
            flag = "--prom-bearer-token-file"
            token = _read_secret(flag, self.bearer_token_file, _TOKEN.fullmatch)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
            secrets.append(token)
        elif self.username is not None:
            if self.password_file:
                flag = "--prom-password-file"
                password = _read_secret(flag, self.password_file, str.isprintable)
            # UTF-8, as in RFC 7617 and Prometheus's own clients; requests would use Latin-1.
            pair = base64.b64encode(f"{self.username}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            secrets += [pair, password]
        return Credentials(headers, tuple(secrets))


_WANTED: Final = "write a URL like http://prometheus:9090/prefix"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # a port that is not a number, or a host label that is too long
        return False
    return bool(known) and not (re.search(r"\s", url) or parts.query or parts.fragment)


def _shown(url: str) -> str:
    return re.split(r"[?#]", url.rpartition("@")[2])[0]


def _read_secret(flag: str, path: str, fits: Callable[[str], object]) -> str:
    """The file's secret, stripped. QueryFailedError names the file, never its content."""
    try:
        secret = read_file(path, _SECRET_LIMIT).decode().strip()
    except UnicodeDecodeError:
        secret = ""
    except OSError as error:
        raise QueryFailedError(_unreadable(flag, path, error)) from None
    if secret and fits(secret):
        return secret
    raise QueryFailedError(f"{flag} {path}: it does not hold one secret and nothing else")


def _unreadable(flag: str, path: str, error: OSError) -> str:
    return f"{flag} {path}: {error.strerror or error}; check the path, or the Secret and its mount"


def tls_context(config: PrometheusConfig) -> ssl.SSLContext | None:
    """The context for https, cached until its files change. QueryFailedError names a file that
    cannot be used. (requests would create a context for each connection, which takes 15 ms, and
    check certificates more strictly than Go.)
    """
    if not config.url.startswith("https:"):
        return None
    verify, cert, key = not config.insecure_skip_verify, config.cert_file, config.key_file
    ca = (config.ca_file or requests.utils.DEFAULT_CA_BUNDLE_PATH) if verify else None
    try:
        return _context(fingerprints(ca, cert, key), cert, key, ca, verify=verify)
    except TlsFilesError as error:
        raise QueryFailedError(str(error)) from None
    except OSError as error:
        flags = {cert: "--prom-cert-file", key: "--prom-key-file"}
        flag = flags.get(error.filename, "--prom-ca-file")
        raise QueryFailedError(_unreadable(flag, error.filename, error)) from None


@lru_cache(maxsize=1)
def _context(
    _: object, cert: str | None, key: str | None, ca: str | None, *, verify: bool
) -> ssl.SSLContext:
    return make_context(ssl.Purpose.SERVER_AUTH, cert=cert, key=key, ca=ca, verify=verify)
