"""The page at `/`. This module reads its static files; the others make its data."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Final

from aiohttp import hdrs

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
File = tuple[dict[str, str], bytes]
"""Header fields and body."""


@cache
def read_files() -> dict[str, File]:
    """The static files by name. They are read once at the start: no request must touch the disk."""
    found = {}
    for file in (resources.files("dynsched.web.page") / "static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            headers: dict[str, str] = {
                "Content-Security-Policy": _POLICY,
                hdrs.CONTENT_TYPE: f"{kind}; charset=utf-8",
                hdrs.ETAG: f'"{hashlib.sha256(body).hexdigest()[:16]}"',
                # After an upgrade, the page must not mix files of two versions.
                hdrs.CACHE_CONTROL: "no-cache",
                hdrs.VARY: hdrs.ACCEPT_ENCODING,
            }
            found[file.name] = headers, body
    return found
