"""What the tests of the answers share."""

from __future__ import annotations

import pytest
from snapshots import NOON
from store_support import Clock, make_store

from dynsched.web.snapshots import SnapshotStore


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON + 125)


@pytest.fixture
def snapshots(clock: Clock) -> SnapshotStore:
    return make_store(clock)
