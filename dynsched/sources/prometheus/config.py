"""Where Prometheus is, and how to be let in. Checked when made; files are read at each query."""

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

from dynsched.sources.prometheus.query_errors import QueryFailedError, file_problem, file_remedy
from dynsched.util.files import FileTooLargeError, read_file
from dynsched.util.proxies import Proxy, ProxyError, proxy_for
from dynsched.util.tls import TlsFilesError, fingerprints, make_context

DEFAULT_TIMEOUT: Final = 10.0
_SECRET_LIMIT: Final = 64 * 1024  # bytes; a credential file that is larger is some other file
_TOKEN: Final = re.compile(r"[!-~]+")  # what can stand in a header: visible ASCII
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Shorter texts are not treated as secrets: to mask them would make a message unreadable.
_MIN_SECRET_LENGTH: Final = 4

Fetch = Callable[[str, float], Coroutine[None, None, tuple[int, Mapping[str, str], bytes]]]
"""Gets a path with its query within so many seconds: status, headers and body. ClusterError."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers of one request, and the texts in them that must not be shown."""

    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def redact(self, text: str) -> str:
        """A server may echo what it was sent."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """``timeout`` is the whole time of a query, in seconds. A user and password in ``url`` become
    ``username`` and ``password``. ``*_file`` are read anew when they change. Without ``ca_file``,
    the public authorities. None for ``external_url``, where people reach its pages: at ``url``.
    ``fetch``: by whose connection and login pages below ``url`` are got, if not by an own one; no
    credentials of this configuration are sent then. ValueError with all that is wrong.
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
    """Whether nobody named the URL, so that one that is found in the cluster may take its place."""
    fetch: Fetch | None = field(default=None, repr=False)
    proxy: Proxy | None = field(default=None, init=False)
    """What the environment says of ``url``; None: it is asked directly."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(self.headers))
        problems = [*self._settle_url(), *self._settle_external_url(), *self._auth_problems()]
        problems += filter(None, map(_header_problem, self.headers, self.headers.values()))
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
        """Move user and password out of it; returns what is wrong."""
        if problem := _url_problem(self.url):
            # Whatever is wrong, the message must not repeat a password that stands in the URL.
            return [f"Prometheus URL {_shown(self.url)!r}: {problem}"]
        parts = urlsplit(self.url)
        userinfo, at, address = parts.netloc.rpartition("@")
        object.__setattr__(self, "url", f"{parts.scheme}://{address}{parts.path.rstrip('/')}")
        try:
            object.__setattr__(self, "proxy", proxy_for(self.url))
        except ProxyError as error:
            return [str(error)]
        if not at:
            return []
        if self.username is not None or self.password is not None or self.password_file:
            problem = "it contains a user, and another one is configured separately"
            return [f"Prometheus URL {self.url!r}: {problem}"]
        user, _, password = userinfo.partition(":")
        object.__setattr__(self, "username", unquote(user))
        object.__setattr__(self, "password", unquote(password))
        return []

    def _settle_external_url(self) -> list[str]:
        if self.external_url is None:
            return []
        problem = _url_problem(self.external_url)
        if problem is None and "@" in urlsplit(self.external_url).netloc:
            problem = "it contains a user; everybody who opens the page would see it"
        if problem:
            return [f"--prom-external-url {_shown(self.external_url)!r}: {problem}"]
        object.__setattr__(self, "external_url", self.external_url.rstrip("/"))
        return []

    def _auth_problems(self) -> list[str]:
        has_user = self.username is not None
        ways = {
            "a bearer token (--prom-bearer-token)": self.bearer_token is not None,
            "a bearer token (--prom-bearer-token-file)": bool(self.bearer_token_file),
            "basic authentication (--prom-username)": has_user,
            "an Authorization header (--prom-header)": any(
                name.lower() == "authorization" for name in self.headers
            ),
        }
        given = [way for way, is_given in ways.items() if is_given]
        problems = []
        if len(given) > 1:
            rest = "not both" if given[2:] == [] else "only one of them"
            problems.append(f"give either {' or '.join(given)}, {rest}")
        if self.bearer_token is not None and not _TOKEN.fullmatch(self.bearer_token):
            problems.append("--prom-bearer-token is empty or has a space or line break in it")
        passwords = [self.password is not None, bool(self.password_file)]
        if all(passwords):
            problems.append("give either --prom-password or --prom-password-file, not both")
        if not has_user and any(passwords):
            problems.append("a password needs a user name: give --prom-username too")
        if has_user and not any(passwords):
            problems.append("--prom-username needs --prom-password-file (or --prom-password) too")
        return problems

    def credentials(self) -> Credentials:
        """For a request made now. QueryFailedError when a file cannot be used."""
        headers = dict(self.headers)
        secrets = [part for value in headers.values() for part in (value, *value.split())]
        token, password = self.bearer_token, self.password or ""
        if self.bearer_token_file:
            token = _read_secret(self.bearer_token_file, "bearer token", _TOKEN.fullmatch)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
            secrets.append(token)
        elif self.username is not None:
            if self.password_file:
                password = _read_secret(self.password_file, "password", str.isprintable)
            # UTF-8, as RFC 7617 and Prometheus's own clients have it; requests would take Latin-1.
            pair = base64.b64encode(f"{self.username}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            secrets += [pair, password]
        return Credentials(headers, tuple(secrets))


def _shown(url: str) -> str:
    return re.split(r"[?#]", url.rpartition("@")[2])[0]


def _header_problem(name: str, value: str) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return f"--prom-header {name!r}: this is no header name"
    if value != value.strip() or not value.isprintable() or not value.isascii():
        return f"--prom-header {name}: its value must be printable ASCII, no end spaces"
    return None


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # .port raises for a port that is no number
        (host or "").encode("idna")
    except ValueError:
        return "the host or the port is malformed"
    if "://" not in url:
        return f"the scheme is missing; write http://{_shown(url)}"
    if parts.scheme not in ("http", "https"):
        return "only http:// and https:// are possible"
    if not host or re.search(r"[\s\x00-\x1f]", url):
        return "the host is missing, or there is a space in it"
    if parts.query or parts.fragment:
        return "it must end with the path, before ? and #"
    return None


def _read_secret(path: str, what: str, fits: Callable[[str], object]) -> str:
    """Without the white space around it. QueryFailedError names the file, never what is in it."""
    try:
        secret = read_file(path, _SECRET_LIMIT).decode().strip()
    except (FileTooLargeError, UnicodeDecodeError):
        secret = ""
    except OSError as error:
        raise QueryFailedError(file_problem(what, path, error)) from None
    if secret and fits(secret):
        return secret
    wrong = f"does not hold one {what} and nothing else"
    raise QueryFailedError(f"the {what} file {path} {wrong}; {file_remedy(what)}")


def tls_context(config: PrometheusConfig) -> ssl.SSLContext | None:
    """For https; made again when its files change. QueryFailedError names a file that cannot be
    used. (requests would make one for each connection, 15 ms, and check certificates more strictly
    than Go does.)
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
        whats = {cert: "client certificate", key: "client key"}
        file = error.filename
        raise QueryFailedError(file_problem(whats.get(file, "CA"), file, error)) from None


@lru_cache(maxsize=1)
def _context(
    _: object, cert: str | None, key: str | None, ca: str | None, *, verify: bool
) -> ssl.SSLContext:
    return make_context(ssl.Purpose.SERVER_AUTH, cert=cert, key=key, ca=ca, verify=verify)
