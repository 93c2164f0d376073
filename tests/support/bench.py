"""An evaluator over the simulator's objects, ticked by hand; the test fakes everything else."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec

from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.samples import QueryResult, Sample, Series
from dynsched.kube.cluster import NodeCluster, NodeStore
from dynsched.kube.decode_node import node_of
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import (
    ConflictError,
    NotFoundError,
    NotPermittedError,
    PastUnknownError,
)
from dynsched.web.metrics import Metrics
from dynsched.web.nodes import node_detail
from dynsched.web.status import rules_answer, status_answer
from dynsched_sim.apiserver.api_errors import ApiError
from dynsched_sim.apiserver.objects import Objects, Write
from dynsched_sim.apiserver.resources import NODES
from dynsched_sim.apiserver.store import ChangeType, Store

INTERVAL = 10.0
RULES = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [
        {"name": "cpu", "expr": "cpu", "threshold": 80, "clear_threshold": 70},
        {"name": "mem", "expr": "mem", "threshold": 90},
    ],
}


class FakeSource:
    """Answers by rule name. A string is a query's error, an exception is a bug of the source."""

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
        if isinstance(answer, QueryResult):
            return answer
        return QueryResult(
            tuple(Sample({"node": name}, value, self.clock()) for name, value in answer.items())
        )


class FakeHistory:
    """Points by rule name and node. A string is the reason why a rule's history is unavailable."""

    def __init__(self):
        self.points = {}
        self.asked = []

    async def history(self, rule, start, end, step):
        self.asked.append((rule.name, start, end, step))
        found = self.points.get(rule.name, {})
        if isinstance(found, str):
            raise PastUnknownError(found)
        return tuple(
            Series({"node": name}, tuple((t, v) for t, v in points if start <= t <= end))
            for name, points in found.items()
        )


def patch_node(objects, patch):
    """Apply a patch as the API server does, with the errors that `KubeClient` raises."""
    body = json.loads(json.dumps(patch.body))
    try:
        return objects.patch("nodes", patch.node, body, how=Write("dynsched"))
    except ApiError as error:
        known = {404: NotFoundError, 409: ConflictError}  # no other error: the patch is valid
        raise known.get(error.code, AssertionError)(error.message) from None


class SimClient:
    """A `KubeClient` without HTTP. ``faults`` and ``before_patch`` (callbacks) are by node name."""

    def __init__(self, objects, leadership):
        self._objects = objects
        self._leadership = leadership
        self.writes = []
        self.faults = {}
        self.before_patch = {}

    async def read(self, name):
        entry = self._objects.store.get(NODES, "", name)
        return None if entry is None else node_of(entry.decode())

    async def patch(self, patch):
        if not self._leadership.may_write:
            raise NotPermittedError(patch.node)
        self.writes.append(patch)
        if patch.node in self.faults:
            raise self.faults[patch.node]
        if patch.node in self.before_patch:
            self.before_patch[patch.node]()
        return node_of(patch_node(self._objects, patch).decode())


class FakeEvents:
    def __init__(self):
        self.posted = []

    def post(self, node, *, reason, message, warning=False):
        self.posted.append((node.name, reason, message, warning))

    def post_own(self, *, reason, message, warning=False):
        self.posted.append(("dynsched", reason, message, warning))


class FakeRulesFile:
    """``next_content``: the file's content at the next read; a string is an error.

    The rules may be parsed already.
    """

    def __init__(self, rules):
        self.rule_set = _parsed(rules)
        self.error, self.warnings = None, ()
        self.next_content = None

    def read(self):
        content, self.next_content = self.next_content, None
        if isinstance(content, str):
            self.error = content
        elif content is not None:
            self._read = _parsed(content)
            return self._read
        return None

    def accept(self):
        self.rule_set, self.error = self._read, None

    def refuse(self, errors):
        self.error = "; ".join(f"{name}: {why}" for name, why in errors.items())


def _parsed(rules):
    return rules if rules is None or isinstance(rules, RuleSet) else parse_rules(rules)


@dataclass
class FakeLeadership:
    """Leadership set by the test. ``steps_down``: whether another replica would take over."""

    may_write: bool = True
    leader: str | None = "me"
    error: str | None = None
    steps_down: bool = True

    def step_down(self):
        if self.steps_down:
            self.may_write = False


class Bench:
    """Nodes of 8 cores; ``objects`` are in the API server, ``store`` is what the watch has seen."""

    def __init__(self, *names, rules=RULES, **options):
        self.now = 1000.0
        self.source, self.history = FakeSource(lambda: self.now), FakeHistory()
        self.sources = {"prometheus": self.source}
        self.events, self.metrics = FakeEvents(), Metrics()
        self.objects = Objects(Store())
        for name in names:
            self.create(name)
        self.ticks = []
        self.on_tick = lambda _: None
        self._options = {"clock": lambda: self.now, "monotonic": lambda: self.now, **options}
        self.stop_watch = lambda: None
        self.start(rules)

    def start(self, rules):
        """Start, or restart: the state of the previous evaluator is lost."""
        self.stop_watch()
        self.rules_file, self.leadership = FakeRulesFile(rules), FakeLeadership()
        self.client, self.store = SimClient(self.objects, self.leadership), NodeStore()
        nodes = map(node_of, self.objects.all("nodes"))
        self.store.correct({node.name: node for node in nodes}, 0)
        self.stop_watch = self.objects.store.subscribe(NODES, self._apply_change)
        self.evaluator = Evaluator(
            self.rules_file,
            queries=Queries(self.sources),
            histories={"prometheus": self.history},
            leadership=self.leadership,
            cluster=NodeCluster(self.client, self.store),
            reporter=Reporter(self.events),
            publish=self._publish,
            **self._options,
        )

    def _apply_change(self, change):
        if change.type is ChangeType.DELETED:
            self.store.drop(change.entry.name, change.entry.uid)
        else:
            self.store.offer(node_of(change.entry.decode()))

    async def _publish(self, tick):
        self.ticks.append(tick)
        self.metrics.observe(tick)
        self.on_tick(tick)

    async def tick(self, after=INTERVAL, **values):
        """One tick after ``after`` seconds; without ``values`` the source answers as before."""
        self.source.values = values or self.source.values
        self.now += after
        return await self.evaluator.tick()

    # Changes that other clients make to nodes.

    def create(self, name, **labels):
        body = {"metadata": {"name": name, "labels": labels}}
        self.objects.create("nodes", body | {"status": {"capacity": {"cpu": "8"}}})

    def delete(self, name):
        self.objects.delete("nodes", name)

    def change(self, name, *, manager="somebody", taints=None, **metadata):
        """Patch labels and annotations; ``taints`` replaces all taints."""
        spec = {} if taints is None else {"spec": {"taints": taints}}
        self.objects.patch("nodes", name, {"metadata": metadata, **spec}, how=Write(manager))

    # Observations.

    def stored(self, name):
        return node_of(self.objects.get("nodes", name))

    def label(self, name):
        return self.stored(name).labels.get("status")

    @property
    def marked(self):
        """The names of the nodes that carry the label."""
        names = (entry.name for entry in self.objects.store.entries(NODES))
        return " ".join(name for name in names if self.label(name) == "presure")

    def told(self, name):
        """Number of Events posted on a node, by reason."""
        return Counter(reason for node, reason, *_ in self.events.posted if node == name)

    def node(self, name) -> Any:
        """The decoded answer of `/nodes/NAME`."""
        encoded = msgspec.json.encode(node_detail(self.ticks[-1], name), enc_hook=str)
        return json.loads(encoded, object_hook=lambda each: SimpleNamespace(**each))

    def status(self):
        last = self.ticks[-1]
        return status_answer(last, error=last.error, source="", leader=None, rules_error=None)

    def rules(self):
        return rules_answer(self.ticks[-1])["rules"]

    def metric(self, name):
        """The value of one series of `/metrics`, by its name with labels."""
        lines = self.metrics.exposition().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))
