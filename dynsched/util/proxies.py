"""Chooses the proxy for a URL from the environment, as kubectl does, and parses URLs that people
type.

The libraries have other rules: aiohttp and urllib accept no CIDR and no port in NO_PROXY, requests
uses the proxy even for localhost, and with ``trust_env`` they also send credentials from ~/.netrc.
The rules here are those of Go's httpproxy package, which kubectl and Prometheus use.
"""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

_PORTS: Final = {"http": "80", "https": "443"}
_WITH_PORT: Final = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[^:]*))?")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ProxyError(ValueError):
    """An unusable proxy. The message says where it was set, and shows no password."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """``variable``: where it was set. ``url`` may contain a password, so it must not be shown."""

    url: str = field(repr=False)
    variable: str

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{self.variable}={parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def proxy_for(url: str, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy for ``url``; None for a direct connection. Raises ProxyError."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        return None
    variable = f"{parts.scheme}_proxy".upper()
    value = environ.get(variable) or environ.get(variable.lower(), "")
    no_proxy = environ.get("NO_PROXY") or environ.get("no_proxy", "")
    if not value or _bypasses_proxy(parts, no_proxy):
        return None
    return parse_proxy(variable, value)


def parse_proxy(variable: str, value: str) -> Proxy:
    """``value`` as a proxy: a URL, or ``host:port``. Raises ProxyError with ``variable``."""
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        known = parts.hostname and parts.port != 0  # .port raises if it is not a number
    except ValueError:
        known = None
    if not known:
        raise ProxyError(f"{variable} is not the URL of a proxy, like http://proxy:3128")
    if parts.scheme not in _PORTS:
        raise ProxyError(
            f"{variable}: a proxy by {parts.scheme}:// is not supported, only by http:// or https://"
        )
    return Proxy(url, variable)


def through(proxy: Proxy | None) -> str:
    """The part of an error message that names the proxy; empty without a proxy."""
    return f" (through the proxy that the environment sets: {proxy})" if proxy else ""


def opener(proxy: Proxy | None) -> urllib.request.OpenerDirector:
    """A `urllib` opener whose requests, including redirects, go through ``proxy``, if any."""
    by_scheme = dict.fromkeys(_PORTS, proxy.url) if proxy else {}
    return urllib.request.build_opener(urllib.request.ProxyHandler(by_scheme))


def _bypasses_proxy(parts: SplitResult, no_proxy: str) -> bool:
    host = parts.hostname or ""
    port = str(parts.port or _PORTS.get(parts.scheme, ""))
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = filter(None, map(str.strip, no_proxy.lower().split(",")))
    return any(_matches(entry, host, port, address) for entry in entries)


def _matches(entry: str, host: str, port: str, address: _Address | None) -> bool:
    """Whether an entry of NO_PROXY matches this host. An entry is ``*``, a CIDR, or an IP address
    or domain with an optional port. ``domain`` includes subdomains; ``.domain`` is only these.
    """
    if entry == "*":
        return True
    with suppress(ValueError):
        if "/" in entry:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
    found = _WITH_PORT.fullmatch(entry)  # an IPv6 address without brackets has no port
    name = (found["v6"] or found["host"] or "") if found else entry
    if not name or (found and found["port"] and found["port"] != port):
        return False
    if (wanted := _address(name)) is not None:
        return wanted == address
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or (host == domain and not name.startswith((".", "*.")))


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def parse_http_url(text: str) -> SplitResult:
    """Parse an HTTP or HTTPS URL; the scheme is optional. ValueError for anything else, and for a
    URL with a user. Do not show the error's message: it may repeat a password from the text.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    # http:/host lacks a slash, and would be read as a host named http.
    if not known or parts.hostname in ("http", "https") or "@" in parts.netloc:
        raise ValueError("not a URL")
    return parts
