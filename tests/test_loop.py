"""The loop with everything around it faked: order, retries, what is told and when."""

import asyncio
import itertools
import logging

import pytest

from dynsched.core.errors import ClusterError, ConflictError, NodeGoneError
from dynsched.core.model import Action, Node, NodePatch, QueryResult, Sample
from dynsched.core.rules import parse_rules
from dynsched.loop import Loop
from dynsched.writer import CONFLICT_RETRIES, FAILURES_BEFORE_GIVING_UP

RULES = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [
        {"name": "cpu", "expr": "cpu", "threshold": 80, "clear_threshold": 70},
        {"name": "mem", "expr": "mem", "threshold": 90},
    ],
}


class FakeSource:
    """Answers by rule name; an exception stands for a source with a bug."""

    def __init__(self, clock):
        self.clock = clock
        self.values = {}
        self.delay = 0.0
        self.running = 0
        self.most_at_once = 0

    async def query(self, rule):
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.running -= 1
        answer = self.values.get(rule.name, {})
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            return QueryResult(error=answer)
        return QueryResult(
            tuple(Sample({"node": name}, value, self.clock()) for name, value in answer.items())
        )


class FakeCluster:
    """Nodes in a dict; merge patches applied as the API server does; faults by node name."""

    synced = True

    def __init__(self, *names):
        self.stored = {name: Node(name, uid=name, resource_version="1") for name in names}
        self.writes = []
        self.faults = {}
        self.before_patch = {}

    def nodes(self):
        return dict(self.stored)

    async def read(self, name):
        return self.stored.get(name)

    async def patch(self, patch: NodePatch):
        self.writes.append(patch)
        if patch.node in self.faults:
            raise self.faults[patch.node]
        if patch.node in self.before_patch:
            self.before_patch[patch.node]()
        node = self.stored[patch.node]
        metadata = patch.body["metadata"]
        if metadata["resourceVersion"] != node.resource_version:
            raise ConflictError(f"{patch.node} changed")
        self.stored[patch.node] = Node(
            node.name,
            uid=node.uid,
            resource_version=str(int(node.resource_version) + 1),
            labels=_merged(node.labels, metadata.get("labels", {})),
            annotations=_merged(node.annotations, metadata.get("annotations", {})),
        )
        return self.stored[patch.node]


def _merged(old, changes):
    return {key: value for key, value in {**old, **changes}.items() if value is not None}


class FakeEvents:
    def __init__(self):
        self.posted = []

    def post(self, node, *, reason, message, warning=False):
        self.posted.append((node.name, reason, message, warning))


class Bench:
    def __init__(self, *names, rules=RULES, **options):
        self.now = 1000.0
        self.source = FakeSource(lambda: self.now)
        self.cluster = FakeCluster(*names)
        self.events = FakeEvents()
        self.snapshots = []
        self.loop = Loop(
            parse_rules(rules),
            sources={"prometheus": self.source},
            cluster=self.cluster,
            events=self.events,
            publish=self.snapshots.append,
            clock=lambda: self.now,
            **options,
        )

    async def tick(self, **values):
        self.source.values = values
        self.now += 10
        return await self.loop.tick()

    def label(self, name):
        return self.cluster.stored[name].labels.get("status")


async def test_a_hot_node_is_marked_told_and_released():
    bench = Bench("a", "b")

    snapshot = await bench.tick(cpu={"a": 91.0, "b": 12.0}, mem={"a": 5.0, "b": 5.0})

    assert (bench.label("a"), bench.label("b")) == ("presure", None)
    assert [(patch.node, patch.action) for patch in snapshot.applied] == [("a", Action.MARK)]
    assert snapshot.nodes["a"].marked  # as it is after the write, not before it
    assert bench.events.posted == [("a", "Pressured", "cpu 91 > 80", True)]

    await bench.tick(cpu={"a": 65.0, "b": 12.0}, mem={"a": 5.0, "b": 5.0})

    assert bench.label("a") is None
    assert bench.events.posted[1:] == [("a", "Relieved", "no rule fires any more", False)]


async def test_steady_state_writes_nothing():
    # S1 patched every node in every cycle.
    bench = Bench(*(f"n{i}" for i in range(20)))
    values = {f"n{i}": 5.0 * i for i in range(20)}
    await bench.tick(cpu=values, mem=values)
    writes = len(bench.cluster.writes)
    assert writes == 3  # 85, 90 and 95 are over 80

    for _ in range(100):
        snapshot = await bench.tick(cpu=values, mem=values)
        assert snapshot.planned == ()

    assert len(bench.cluster.writes) == writes
    assert len(bench.events.posted) == writes


async def test_dry_run_decides_and_writes_nothing():
    bench = Bench("a", dry_run=True)

    snapshot = await bench.tick(cpu={"a": 91.0})

    assert [patch.node for patch in snapshot.planned] == ["a"]
    assert snapshot.applied == ()
    assert snapshot.dry_run
    assert bench.cluster.writes == []
    assert bench.events.posted == []


async def test_one_failed_rule_does_not_stop_the_others(caplog):
    bench = Bench("a", "b")

    with caplog.at_level(logging.INFO):
        first = await bench.tick(cpu="Prometheus answered 503", mem={"a": 95.0, "b": 1.0})
        await bench.tick(cpu="Prometheus answered 503", mem={"a": 95.0, "b": 1.0})
        await bench.tick(cpu={"a": 1.0}, mem={"a": 95.0, "b": 1.0})

    assert bench.label("a") == "presure"
    assert first.error is None
    assert [(health.ok, health.last_success) for health in first.rules] == [
        (False, None),
        (True, 1010.0),
    ]
    told = [record.message for record in caplog.records if "rule cpu" in record.message]
    assert told == [
        "rule cpu cannot be queried: Prometheus answered 503",
        "rule cpu answers again",
    ]


async def test_when_every_rule_fails_the_tick_says_so_and_marks_stay():
    # S1 exited on any query error.
    bench = Bench("a")
    await bench.tick(cpu={"a": 91.0}, mem={"a": 1.0})

    snapshot = await bench.tick(cpu="connection refused", mem="connection refused")

    assert snapshot.error == "no rule could be queried: connection refused"
    assert bench.label("a") == "presure"


async def test_a_source_with_a_bug_fails_its_rule_only():
    bench = Bench("a")

    snapshot = await bench.tick(cpu=RuntimeError("oops"), mem={"a": 95.0})

    assert snapshot.rules[0].error == "unexpected RuntimeError: oops"
    assert bench.label("a") == "presure"


async def test_a_source_that_is_not_set_up_is_the_rules_health():
    rules = {
        "rules": [{"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 1}]
    }
    snapshot = await Bench("a", rules=rules).tick()

    assert snapshot.rules[0].error == "source metrics-server is not set up in this process"


async def test_rules_are_queried_at_the_same_time():
    bench = Bench("a")
    bench.source.delay = 0.01

    await bench.tick()

    assert bench.source.most_at_once == 2


async def test_a_conflict_is_read_and_planned_again():
    bench = Bench("a")

    def somebody_labels_the_node():
        bench.cluster.before_patch.clear()
        node = bench.cluster.stored["a"]
        bench.cluster.stored["a"] = Node("a", "a", "7", {**node.labels, "team": "x"})

    bench.cluster.before_patch["a"] = somebody_labels_the_node
    snapshot = await bench.tick(cpu={"a": 91.0})

    assert bench.cluster.stored["a"].labels == {"team": "x", "status": "presure"}
    assert len(bench.cluster.writes) == 2
    assert len(snapshot.applied) == 1


async def test_a_conflict_that_takes_our_place_ends_the_write():
    bench = Bench("a")

    def somebody_takes_the_label():
        bench.cluster.stored["a"] = Node("a", "a", "7", {"status": "maintenance"})

    bench.cluster.before_patch["a"] = somebody_takes_the_label
    snapshot = await bench.tick(cpu={"a": 91.0})

    assert bench.label("a") == "maintenance"
    assert len(bench.cluster.writes) == 1
    assert snapshot.failures == ()


async def test_a_node_that_changes_all_the_time_is_left_to_the_next_tick():
    bench = Bench("a")

    def somebody_is_faster():
        node = bench.cluster.stored["a"]
        version = str(int(node.resource_version) + 1)
        bench.cluster.stored["a"] = Node("a", "a", version, node.labels)

    bench.cluster.before_patch["a"] = somebody_is_faster
    snapshot = await bench.tick(cpu={"a": 91.0})

    assert len(bench.cluster.writes) == 1 + CONFLICT_RETRIES
    assert (snapshot.applied, snapshot.failures) == ((), ())


async def test_a_node_deleted_between_plan_and_apply_is_no_failure():
    bench = Bench("a", "b")
    bench.cluster.faults["a"] = NodeGoneError("gone")

    snapshot = await bench.tick(cpu={"a": 91.0, "b": 91.0})

    assert snapshot.error is None
    assert bench.label("b") == "presure"


async def test_one_node_that_cannot_be_written_does_not_stop_the_others():
    # descheduler and soft-tainter: one bad node aborts the pass.
    bench = Bench("a", "b")
    bench.cluster.faults["a"] = ClusterError("the API server answered 500")

    snapshot = await bench.tick(cpu={"a": 91.0, "b": 91.0})

    assert bench.label("b") == "presure"
    assert snapshot.failures == ("a: the API server answered 500",)
    assert snapshot.error == "1 of 2 nodes could not be written: a: the API server answered 500"

    bench.cluster.faults.clear()
    snapshot = await bench.tick(cpu={"a": 91.0, "b": 91.0})
    assert bench.label("a") == "presure"
    assert snapshot.error is None


async def test_an_api_server_that_refuses_everything_is_not_stormed():
    names = [f"n{i}" for i in range(500)]
    bench = Bench(*names)
    bench.cluster.faults = dict.fromkeys(names, ClusterError("down"))

    await bench.tick(cpu=dict.fromkeys(names, 91.0))

    assert len(bench.cluster.writes) < 2 * FAILURES_BEFORE_GIVING_UP


async def test_a_foreign_label_is_told_once_and_never_touched():
    # S1 removed any status label, whoever set it.
    bench = Bench("a")
    bench.cluster.stored["a"] = Node("a", "a", "1", {"status": "maintenance"})

    for _ in range(3):
        snapshot = await bench.tick(cpu={"a": 91.0})

    assert bench.cluster.writes == []
    assert snapshot.nodes["a"].conflict == "label status=maintenance is somebody else's"
    assert [(name, reason) for name, reason, *_ in bench.events.posted] == [("a", "MarkConflict")]


async def test_marks_found_at_start_are_adopted_not_removed():
    bench = Bench("a")
    bench.cluster.stored["a"] = Node("a", "a", "1", {"status": "presure"})

    await bench.tick(cpu="Prometheus is not up yet", mem="Prometheus is not up yet")
    assert bench.label("a") == "presure"

    await bench.tick(cpu={"a": 20.0}, mem={"a": 20.0})
    assert bench.label("a") is None


async def test_ticks_start_an_interval_apart_and_never_overlap():
    bench = Bench("a")
    bench.source.delay = 0.05
    starts = []
    query = bench.source.query

    async def recorded(rule):
        if rule.name == "cpu":
            starts.append(asyncio.get_running_loop().time())
        return await query(rule)

    bench.source.query = recorded
    stop = asyncio.Event()
    running = asyncio.create_task(bench.loop.run(stop, 0.1))
    await asyncio.sleep(0.55)
    stop.set()
    await running

    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert len(gaps) >= 3
    assert min(gaps) > 0.08  # not 0.05: the pause is shorter by what the tick took
    assert bench.source.most_at_once == 2  # two rules of one tick, never of two


async def test_no_tick_before_the_nodes_are_listed():
    bench = Bench("a")
    bench.cluster.synced = False
    stop = asyncio.Event()
    running = asyncio.create_task(bench.loop.run(stop, 0.01))
    await asyncio.sleep(0.05)
    assert bench.snapshots == []

    bench.cluster.synced = True
    async with asyncio.timeout(5):
        while not bench.snapshots:
            await asyncio.sleep(0.01)
    stop.set()
    await running


async def test_stop_ends_the_wait_between_ticks():
    bench = Bench("a")
    stop = asyncio.Event()
    running = asyncio.create_task(bench.loop.run(stop, 3600.0))
    await asyncio.sleep(0.05)
    stop.set()
    async with asyncio.timeout(1):
        await running


@pytest.mark.parametrize("action", [Action.MARK, Action.RELEASE])
async def test_a_change_of_mark_is_one_log_line(caplog, action):
    bench = Bench("a")
    with caplog.at_level(logging.INFO, logger="dynsched.loop"):
        await bench.tick(cpu={"a": 91.5}, mem={"a": 1.0})
        if action is Action.RELEASE:
            caplog.clear()
            await bench.tick(cpu={"a": 10.0}, mem={"a": 1.0})
        await bench.tick(cpu={"a": 10.0 if action is Action.RELEASE else 91.5}, mem={"a": 1.0})

    expected = {
        Action.MARK: "mark node a: cpu 91.5 > 80",
        Action.RELEASE: "release node a: no rule fires any more",
    }
    assert [record.message for record in caplog.records] == [expected[action]]
