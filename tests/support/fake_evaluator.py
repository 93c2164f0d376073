"""An evaluator whose parts are all fakes, ticked by hand."""

import asyncio
from dataclasses import replace

from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.marks import NodePatch, apply_patch
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample, Series
from dynsched.rules.file import parse_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ConflictError, NotPermittedError, PastUnknownError

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
    """Nodes in a dict; merge patches applied as the API server does, where ``permission`` allows
    it; faults by node name.
    """

    synced = True
    error = None

    def __init__(self, *names, permission):
        self.permission = permission
        self.stored = {name: Node(name, uid=name, resource_version="1") for name in names}
        self.writes = []
        self.faults = {}
        self.before_patch = {}

    def nodes(self):
        return dict(self.stored)

    async def read(self, name):
        return self.stored.get(name)

    async def patch(self, patch: NodePatch):
        if not self.permission.may_write:
            raise NotPermittedError(patch.node)
        self.writes.append(patch)
        if patch.node in self.faults:
            raise self.faults[patch.node]
        if patch.node in self.before_patch:
            self.before_patch[patch.node]()
        node = self.stored[patch.node]
        if patch.body["metadata"]["resourceVersion"] != node.resource_version:
            raise ConflictError(f"{patch.node} changed")
        newer = str(int(node.resource_version) + 1)
        self.stored[patch.node] = replace(apply_patch(node, patch), resource_version=newer)
        return self.stored[patch.node]


class FakeEvents:
    def __init__(self):
        self.posted = []

    def post(self, node, *, reason, message, warning=False):
        self.posted.append((node.name, reason, message, warning))

    def post_own(self, *, reason, message, warning=False):
        self.posted.append(("dynsched", reason, message, warning))


class FakeRulesFile:
    """``next_content``: what the file will have at the next look; a string is an error. Rules may
    be parsed already.
    """

    def __init__(self, rules):
        self.rule_set = _parsed(rules)
        self.error, self.warnings = None, ()
        self.next_content = None

    def changed(self):
        content, self.next_content = self.next_content, None
        if isinstance(content, str):
            self.error = content
        elif content is not None:
            self.rule_set, self.error = _parsed(content), None
            return True
        return False


def _parsed(rules):
    return rules if rules is None or isinstance(rules, RuleSet) else parse_rules(rules)


class FakeLeadership:
    may_write = True
    leader = "me"
    error = None

    def step_down(self):
        self.may_write = False


class FakeHistory:
    """Points by rule name and node; a text is why a rule's past cannot be had."""

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


class Bench:
    def __init__(self, *names, rules=RULES, **options):
        self.now = 1000.0
        self.source = FakeSource(lambda: self.now)
        self.events = FakeEvents()
        self.ticks = []
        self.rules_file = FakeRulesFile(rules)
        self.leadership = FakeLeadership()
        self.cluster = FakeCluster(*names, permission=self.leadership)
        self.history = FakeHistory()
        self.sources = {"prometheus": self.source}
        self.on_tick = lambda _: None
        self.evaluator = Evaluator(
            self.rules_file,
            queries=Queries(self.sources),
            histories={"prometheus": self.history},
            leadership=self.leadership,
            cluster=self.cluster,
            reporter=Reporter(self.events),
            publish=self._publish,
            **{"clock": lambda: self.now, "monotonic": lambda: self.now, **options},
        )

    async def tick(self, **values):
        self.source.values = values
        self.now += 10
        return await self.evaluator.tick()

    async def _publish(self, tick):
        self.ticks.append(tick)
        self.on_tick(tick)

    def label(self, name):
        return self.cluster.stored[name].labels.get("status")
