"""What the tests of the answers share."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from snapshots import NOON
from store_support import Clock, make_store

from dynsched.api.app import make_app
from dynsched.api.snapshots import SnapshotStore


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON + 125)


@pytest.fixture
def snapshots(clock: Clock) -> SnapshotStore:
    return make_store(clock)


@pytest_asyncio.fixture
async def client(snapshots: SnapshotStore) -> AsyncIterator[TestClient[Any, Any]]:
    """Of an application without an extender, which tells of what is published to ``snapshots``."""
    async with TestClient(TestServer(make_app(snapshots))) as found:
        yield found
