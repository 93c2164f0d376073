from dynsched.controller.giving_way import GivingWay


def test_two_that_are_cut_off_swap_less_and_less_often() -> None:
    replicas = [GivingWay(), GivingWay()]
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


def test_who_was_answered_waits_for_a_minute_again() -> None:
    giving_way = GivingWay()
    found = [giving_way.is_over(now, sees=False, leads=True) for now in (0, 60, 120, 180)]
    assert found == [False, True, False, True]
    assert not giving_way.is_over(190, sees=True, leads=True)
    assert not giving_way.is_over(200, sees=False, leads=True)
    assert giving_way.is_over(260, sees=False, leads=True)
