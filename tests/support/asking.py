"""Asking a running dynsched by its URL, as the commands do."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from dynsched.tools.client import TIMEOUT, ByUrl


def fetch(
    server: str, path: str, *, timeout: float = TIMEOUT, token_file: Path | None = None
) -> dict[str, Any]:
    """What the dynsched at ``server`` answers at a path that is not quoted."""
    return ByUrl(server, timeout, token_file).json(quote(path, safe="/?=&"))
