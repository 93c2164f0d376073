"""Who may take a Lease, and until when it holds: tables, and the arithmetic of two wrong clocks."""

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
    """A Lease, held by ``other`` unless it is said otherwise."""
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
        # what the holder's clock says counts for nothing
        ({"renewTime": "1971-01-01T00:00:00.000000Z"}, 15.0),
        ({"renewTime": "2971-01-01T00:00:00.000000Z"}, 15.0),
        ({"leaseDurationSeconds": 60}, 60.0),
        # somebody's `kubectl edit`: the holder goes on writing for as long as it believes it may
        ({"leaseDurationSeconds": 1}, 15.0),
    ],
)
def test_a_held_one_is_free_when_its_duration_is_over_since_it_was_seen(spec, held_for) -> None:
    lease = seen(body(**spec))
    assert not lease.is_free(100.0 + held_for)
    assert lease.is_free(100.1 + held_for)
    assert lease.free_in(100.0 + 3) == pytest.approx(held_for - 3)
    assert seen(body(**spec), least=400.0).duration == 400.0  # our own


@pytest.mark.parametrize(
    "spec",
    [
        *(None, {}, {"holderIdentity": "x"}, {"holderIdentity": "x", "leaseDurationSeconds": 1}),
        {"holderIdentity": "", "leaseDurationSeconds": 15},
    ],
    ids=str,
)
def test_an_edited_one_is_held_for_a_whole_duration_and_can_be_taken_then(spec) -> None:
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
def test_times_by_which_two_could_write_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"a holder may write for 1.* s after its"):
        LeaseTimes(**wrong)


RATE = st.floats(1 - CLOCK_ERROR, 1 + CLOCK_ERROR)


@steady(200)
@given(st.tuples(*[st.floats(0.1, 100)] * 3), RATE, RATE, st.floats(0, 50))
def test_times_that_are_taken_keep_two_wrong_clocks_apart(choice, holders, anothers, way) -> None:
    duration, write_for, write_timeout = choice
    try:
        times = LeaseTimes(duration, 1.0, write_for, write_timeout)
    except ValueError:
        return
    # In true seconds after the renewal was sent; it takes its time to be seen.
    last_write_ends = (times.write_for + times.write_timeout) / holders
    lease = seen(body(leaseDurationSeconds=1), way * anothers, least=times.duration)
    assert not lease.is_free(min(last_write_ends, way + last_write_ends) * anothers)
