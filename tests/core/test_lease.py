"""Who may take a Lease, and until when it holds: tables, and the arithmetic of two wrong clocks."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.lease import (
    CLOCK_ERROR,
    MAX_DURATION,
    LeaseTimes,
    Patience,
    deleted,
    given_up,
    held_by,
    is_released,
    read_lease,
    renewed_at,
)
from dynsched.writer import WRITE_TIMEOUT

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


# --- who may take it ---


@pytest.mark.parametrize(
    ("passed", "free"), [(0.0, False), (14.9, False), (15.0, False), (15.1, True)]
)
def test_a_held_one_is_free_when_its_duration_is_over_since_it_was_seen(passed, free) -> None:
    lease = seen(body())
    assert lease.is_free(100.0 + passed) is free
    assert lease.free_in(100.0 + passed) == pytest.approx(15.0 - passed)


def test_only_a_change_begins_the_wait_anew() -> None:
    first = seen(body("7"))
    same = seen(body("7"), 110.0, first)
    changed = seen(body("8"), 110.0, first)
    assert (same.seen_at, changed.seen_at) == (100.0, 110.0)
    assert (same.is_free(116.0), changed.is_free(116.0)) == (True, False)


@pytest.mark.parametrize("renewed", ["1971-01-01T00:00:00.000000Z", "2971-01-01T00:00:00.000000Z"])
def test_what_the_holders_clock_says_counts_for_nothing(renewed) -> None:
    lease = seen(body(renewTime=renewed))
    assert not lease.is_free(100.0 + 15.0)
    assert lease.is_free(100.0 + 15.1)


def test_the_holders_own_duration_counts_where_it_is_longer() -> None:
    lease = seen(body(leaseDurationSeconds=60))
    assert not lease.is_free(160.0)
    assert lease.is_free(160.1)


def test_a_duration_of_decades_does_not_keep_all_out() -> None:
    lease = seen(body(leaseDurationSeconds=2**31 - 1))
    assert not lease.is_free(399.0)
    assert lease.is_free(401.0)


def test_transitions_stop_at_what_the_api_server_takes() -> None:
    lease = seen(body(holderIdentity="other", leaseTransitions=2**31 - 1))
    assert held_by("me", lease, TIMES, WALL)["leaseTransitions"] == 2**31 - 1


def test_a_shorter_duration_is_not_believed_for_its_holder_may_not_know() -> None:
    # Somebody's `kubectl edit`: the holder goes on writing for as long as it believes it may.
    lease = seen(body(leaseDurationSeconds=1))
    assert not lease.is_free(115.0)


def test_a_longer_duration_is_believed_up_to_a_bound() -> None:
    # 68 years, by a typing error or from somebody who would stop us.
    lease = seen(body(leaseDurationSeconds=2**31 - 1))
    assert not lease.is_free(100.0 + MAX_DURATION)
    assert lease.is_free(100.1 + MAX_DURATION)
    assert seen(body(leaseDurationSeconds=2**31 - 1), least=400.0).duration == 400.0  # our own


def test_the_same_version_of_another_history_is_another_state() -> None:
    # After a restore of etcd versions are given a second time.
    first = seen(body("7", renewTime="2023-11-14T22:13:20.000000Z"))
    other = seen(body("7", renewTime="2023-11-14T22:13:22.000000Z"), 110.0, first)
    assert other.seen_at == 110.0


def test_what_was_let_go_of_before_its_present_holder_took_it_is_not_free() -> None:
    # A restore has brought back the moment between two holders; the second may still write.
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3}
    held = seen(body("9", leaseTransitions=4))
    again = seen(body("7", released), 110.0, held)
    assert not again.released
    assert not again.is_free(125.0)
    assert again.is_free(125.1)
    assert seen(body("10", {**released, "leaseTransitions": 4}), 110.0, held).is_free(110.0)


def test_what_its_holder_let_go_of_before_it_took_it_again_is_not_free() -> None:
    earlier, later = "2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:50.000000Z"
    held = seen(body("9", renewTime=later))
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3}
    again = seen(body("7", {**released, "renewTime": earlier}), 110.0, held)
    assert not again.is_free(125.0)
    assert seen(body("7", {**released, "renewTime": later}), 110.0, held).is_free(110.0)


ODD = [
    None,
    "a string",
    [],
    {},
    {"holderIdentity": None},
    {"holderIdentity": ""},
    {"holderIdentity": "", "leaseDurationSeconds": 15},
    {"holderIdentity": "x", "leaseDurationSeconds": None},
    {"holderIdentity": "x", "leaseDurationSeconds": "1"},
    {"holderIdentity": "x", "leaseDurationSeconds": True},
    {"holderIdentity": "x", "leaseDurationSeconds": 0},
    {"holderIdentity": "x", "leaseDurationSeconds": -5},
    {"holderIdentity": "x", "leaseDurationSeconds": 1.5},
    {"holderIdentity": ["x"], "leaseDurationSeconds": 1, "leaseTransitions": "many"},
    {"holder": "a later schema", "duration": "PT15S"},
]


@pytest.mark.parametrize("spec", ODD, ids=str)
def test_odd_content_is_held_for_a_whole_duration_and_can_be_taken_then(spec) -> None:
    lease = seen({"metadata": {"resourceVersion": "7"}, "spec": spec})
    assert not lease.released
    assert not lease.is_free(115.0)
    assert lease.is_free(115.1)
    taken = held_by("me", lease, TIMES, WALL)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("me", 1)


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {}}])
def test_odd_metadata_is_no_version(odd) -> None:
    assert seen(odd).resource_version == ""


def test_what_its_holder_let_go_of_is_free_at_once() -> None:
    mine = seen({**body(), "spec": held_by("me", None, TIMES, WALL)})
    lease = seen({**body("8"), "spec": given_up(mine, WALL + 5)}, 100.0)
    assert lease.released
    assert lease.is_free(100.0)
    assert lease.holder == ""


# --- one that is not there ---


def test_one_that_never_was_may_be_created_at_once() -> None:
    assert gone(None, 100.0) is None


def gone(previous, now: float, least: float = TIMES.duration):
    return deleted(previous, now, least=least)


def test_one_deleted_under_its_holder_holds_until_it_would_have_run_out() -> None:
    lease = gone(seen(body()), 110.0)
    assert lease is not None
    assert (lease.holder, lease.resource_version, lease.is_free(115.0)) == ("other", "", False)

    again = gone(lease, 114.0)
    assert again == lease
    assert gone(lease, 115.1) is None


def test_one_deleted_holds_for_no_longer_than_ours_would() -> None:
    # Whoever deletes it says that it is not in use; a holder that lives notices at its next look.
    lease = seen(body(leaseDurationSeconds=2**31 - 1))
    waits = gone(lease, 110.0)
    assert waits is not None
    assert not waits.is_free(115.0)
    assert waits.is_free(115.1)
    assert gone(lease, 115.1) is None


def test_one_deleted_after_it_was_let_go_of_may_be_created_at_once() -> None:
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    assert gone(seen(body(spec=spec)), 100.0) is None


def test_one_that_its_holder_created_again_is_seen_anew() -> None:
    lease = gone(seen(body()), 110.0)
    assert seen(body("9"), 111.0, lease).seen_at == 111.0


# --- what is written ---


def test_the_first_holder() -> None:
    stamp = "2023-11-14T22:13:20.250000Z"
    assert held_by("me", None, TIMES, WALL + 0.25) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": 0,
    }


def test_a_renewal_changes_its_time_and_nothing_else() -> None:
    taken = held_by("me", None, TIMES, WALL)
    mine = seen({**body(), "spec": {**taken, "strategy": "OldestEmulationVersion"}})
    renewed = held_by("me", mine, TIMES, WALL + 2)
    assert renewed == {
        **taken,
        "strategy": "OldestEmulationVersion",
        "renewTime": "2023-11-14T22:13:22.000000Z",
    }


@steady(200)
@given(st.floats(1_000_000_000, 4_000_000_000))
def test_a_renewal_always_differs_from_what_it_renews(wall) -> None:
    # Else the API server would store nothing, and others see no renewal.
    spec = held_by("me", None, TIMES, wall)
    again = held_by("me", seen({**body(), "spec": spec}), TIMES, wall)
    assert again["renewTime"] > spec["renewTime"]
    assert again == {**spec, "renewTime": again["renewTime"]}


def test_a_take_over_counts_a_transition() -> None:
    taken = held_by("me", seen(body()), TIMES, WALL)
    assert (taken["leaseTransitions"], taken["holderIdentity"]) == (4, "me")
    assert taken["acquireTime"] == taken["renewTime"] == "2023-11-14T22:13:20.000000Z"


def test_transitions_are_counted_no_further_than_the_api_server_takes_them() -> None:
    most = 2**31 - 1
    taken = held_by("me", seen(body(leaseTransitions=most)), TIMES, WALL)
    assert taken["leaseTransitions"] == most


def test_so_does_taking_what_was_let_go_of_even_by_the_same_one() -> None:
    mine = seen({**body(), "spec": {**held_by("me", None, TIMES, WALL), "leaseTransitions": 5}})
    released = seen({**body("8"), "spec": given_up(mine, WALL)})
    assert held_by("me", released, TIMES, WALL)["leaseTransitions"] == 6


def test_letting_go() -> None:
    mine = seen({**body(), "spec": held_by("me", None, TIMES, WALL)})
    spec = given_up(mine, WALL + 3)
    assert is_released({"spec": spec})
    assert renewed_at({"spec": spec}) == WALL + 3
    assert spec["leaseDurationSeconds"] == 1  # the API server takes no 0
    assert spec["leaseTransitions"] == 0


@pytest.mark.parametrize(("duration", "written"), [(15.0, 15), (15.4, 16), (14.6, 15)])
def test_others_are_never_told_a_shorter_duration_than_is_meant(duration, written) -> None:
    times = LeaseTimes(duration=duration, write_for=5.0)
    assert held_by("me", None, times, WALL)["leaseDurationSeconds"] == written


MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "20.000000Z"),
        (0.1, "20.100000Z"),
        (0.000_01, "20.000010Z"),
        (0.999_999, "20.999999Z"),
        (0.999_999_9, "21.000000Z"),
    ],
)
def test_a_micro_time_has_exactly_six_digits(fraction, text) -> None:
    assert held_by("me", None, TIMES, WALL + fraction)["renewTime"] == f"2023-11-14T22:13:{text}"


@steady(200)
@given(st.floats(0, 4_000_000_000))
def test_a_micro_time_is_read_as_it_was_written(wall) -> None:
    spec = held_by("me", None, TIMES, wall)
    assert MICRO_TIME.fullmatch(spec["renewTime"])
    assert renewed_at({"spec": spec}) == pytest.approx(wall, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20Z", WALL),
        ("2023-11-14T23:13:20.000000+01:00", WALL),
        ("2023-11-14T22:13:20.123456Z", WALL + 0.123456),
        ("2023-11-14T22:13:20", None),  # whose time?
        ("2023-11-14", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1_700_000_000, None),
        ({}, None),
    ],
)
def test_when_it_was_renewed(text, expected) -> None:
    found = renewed_at({"spec": {"renewTime": text}})
    assert found == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("odd", [{}, {"spec": None}, {"spec": "x"}, {"spec": []}])
def test_odd_content_was_renewed_at_no_time(odd) -> None:
    assert renewed_at(odd) is None
    assert not is_released(odd)


# --- the times ---


def test_the_default_times_are_safe_and_know_how_long_a_write_takes() -> None:
    assert TIMES.write_timeout >= WRITE_TIMEOUT
    # One renewal may be lost, with its time limit, and the holder goes on writing.
    assert 2 * TIMES.renew_every + 3.0 <= TIMES.write_for


@pytest.mark.parametrize(
    "wrong",
    [
        {"write_for": 7.4},
        {"write_timeout": 5.4},
        {"duration": 14.6},
        {"duration": 10.0},
    ],
)
def test_times_by_which_two_could_write_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"a holder may write for 1.* s after its"):
        LeaseTimes(**wrong)


RATE = st.floats(1 - CLOCK_ERROR, 1 + CLOCK_ERROR)


@steady(300)
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


def test_the_time_is_utc() -> None:
    stamp = held_by("me", None, TIMES, WALL)["renewTime"]
    assert datetime.fromisoformat(stamp) == datetime.fromtimestamp(WALL, UTC)


# --- a leader that can ask no rule ---


def test_two_that_are_cut_off_swap_less_and_less_often() -> None:
    replicas = [Patience(), Patience()]
    leader, swaps = 0, []
    for now in range(0, 24 * 3600, 10):
        gives_way = [
            each.is_over(now, sees=False, leads=number == leader)
            for number, each in enumerate(replicas)
        ]
        if any(gives_way):
            swaps.append(now)
            leader = 1 - leader
    assert swaps[:2] == [60, 70]  # the other one was blind for a minute as well
    assert len([at for at in swaps if at < 3600]) <= 14
    assert len([at for at in swaps if at >= 4 * 3600]) <= 2 * 20


def test_who_was_answered_is_patient_for_a_minute_again() -> None:
    patience = Patience()
    assert [patience.is_over(now, sees=False, leads=True) for now in (0, 60, 120, 180)] == [
        False,
        True,
        False,
        True,
    ]
    assert not patience.is_over(190, sees=True, leads=True)
    assert not patience.is_over(200, sees=False, leads=True)
    assert patience.is_over(260, sees=False, leads=True)
