"""Who may take a Lease and how long it is held: tables, and the arithmetic of two wrong clocks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.kube.election import (
    CLOCK_ERROR,
    LeaseTimes,
    held_by,
    read_lease,
    renewed_at,
)

TIMES = LeaseTimes()
WALL = 1_700_000_000.0


def body(version: str = "7", spec: Any = None, **of_spec: Any) -> dict[str, Any]:
    """A Lease, held by ``other`` by default."""
    held = {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 3}
    return {
        "metadata": {"name": "dynsched", "uid": "u", "resourceVersion": version},
        "spec": {**held, **of_spec} if spec is None else spec,
    }


def seen(found: dict[str, Any], at: float = 100.0, previous=None, least: float = TIMES.duration):
    return read_lease(found, previous, at, least=least)


@pytest.mark.parametrize(
    ("spec", "held_for"),
    [
        ({}, 15.0),
        # the holder's clock is ignored
        ({"renewTime": "1971-01-01T00:00:00.000000Z"}, 15.0),
        ({"renewTime": "2971-01-01T00:00:00.000000Z"}, 15.0),
        ({"leaseDurationSeconds": 60}, 60.0),
        # after a `kubectl edit`, the holder goes on writing for as long as it believes it may
        ({"leaseDurationSeconds": 1}, 15.0),
    ],
)
def test_a_held_lease_is_free_after_its_duration_since_it_was_first_seen(spec, held_for) -> None:
    lease = seen(body(**spec))
    assert not lease.is_free(100.0 + held_for)
    assert lease.is_free(100.1 + held_for)
    assert lease.free_in(100.0 + 3) == pytest.approx(held_for - 3)
    assert seen(body(**spec), least=400.0).duration == 400.0  # at least our own duration


@pytest.mark.parametrize(
    "spec",
    [
        *(None, {}, {"holderIdentity": "x"}, {"holderIdentity": "x", "leaseDurationSeconds": 1}),
        {"holderIdentity": "", "leaseDurationSeconds": 15},
    ],
    ids=str,
)
def test_an_edited_lease_counts_as_held_for_a_whole_duration(spec) -> None:
    lease = seen({"metadata": {"resourceVersion": "7"}, "spec": spec})
    assert not lease.released
    assert not lease.is_free(115.0)
    assert lease.is_free(115.1)
    taken = held_by("me", lease, TIMES, WALL)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("me", 1)
    assert renewed_at({"spec": spec}) is None


@pytest.mark.parametrize(
    "wrong", [{"write_for": 7.4}, {"write_timeout": 5.4}, {"duration": 14.6}, {"duration": 10.0}]
)
def test_times_that_allow_two_writers_are_an_error(wrong) -> None:
    with pytest.raises(ValueError, match=r"a holder may write for 1.* s after its"):
        LeaseTimes(**wrong)


RATE = st.floats(1 - CLOCK_ERROR, 1 + CLOCK_ERROR)


@steady(200)
@given(st.tuples(*[st.floats(0.1, 100)] * 3), RATE, RATE, st.floats(0, 50))
def test_valid_times_prevent_two_writers_with_wrong_clocks(choice, holders, others, delay) -> None:
    duration, write_for, write_timeout = choice
    try:
        times = LeaseTimes(duration, 1.0, write_for, write_timeout)
    except ValueError:
        return
    # In true seconds after the renewal was sent, which others see after the delay.
    last_write_ends = (times.write_for + times.write_timeout) / holders
    lease = seen(body(leaseDurationSeconds=1), delay * others, least=times.duration)
    assert not lease.is_free(min(last_write_ends, delay + last_write_ends) * others)
