"""The evaluator with everything around it faked: sequence, retries, and reports."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from bench import RULES, Bench, patch_node
from builders import rule
from virtual_loop import VirtualLoop

from dynsched.controller.evaluator import REEVALUATE
from dynsched.controller.node_writer import CONFLICT_RETRIES, FAILURES_BEFORE_GIVING_UP
from dynsched.core.evaluate import OLDER_STAYS
from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.marks import Action, plan_prune
from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.labels import Mark
from dynsched.util.errors import ClusterError


async def test_a_hot_node_is_marked_reported_and_released_and_foreign_taints_stay(
    caplog,
) -> None:
    caplog.set_level(logging.INFO, logger="dynsched.controller.reporting")
    mark = {"taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    bench = Bench("a", "b", rules={**RULES, "mark": mark})
    theirs = {"key": "team", "value": "pay", "effect": "NoSchedule"}
    ours = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
    bench.change("a", taints=[theirs])
    tick = await bench.tick(cpu={"a": 91.5, "b": 12.0}, mem={"a": 5.0, "b": 5.0})
    assert (bench.label("a"), bench.label("b")) == ("presure", None)
    assert bench.stored("a").taints == (theirs, ours)
    assert [(patch.node, patch.action) for patch in tick.writes.applied] == [("a", Action.MARK)]
    # The state after the write, not before it.
    assert tick.evaluation.table.entries["a"].mark.marked
    assert bench.events.posted == [("a", "Pressured", "cpu 91.5 > 80", True)]
    assert (await bench.tick(cpu={"a": 91.5, "b": 12.0}, mem={"a": 5.0, "b": 5.0})).planned == ()
    assert caplog.messages == ["mark node a: cpu 91.5 > 80"]
    for _ in range(2):
        await bench.tick(cpu={"a": 65.0, "b": 12.0}, mem={"a": 5.0, "b": 5.0})
    assert (bench.label("a"), bench.stored("a").taints) == (None, (theirs,))
    assert bench.events.posted[1:] == [("a", "Relieved", "no rule fires any more", False)]
    assert caplog.messages[1:] == ["release node a: no rule fires any more"]


async def test_with_mark_none_nothing_is_written_and_older_marks_are_logged(caplog) -> None:
    caplog.set_level(logging.INFO, logger="dynsched.controller.reporting")
    bench = Bench("a", "b", "c")
    hot = {"a": 91.0, "b": 12.0, "c": 12.0}
    await bench.tick(cpu=hot)
    bench.rules_file.next_content = {**RULES, "mark": "none"}
    caplog.clear()
    for cpu in ({**hot, "b": 95.0}, {**hot, "a": 12.0, "b": 95.0}):
        evaluation = (await bench.tick(cpu=cpu)).evaluation
        limited = evaluation.decision.limited
        assert limited == {"a": OLDER_STAYS, "b": "not marked: mark is none"}
        assert [evaluation.patch_for(name) for name in "ab"] == [None, None]
    assert evaluation.hot == {"b"}
    assert ("node a: " + OLDER_STAYS, len(bench.client.writes)) == (caplog.messages[-1], 1)
    # What `dynsched prune` does with the same rules.
    (patch,) = plan_prune([bench.stored("a")], Mark(None))
    patch_node(bench.objects, patch)
    assert bench.label("a") is None
    await bench.tick(cpu=cpu)
    assert caplog.messages[-1] == "node a: no older mark is left there any more"
    bench.rules_file.next_content = RULES
    await bench.tick(cpu=cpu)
    assert [bench.label(name) for name in "abc"] == [None, "presure", None]
    assert [reason for _, reason, *_ in bench.events.posted if "Rules" not in reason] == [
        "Pressured",
        "Pressured",
    ]


ONE_RULE = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}]}
FOUR = {"rules": [{"name": name, "expr": "load", "threshold": 80} for name in "pqrs"]}
DOWN, AWAY = "Prometheus at http://p: connection refused", "Prometheus answered 503"
ONLY_CPU = {**RULES, "rules": RULES["rules"][:1]}
# Values of pods that come and go, in changing order.
PODS = ["10.9.0.1:9100", "10.9.0.2:9100", "pod-x", "pod-y"]
TURNED = [dict.fromkeys((PODS[n % 4 :] + PODS[: n % 4])[: 4 - n // 3], 1.0) for n in range(6)]
SHORT = [f"the answer of {n} bytes is cut short, request 'x{n}'" for n in range(3)]
SEEN: dict[str, Any] = {"a": 1.0}
# The rules; per tick its query results (or new rules instead of a tick); per log line the rules
# that it names.
LOGGED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "a failed rule": (
        RULES, [*[{"cpu": AWAY, "mem": SEEN}] * 2, {"cpu": SEEN, "mem": SEEN}], ["cpu", "cpu"]),
    "rules that fail for one reason share a line": (
        FOUR, [{"p": DOWN, "q": DOWN, "r": "bad", "s": SEEN}, dict.fromkeys("pqrs", SEEN)],
        [["p", "q"], "r", ["p", "q", "r"]]),
    "a rule without a value for any node": (
        ONE_RULE, [{"cpu": seen} for seen in (
            {}, {}, *[{"nobody": 1.0}] * 2, *[{"nobody": 1.0, "a": 1.0}] * 2)], ["cpu"] * 3),
    "a blind rule": (ONE_RULE, [{"cpu": seen} for seen in TURNED], ["cpu"]),
    "a blind rule that fails or is removed has not recovered": (
        RULES, [{"cpu": {}, "mem": {}}, {"cpu": AWAY, "mem": {}}, ONLY_CPU, {"cpu": SEEN}],
        [["cpu", "mem"], "cpu", "cpu"]),
    "a failing rule whose reason differs in its numbers only": (
        ONE_RULE, [{"cpu": seen} for short in SHORT for seen in (short, "refused")]
        + [{"cpu": SEEN}, {"cpu": "refused"}], ["cpu"] * 4),
}  # fmt: skip


@pytest.mark.parametrize("case", LOGGED)
async def test_the_same_problem_of_a_rule_is_logged_once(caplog, case) -> None:
    caplog.set_level(logging.INFO, logger="dynsched")
    rules, ticks, expected = LOGGED[case]
    bench = Bench("a", "b", rules=rules)
    for answers in ticks:
        if "rules" in answers:
            bench.rules_file.next_content = answers
        else:
            await bench.tick(**answers)
    assert [line.rule for line in caplog.records if hasattr(line, "rule")] == expected


async def test_warnings_of_reloaded_rules_are_logged_once(caplog) -> None:
    bench = Bench("a", rules=RULES)
    bench.rules_file.next_content = ONE_RULE
    bench.rules_file.warnings = ("rules.yaml:2:1: scale_down: was removed",)
    for _ in range(3):
        await bench.tick(cpu=SEEN)
    logged = [line.getMessage() for line in caplog.records]
    assert [logged.count(warned) for warned in bench.rules_file.warnings] == [1]


async def test_log_records_have_fields_for_node_and_rule(caplog) -> None:
    bench = Bench("a", "b", rules={**RULES, "guard": {"max_marked": 2, "max_releases": 2}})
    bench.change("b", labels={"status": "theirs"})
    with caplog.at_level(logging.INFO):
        await bench.tick(cpu={"a": 91.0, "b": 91.0}, mem={"a": 95.0, "b": 1.0})
        await bench.tick(cpu={"a": 1.0, "b": 1.0}, mem={"a": 1.0, "b": 1.0})
    logged = {
        record.message.partition(":")[0]: (record.node, getattr(record, "rule", None))
        for record in caplog.records
    }
    marked = {"mark node a": ("a", ("cpu", "mem")), "release node a": ("a", None)}
    assert logged == {"node b": ("b", None), **marked}


async def test_a_buggy_or_missing_source_fails_its_rule_only() -> None:
    none = {"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 1}
    bench = Bench("a", rules={**RULES, "rules": [*RULES["rules"], none]})
    tick = await bench.tick(cpu=RuntimeError("oops"), mem={"a": 95.0})
    absent = "source metrics-server is not set up in this process"
    errors = [health.error for health in tick.rules]
    assert errors == ["unexpected RuntimeError: oops", None, absent]
    assert [health.last_success for health in tick.rules] == [None, 1010.0, None]
    assert (bench.label("a"), tick.error) == ("presure", None)


@pytest.mark.parametrize(
    ("labels", "times", "written", "left"),
    [
        ({"team": "x"}, 1, 2, {"team": "x", "status": "presure"}),  # the write is planned again
        # Somebody else has set our label.
        ({"status": "maintenance"}, 1, 1, {"status": "maintenance"}),
        ({}, 100, 1 + CONFLICT_RETRIES, {}),  # the node changes all the time: left to the next tick
    ],
    ids=["other label", "our label", "for ever"],
)
async def test_after_a_conflict_the_node_is_read_and_planned_again(
    labels, times, written, left
) -> None:
    bench = Bench("a")
    beats = iter(range(times))

    def somebody_is_faster():
        beat = next(beats, None)
        if beat is not None:
            bench.change("a", labels=labels, annotations={"beat": str(beat)})

    bench.client.before_patch["a"] = somebody_is_faster
    tick = await bench.tick(cpu={"a": 91.0})
    assert bench.stored("a").labels == left
    assert len(bench.client.writes) == written
    assert (len(tick.writes.applied), tick.writes.failures) == (left.get("status") == "presure", ())


async def test_refused_writes_are_retried_less_and_less_often_and_reported_meanwhile(
    caplog,
) -> None:
    names = [f"n{i}" for i in range(500)]
    bench = Bench(*names)
    bench.client.faults = dict.fromkeys(names, ClusterError("403"))
    counts = []
    for _ in range(30):
        tick = await bench.tick(cpu=dict.fromkeys(names, 91.0))
        counts.append(len(bench.client.writes))
        assert tick.error is not None
    minutes = [after - before for before, after in zip(counts[5::6], counts[11::6], strict=False)]
    assert counts[0] < 2 * FAILURES_BEFORE_GIVING_UP
    assert max(minutes) < 2 * FAILURES_BEFORE_GIVING_UP  # one pass per minute
    assert "all writes succeed again" not in caplog.messages
    bench.client.faults.clear()
    for _ in range(6):
        tick = await bench.tick(cpu=dict.fromkeys(names, 91.0))
    due = [name for name in names if tick.evaluation.patch_for(name)]
    assert (tick.error, due) == (None, [])


async def test_releases_above_the_write_limit_wait_and_are_counted() -> None:
    rules = {**EXPECTED, "guard": {**EXPECTED["guard"], "max_writes_per_minute": 6}}
    names = [f"n{i}" for i in range(9)]
    bench = Bench(*names, rules=rules)
    found = []
    for load in (90.0, *[5.0] * 6):
        tick = await bench.tick(cpu=dict.fromkeys(names, load))
        found.append(
            (len(tick.writes.applied), tick.delayed, len(tick.evaluation.decision.limited))
        )
    # The first tick made three writes more than a minute allows; later ticks make up for them.
    assert found == [(9, 0, 0), (0, 9, 9), (0, 9, 9), (0, 9, 9), (1, 8, 8), (1, 7, 7), (1, 6, 6)]


async def nothing() -> None:
    pass


def run_for(
    seconds: float, bench: Bench, virtual: VirtualLoop, *, interval: float, alongside=nothing
) -> None:
    """Run the evaluator's loop for ``seconds`` of the virtual clock."""

    async def run() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(bench.evaluator.run(stop, interval))
        other = asyncio.create_task(alongside())
        await asyncio.sleep(seconds)
        assert not running.done()
        stop.set()
        await asyncio.gather(running, other)

    with asyncio.Runner(loop_factory=lambda: virtual) as runner:
        runner.run(run())


@pytest.mark.parametrize(
    ("delay", "starts", "ends"),
    [(0.5, [0, 1, 2, 3], [0.5, 1.5, 2.5]), (1.5, [0, 2], [0.8, 1, 2, 3])],
    ids=["short", "too long"],
)
def test_ticks_stay_an_interval_apart_and_no_rule_is_queried_twice_at_once(
    delay, starts, ends
) -> None:
    virtual = VirtualLoop()
    bench = Bench("a", clock=virtual.time, monotonic=virtual.time)
    bench.source.delay = delay
    begun, ended = [], []
    query = bench.source.query

    async def recorded(rule):
        if rule.name == "cpu":
            begun.append(virtual.time())
        return await query(rule)

    bench.source.query = recorded
    bench.on_tick = lambda _: ended.append(virtual.time())
    run_for(3.25, bench, virtual, interval=1.0)
    assert begun == pytest.approx(starts)
    assert ended[: len(ends)] == pytest.approx(ends)
    assert bench.source.most_at_once == 2  # the two rules of one tick, never those of two ticks


def test_no_tick_before_the_nodes_are_listed_and_stop_ends_the_wait_between_ticks() -> None:
    virtual = VirtualLoop()
    bench = Bench("a", clock=virtual.time, monotonic=virtual.time)
    bench.store.synced = False

    async def listed() -> None:
        await asyncio.sleep(60)
        assert bench.ticks == []
        bench.store.synced = True

    run_for(120, bench, virtual, interval=3600.0, alongside=listed)
    assert len(bench.ticks) == 1
    assert virtual.time() == pytest.approx(120)


async def test_a_follower_evaluates_and_does_not_write() -> None:
    bench = Bench("a")
    bench.leadership.may_write = False
    tick = await bench.tick(cpu={"a": 91.0})
    assert [patch.node for patch in tick.planned] == ["a"]
    assert (tick.leadership.leading, bench.client.writes, bench.events.posted) == (False, [], [])
    bench.leadership.may_write = True
    tick = await bench.tick(cpu={"a": 91.0})
    assert bench.label("a") == "presure"
    assert tick.leadership.leading


async def test_a_leader_whose_queries_all_fail_for_a_minute_steps_down_and_keeps_marks() -> None:
    bench = Bench("a")
    for _ in range(30):  # one rule with a result is enough
        await bench.tick(cpu="connection refused", mem={"a": 10})
        assert bench.leadership.may_write
    await bench.tick(cpu={"a": 90})
    for _ in range(6):
        tick = await bench.tick(cpu="connection refused", mem="connection refused")
        assert "connection refused" in tick.error
        assert bench.leadership.may_write
    await bench.tick(cpu="connection refused", mem="connection refused")
    assert not bench.leadership.may_write
    bench.leadership.may_write = True  # nobody else took the Lease
    await bench.tick(cpu="connection refused", mem="connection refused")
    assert bench.leadership.may_write
    assert bench.label("a") == "presure"
    assert [patch.action for patch in bench.client.writes] == [Action.MARK]


async def test_a_leader_that_loses_the_lease_stops_in_the_middle_of_a_pass() -> None:
    names = [f"n{i:02}" for i in range(50)]
    bench = Bench(*names)

    def lost():
        bench.leadership.may_write = False

    bench.client.before_patch["n10"] = lost
    tick = await bench.tick(cpu=dict.fromkeys(names, 91.0))
    assert len(bench.client.writes) <= 30  # writes already under way: at most AT_ONCE
    assert tick.writes.failures == ()  # unsent writes are no failures


@pytest.mark.parametrize("part", ["leadership", "store"])
async def test_an_error_of_the_lease_or_the_watch_is_the_ticks_error(part) -> None:
    bench = Bench("a")
    getattr(bench, part).error = "cannot get leases dynsched: forbidden"
    assert (await bench.tick()).error == "cannot get leases dynsched: forbidden"


async def test_new_rules_take_over_the_alerts_of_rules_with_the_same_name() -> None:
    bench = Bench("a", rules={**RULES, "rules": [RULES["rules"][0] | {"for": "10s"}]})
    await bench.tick(cpu={"a": 91.0})
    assert bench.label("a") is None
    bench.rules_file.next_content = {**RULES, "rules": [RULES["rules"][0] | {"for": "20s"}]}
    tick = await bench.tick(cpu={"a": 91.0})
    assert (tick.rules_status.reloaded, bench.label("a")) == (True, None)
    await bench.tick(cpu={"a": 91.0})
    # 20 s after the first tick, although the rules are 10 s old.
    assert bench.label("a") == "presure"
    reloaded = [post for post in bench.events.posted if post[1] == "RulesReloaded"]
    assert reloaded == [("dynsched", "RulesReloaded", "1 rule is in force", False)]


async def test_an_event_is_posted_when_the_cap_begins_to_bind() -> None:
    bench = Bench("a", "b", rules={**RULES, "guard": {"max_marked": 1, "max_releases": "100%"}})
    for _ in range(3):
        tick = await bench.tick(cpu={"a": 91.0, "b": 95.0})
    assert tick.evaluation.decision.capped == {""}
    posted = [post for post in bench.events.posted if post[1] == "ClusterHot"]
    assert len(posted) == 1
    assert "guard.max_marked 1 " in posted[0][2]


async def test_a_mark_whose_response_was_lost_counts_toward_the_cap() -> None:
    """Even if the watch is behind."""
    bench = Bench("a", "b", rules={**RULES, "guard": {"max_marked": 1, "max_releases": "100%"}})
    bench.stop_watch()

    def lose_response() -> None:
        bench.client.before_patch.clear()
        patch_node(bench.objects, bench.client.writes[-1])
        raise ClusterError("the connection broke before the response")

    bench.client.before_patch["a"] = lose_response
    marked = []
    for loads in ({"a": 95.0, "b": 50.0}, {"a": 50.0, "b": 95.0}, {"a": 50.0, "b": 95.0}):
        await bench.tick(cpu=loads)
        marked.append(bench.marked)
    assert marked == ["a", "", "b"]


WITH_FOR = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80, "for": "5m"}]}


async def test_a_restart_does_not_restart_a_running_for() -> None:
    bench = Bench("a", "b", rules=WITH_FOR)
    over = [(t, 91.0) for t in range(0, 1000, 10)]
    bench.history.points["cpu"] = {"a": over, "b": [(t, 91.0 if t > 800 else 5) for t, _ in over]}
    await bench.evaluator.restore(10.0)
    tick = await bench.tick(cpu={"a": 91.0, "b": 91.0})
    alerts = {name: found["cpu"] for name, found in tick.evaluation.alerts.items()}
    assert alerts["a"].firing
    assert (alerts["b"].state, alerts["b"].active_since) == ("pending", 810)
    name, start, end, step = bench.history.asked[0]
    assert (name, end, step) == ("cpu", 990.0, 10.0)
    assert start <= 1000 - 300


async def test_a_restart_does_not_release_a_mark_that_would_have_been_kept() -> None:
    keeping = {"rules": [WITH_FOR["rules"][0] | {"for": "0s", "keep_firing_for": "2m"}]}
    bench = Bench("kept", "over", "unknown", rules=keeping)
    for name in ("kept", "over", "unknown"):
        bench.change(name, labels={"status": "presure"})
    bench.history.points["cpu"] = {
        "kept": [(t, 91.0 if t < 950 else 5.0) for t in range(500, 1000, 10)],
        "over": [(t, 5.0) for t in range(500, 1000, 10)],
    }
    await bench.evaluator.restore(10.0)
    await bench.tick(cpu={"kept": 5.0, "over": 5.0})
    assert bench.label("kept") == "presure"  # cool for one of two minutes
    assert bench.label("over") is None  # cool for longer
    assert bench.label("unknown") == "presure"


async def test_a_restart_does_not_mark_a_node_that_has_cooled() -> None:
    """A node was once marked because of `node-mem-usage 70.3 > 85`."""
    keeping = WITH_FOR["rules"][0] | {"for": "0s", "keep_firing_for": "2m", "clear_threshold": 60}
    bench = Bench("held", "between", "hot", rules={"rules": [keeping]})
    bench.history.points["cpu"] = {
        "held": [(t, 91.0 if t < 950 else 5.0) for t in range(500, 1000, 10)],
        "between": [(t, 91.0 if t < 950 else 70.0) for t in range(500, 1000, 10)],
        "hot": [(t, 91.0) for t in range(500, 1000, 10)],
    }
    await bench.evaluator.restore(10.0)
    tick = await bench.tick(cpu={"held": 5.0, "between": 70.0, "hot": 91.0})
    assert tick.evaluation.hot == {"hot"}
    assert [bench.label(name) for name in ("held", "between", "hot")] == [None, None, "presure"]


async def test_an_evaluation_is_passed_on_before_its_marks_are_written() -> None:
    """The scheduler calls the extender as soon as it sees that a mark is released."""
    seen = []

    async def note(evaluation, _pods):
        seen.append((set(evaluation.hot), bench.label("a")))

    bench = Bench("a", "b", rules=ONE_RULE, before_writes=note)
    for value in (91.0, 5.0):
        await bench.tick(cpu={"a": value, "b": 5.0})
    assert seen == [({"a"}, None), (set(), "presure")]
    assert bench.label("a") is None


async def test_several_series_for_one_node_are_logged_once_and_the_worst_counts(caplog) -> None:
    """With two clusters in one Prometheus the mean or the last series once won silently."""
    caplog.set_level(logging.INFO, logger="dynsched")
    bench = Bench("a", "b", rules=ONE_RULE)

    async def tick_with(*of_a, cluster="cluster"):
        samples = [Sample({"node": "b"}, 5.0, bench.now + 10)] + [
            Sample({"node": "a", cluster: f"c{number}"}, value, bench.now + 10)
            for number, value in enumerate(of_a)
        ]
        bench.source.query = partial(_answer, samples)
        return await bench.tick()

    for values in ((91.0, 12.0), (12.0, 91.0), (91.0, 12.0, 50.0)):
        tick = await tick_with(*values)
        assert tick.evaluation.alerts["a"]["cpu"].value == 91.0
        assert tick.rules[0].several.labels == ("cluster",)
    await tick_with(91.0, 12.0, cluster="region")
    await tick_with(91.0)
    assert len([text for text in caplog.messages if "series" in text]) == 3


async def _answer(samples, _rule):
    return QueryResult(tuple(samples))


LOOKING_BACK = {**RULES, "rules": [rule | {"for": "5m"} for rule in RULES["rules"]]}


async def test_rules_without_for_or_keep_firing_for_query_no_history() -> None:
    bench = Bench("a")
    await bench.evaluator.restore(10.0)
    assert bench.history.asked == []


async def test_without_history_marks_are_adopted_and_for_starts_again() -> None:
    """A history that cannot be read is queried once."""
    usage = {"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 1}
    rules = [*LOOKING_BACK["rules"], usage | {"for": "5m"}]
    bench = Bench("marked", "hot", rules={**RULES, "rules": rules})
    bench.sources["metrics-server"] = bench.source
    bench.change("marked", labels={"status": "presure"})
    bench.history.points = {"cpu": "HTTP 422", "mem": {"hot": [(t, 95.0) for t in range(1000)]}}
    await bench.evaluator.restore(10.0)
    tick = await bench.tick(cpu={"hot": 91.0}, mem={"hot": 95.0}, m={"hot": 0.0})
    assert bench.label("marked") == "presure"
    alerts = {rule: alert.state for rule, alert in tick.evaluation.alerts["hot"].items()}
    assert (alerts["cpu"], alerts["mem"]) == ("pending", "firing")
    past_errors = {health.rule.name: health.past_error for health in tick.rules}
    assert (past_errors["cpu"], past_errors["mem"]) == ("HTTP 422", None)
    assert past_errors["m"] is not None
    assert [name for name, *_ in bench.history.asked].count("cpu") == 1


EXPECTED = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [{"name": "cpu", "expr": "cpu", "threshold": 70, "resource": "cpu", "by": "expected"}],
}


class FakePods:
    """Pods that a test binds; each requests half of a node."""

    def __init__(self):
        self.sequence = 0
        self.recent = []

    def bind(self, node):
        self.sequence += 1
        bound = BoundPod(str(self.sequence), node, cpu=4.0)
        self.recent.append(RecentPod(bound, 0.0, None))

    def known(self, ago=0.0):
        recent = tuple(pod._replace(bound=pod.bound - ago) for pod in self.recent)
        return KnownPods(recent, sequence=self.sequence)


def expected_bench(rules=EXPECTED, **options):
    pods = FakePods()
    return Bench("a", "b", rules=rules, pods=pods, **options), pods


async def test_pods_bound_between_two_ticks_cause_an_evaluation_at_once() -> None:
    bench, pods = expected_bench()
    await bench.evaluator.reevaluate()
    assert bench.ticks == []  # before the first tick there is nothing to evaluate
    await bench.tick(cpu={"a": 30.0, "b": 30.0})
    bench.source.query = None  # the sources are not queried
    await bench.evaluator.reevaluate()
    assert len(bench.ticks) == 1  # nothing happened
    pods.bind("a")
    await bench.evaluator.reevaluate()
    assert len(bench.ticks) == 1  # too soon after the last evaluation
    bench.now += REEVALUATE
    await bench.evaluator.reevaluate()
    assert bench.label("a") == "presure"
    tick = bench.ticks[-1]
    assert (tick.number, tick.pods.sequence) == (2, 1)
    assert tick.evaluation.expected["cpu"].added["a"].bound == 50
    await bench.evaluator.reevaluate()
    assert len(bench.ticks) == 2  # already evaluated


async def test_for_does_not_elapse_between_two_ticks() -> None:
    """The next sample may be below the threshold again."""
    rules = {**EXPECTED, "rules": [{**EXPECTED["rules"][0], "for": "5s"}]}
    bench, pods = expected_bench(rules)
    await bench.tick(cpu={"a": 90.0, "b": 90.0})
    pods.bind("b")
    bench.now += 8
    await bench.evaluator.reevaluate()
    assert bench.ticks[-1].evaluation.alerts["a"]["cpu"].state == "pending"


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_clock_step_before_the_first_tick_counts_once(step) -> None:
    """After NTP had moved the clock by an hour, a hot node was not marked for minutes."""
    virtual, ahead = VirtualLoop(), [10_000.0]
    clock = lambda: virtual.time() + ahead[0]  # noqa: E731
    rules = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80, "for": "1m"}]}
    bench = Bench("a", "b", rules=rules, clock=clock, monotonic=virtual.time)
    bench.source.clock, bench.store.synced = clock, False
    bench.source.values = {"cpu": {"a": 95.0, "b": 5.0}}
    bench.history.points["cpu"] = {"a": [(10_000.0 + step + t, 95.0) for t in range(-40, 40)]}

    async def listed() -> None:
        await asyncio.sleep(5)
        ahead[0] += step
        bench.store.synced = True

    run_for(60, bench, virtual, interval=10.0, alongside=listed)
    fired = next(tick.taken_at for tick in bench.ticks if tick.evaluation.hot)
    # A minute after the hot history begins, at -40.
    assert fired - (10_000 + step) == pytest.approx(25, abs=5)


@pytest.mark.parametrize("step", [600, -600])
async def test_a_clock_step_between_two_ticks_does_not_change_the_age_of_pods(step) -> None:
    """All pods of the last minutes, or none, were counted as recent until the next tick."""
    passed = [1000.0]
    bench, pods = expected_bench(monotonic=lambda: passed[0])
    passed[0] += 10
    await bench.tick(cpu={"a": 30.0, "b": 30.0})
    known, ago = pods.known, []
    pods.known = lambda seconds: ago.append(seconds) or known(seconds)
    pods.bind("a")
    passed[0] += REEVALUATE
    bench.now += REEVALUATE + step
    await bench.evaluator.reevaluate()
    assert ago == [REEVALUATE]


async def test_with_measured_values_nothing_is_evaluated_between_two_ticks() -> None:
    bench, pods = expected_bench(RULES)
    await bench.tick(cpu={"a": 30.0, "b": 30.0}, mem={})
    pods.bind("a")
    await bench.evaluator.reevaluate()
    assert len(bench.ticks) == 1


def test_ticks_stay_on_their_schedule_while_pods_are_bound() -> None:
    """In between there is an evaluation every second, as long as pods are bound."""
    virtual = VirtualLoop()
    clock = virtual.time
    bench, pods = expected_bench(clock=clock, monotonic=clock)
    asked, decided = [], []
    answer = bench.source.query

    async def query(rule):
        asked.append(clock())
        bench.now = clock()
        return await answer(rule)

    def publish(tick):
        decided.append(clock())
        if clock() < 20:
            pods.bind("a")

    bench.source.query = query
    bench.source.values = {"cpu": {"a": 30.0, "b": 30.0}}
    bench.on_tick = publish
    run_for(45, bench, virtual, interval=10.0)
    assert asked == pytest.approx([0, 10, 20, 30, 40])
    assert decided == pytest.approx([*range(21), 30, 40])


async def test_new_rules_are_refused_if_the_server_refuses_a_query() -> None:
    bench = Bench("a")
    await bench.tick(cpu={"a": 91.0})
    assert bench.label("a") == "presure"
    refused = QueryResult(error="400: unclosed parenthesis", refused=True)
    for _ in range(2):
        bench.rules_file.next_content = {"rules": [*RULES["rules"], rule("new")]}
        tick = await bench.tick(cpu={"a": 91.0}, new=refused)
        assert list(tick.rule_set.by_name) == ["cpu", "mem"]
        assert tick.rules_status.error == "new: 400: unclosed parenthesis"
    posted = [message for _, reason, message, _ in bench.events.posted if reason == "RulesRefused"]
    assert posted == [tick.rules_status.error]
    # A rule whose query only fails now is accepted; its values are unknown.
    bench.rules_file.next_content = {"rules": [*RULES["rules"], rule("new")]}
    tick = await bench.tick(cpu={"a": 91.0}, new="timed out")
    assert (list(tick.rule_set.by_name), tick.rules_status.error) == (
        ["cpu", "mem", "new"],
        None,
    )
    posted = [message for _, reason, message, _ in bench.events.posted if reason == "QueryFailed"]
    assert posted == ["the query of rule new failed: timed out"]


async def test_without_any_rules_nothing_is_written_and_the_leader_steps_down() -> None:
    bench = Bench("a", rules=None)
    bench.rules_file.error = "rules.yaml:3:5: treshold: unknown key"
    bench.change("a", labels={"status": "presure"})
    for _ in range(7):
        assert bench.leadership.may_write
        assert await bench.tick() is None
    assert not bench.leadership.may_write
    assert (bench.ticks, bench.client.writes) == ([], [])
    refused = [message for _, reason, message, _ in bench.events.posted if reason == "RulesRefused"]
    assert refused == [bench.rules_file.error]
    bench.leadership.may_write = True
    bench.rules_file.next_content = RULES
    tick = await bench.tick(cpu={"a": 91.0})
    assert (tick.error, tick.rules_status.error, bench.label("a")) == (None, None, "presure")
