"""How long to wait until something that failed is tried again."""

from dynsched.util.stopping import Backoff, jittered


def test_a_pause_is_between_half_of_what_it_is_said_and_all_of_it():
    pauses = [jittered(8.0) for _ in range(200)]
    assert min(pauses) >= 4.0
    assert max(pauses) <= 8.0
    assert len(set(pauses)) > 1


def test_pauses_double_up_to_the_bound_until_there_was_success():
    backoff = Backoff(1.0, 5.0)
    for _ in range(2):
        for seconds in (1.0, 2.0, 4.0, 5.0, 5.0):
            assert backoff.seconds == seconds
            assert seconds / 2 <= backoff.next() <= seconds
        backoff.reset()
