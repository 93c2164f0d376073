"""Asking a running dynsched by its URL, as the commands do."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from dynsched.tools.client import Where, ask_json


def fetch(
    server: str, path: str, *, timeout: float = 10.0, token_file: Path | None = None
) -> dict[str, Any]:
    """What the dynsched at ``server`` answers at a path that is not quoted."""
    where = Where(server, token_file, timeout=timeout)
    return ask_json(where, quote(path, safe="/?=&"))[1]
