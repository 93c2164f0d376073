"""URLs that a person typed at the terminal."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parse_http_url(text: str) -> SplitResult:
    """An HTTP or HTTPS URL; the scheme may be left out. ValueError for all else, and for one with a
    user in it; do not show its message: it may repeat a part of the text, and so a password.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    # http:/host has lost a slash, and would be asked for at a host named http.
    if not known or parts.hostname in ("http", "https") or "@" in parts.netloc:
        raise ValueError("not a URL")
    return parts
