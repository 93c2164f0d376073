"""Replicas of two clusters that write to one API server: one of them has the wrong kubeconfig."""

import itertools

from fake_loop import Bench

from dynsched.engine.alerting.disputes import DIFFERS, PUT_ON, TAKEN_OFF


async def test_two_leaders_that_saw_other_moments_say_so_between_the_two_lines() -> None:
    """Two installations with the same rules and the same Prometheus."""
    first, second = Bench("a"), Bench("a")
    second.cluster.stored = first.cluster.stored
    for load, seen in ((75.0, 75.0), (81.0, 79.0)):
        told = [await first.tick(cpu={"a": load}), await second.tick(cpu={"a": seen})]
    while not all(each.disputes for each in told):
        told = [await each.tick(cpu={"a": 75.0}) for each in (first, second)]
        assert len(first.snapshots) < 10
    assert [each.disputes for each in told] == [{"a": TAKEN_OFF}, {"a": PUT_ON}]


async def test_a_follower_that_would_decide_otherwise_says_so(caplog) -> None:
    clock = itertools.count(step=DIFFERS / 8)
    bench = Bench("a", "b", monotonic=lambda: next(clock))
    bench.leadership.may_write = False
    bench.leadership.leader = "another"
    while not (snapshot := await bench.tick(cpu={"a": 91.0, "b": 5.0})).disputes:
        assert len(bench.snapshots) < 10
    assert snapshot.disputes["a"].startswith("this replica would mark it, and another, who leads,")
    await bench.tick(cpu={"a": 92.0, "b": 5.0})
    assert sum("who leads, does not" in message for message in caplog.messages) == 1
    assert (bench.cluster.writes, bench.events.posted) == ([], [])

    assert (await bench.tick(cpu={"a": 5.0, "b": 5.0})).disputes == {}


async def test_what_somebody_takes_off_each_time_is_told_once(caplog) -> None:
    bench = Bench("a")
    caplog.set_level("INFO")
    for _ in range(20):
        stored = bench.cluster.stored["a"]
        bench.cluster.stored["a"] = type(stored)(
            "a", uid="a", resource_version=str(int(stored.resource_version) + 1)
        )
        snapshot = await bench.tick(cpu={"a": 91.0})
        assert bench.label("a") == "presure"
    assert snapshot.disputes == {"a": TAKEN_OFF}
    assert [reason for _, reason, *_ in bench.events.posted].count("MarkDisputed") == 1
    assert [m for m in caplog.messages if m.startswith("node a: ")] == [f"node a: {TAKEN_OFF}"]
    assert caplog.messages.count("mark node a: cpu 91 > 80") == 3

    for _ in range(2):  # the rules change, and it begins anew
        bench.rules_file.next_content = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 81}]}
        assert (await bench.tick(cpu={"a": 91.0})).disputes == {}
