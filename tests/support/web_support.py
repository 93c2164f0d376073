"""Questions to an application of dynsched, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp.test_utils import TestClient

JSON = {"Accept": "application/json"}


async def ask(
    client: TestClient[Any, Any], path: str, status: int = 200, **headers: str
) -> tuple[Mapping[str, str], bytes]:
    """Header fields and body of an answer, which must have this status."""
    async with client.get(path, headers=headers) as response:
        body = await response.read()
        assert response.status == status, body
        return response.headers, body


async def get(client: TestClient[Any, Any], path: str, status: int = 200, **headers: str) -> Any:
    """The answer, decoded where it is JSON."""
    found, body = await ask(client, path, status, **headers)
    return json.loads(body) if "json" in found["Content-Type"] else body.decode()


def check(found: Mapping[str, Any], **expected: Any) -> None:
    """These keys of an answer have these values."""
    assert {key: found[key] for key in expected} == expected
