"""Queries a running dynsched instance by its URL, as the commands do."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from dynsched.tools.client import Where, ask_json


def fetch(
    server: str, path: str, *, timeout: float = 10.0, token_file: Path | None = None
) -> dict[str, Any]:
    """The JSON answer of the instance at ``server`` for an unquoted path."""
    where = Where(server, token_file, timeout=timeout)
    return ask_json(where, quote(path, safe="/?=&"))[1]
