from dynsched.controller.step_down import StepDownTimer


def test_two_replicas_without_prometheus_swap_leadership_less_and_less_often() -> None:
    replicas = [StepDownTimer(), StepDownTimer()]
    leader, swaps = 0, []
    for now in range(0, 24 * 3600, 10):
        due = [
            each.is_due(now, sees=False, leads=number == leader)
            for number, each in enumerate(replicas)
        ]
        if any(due):
            swaps.append(now)
            leader = 1 - leader
    assert swaps[:2] == [60, 70]  # the other replica had also been blind for a minute
    assert len([at for at in swaps if at < 3600]) <= 14
    assert len([at for at in swaps if at >= 4 * 3600]) <= 2 * 20


def test_a_query_result_resets_the_timer_to_a_minute() -> None:
    timer = StepDownTimer()
    found = [timer.is_due(now, sees=False, leads=True) for now in (0, 60, 120, 180)]
    assert found == [False, True, False, True]
    assert not timer.is_due(190, sees=True, leads=True)
    assert not timer.is_due(200, sees=False, leads=True)
    assert timer.is_due(260, sees=False, leads=True)
