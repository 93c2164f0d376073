"""Shared by the tests of the web application."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from scenes import NOON
from store_support import Clock, make_store

from dynsched.web.app import make_app
from dynsched.web.ticks import TickStore


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON + 125)


@pytest.fixture
def ticks(clock: Clock) -> TickStore:
    return make_store(clock)


@pytest_asyncio.fixture
async def client(ticks: TickStore) -> AsyncIterator[TestClient[Any, Any]]:
    """A client of an application without an extender, which shows what ``ticks`` publishes."""
    async with TestClient(TestServer(make_app(ticks))) as found:
        yield found
