"""/openapi.json names every endpoint, and every endpoint does as it says."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from programs import ROOT
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from web_support import application

from dynsched.web.server import WebServer, parse_address

pytestmark = pytest.mark.thorough

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread of its own: schemathesis asks synchronously."""
    import asyncio  # noqa: PLC0415 (of the thread)

    ready, urls = threading.Event(), []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with WebServer(application()[0], parse_address("127.0.0.1:0")) as server:
            urls.append(f"http://127.0.0.1:{server.port}")
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(60)
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


SCHEMA = schemathesis.openapi.from_path(ROOT / "dynsched/web/openapi.json")


@SCHEMA.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_endpoint_does_as_it_says(case: Any, url: str) -> None:
    case.call_and_validate(base_url=url, checks=CHECKS)
