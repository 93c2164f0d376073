"""A small cluster with other writers, faults on demand, and replicas.

The Evaluator, the NodeCluster with its store, and the simulator's objects with their
resourceVersions are real. Between them are an `Api` that fails on demand, and a watch whose events
can be delayed, reordered or lost.

In addition to the stored nodes the world keeps the nodes as they would be without dynsched
(`others`): every change by somebody else is made to both.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from bench import FakeEvents, FakeLeadership, FakeRulesFile, patch_node
from stateful_model import RECORD, label_text, taint_text, texts_on
from virtual_loop import VirtualLoop

from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter
from dynsched.core.evaluate import Evaluation
from dynsched.core.marks import NodePatch
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample, Series
from dynsched.core.tick import Tick
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import DryRunCluster, NodeCluster, NodeStore
from dynsched.kube.decode_node import node_of
from dynsched.kube.election import LeaseTimes
from dynsched.rules.keys import DEFAULT_LABEL
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotPermittedError,
    PastUnknownError,
)
from dynsched_sim.apiserver.objects import Objects, Write, merge_patch
from dynsched_sim.apiserver.resources import NODES
from dynsched_sim.apiserver.store import ChangeType, Entry, Store, StoreChange

T = TypeVar("T")
Body = dict[str, Any]

NOON = 1_700_000_000.0
INTERVAL = 10.0
"""Seconds between two ticks; every time here is a multiple of 5 s, so that floats are exact."""
NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
OUR_TEXTS = frozenset(
    {
        "status=presure",
        "status=hot",
        "load=high",
        "dynsched.io/pressure=true:PreferNoSchedule",
        "dynsched.io/pressure=yes:PreferNoSchedule",
    }
)
"""The marks of all rule sets here; one of these counts as ours, whoever has set it."""


class Fault(StrEnum):
    """What happens to one patch. From MEDDLED on, somebody else changes the node just before it."""

    NONE = "none"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    LOST = "applied, but the answer is lost"
    ECHOED = "applied, but sent twice: a conflict"
    HUNG = "no answer, and not applied"
    HUNG_APPLIED = "no answer, and applied"
    DEMOTED = "the lease is lost"
    MEDDLED = "a foreign label changes"
    MEDDLED_BLIND = "a foreign label changes, and the node cannot be read"
    TAINTED = "a foreign taint comes"
    STOLEN = "the label is taken"
    RELEASED = "our mark is removed"
    IGNORED = "the node is to be ignored"
    DELETED = "the node is deleted"
    RECREATED = "the node is another"


MEDDLING = frozenset(list(Fault)[list(Fault).index(Fault.MEDDLED) :])
PASSING = frozenset({Fault.NONE, Fault.MEDDLED, Fault.TAINTED})
"""Faults after which the same write is still due."""


ERRORS = {
    **dict.fromkeys((Fault.REFUSED, Fault.LOST, Fault.DEMOTED), ClusterError),
    Fault.FORBIDDEN: ForbiddenError,
    Fault.ECHOED: ConflictError,
}


@dataclass
class Attempt:
    """One patch that was sent, and its outcome."""

    fault: Fault
    error: BaseException | None = None


@dataclass(frozen=True)
class Written:
    """One patch that was applied, and the node ``before`` and ``after`` it."""

    patch: NodePatch
    before: Node
    after: Node


class Api:
    """A replica's client: the simulator's objects behind injected faults."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._replica = replica
        self.faults: deque[Fault] = deque()
        self.attempts: dict[str, list[Attempt]] = {}
        self.written: list[Written] = []
        self._unreadable: set[str] = set()

    @property
    def struck(self) -> set[Fault]:
        return {each.fault for found in self.attempts.values() for each in found}

    @property
    def unwritten(self) -> set[str]:
        """The nodes whose last attempt failed."""
        return {name for name, found in self.attempts.items() if found[-1].error is not None}

    def forget(self) -> None:
        self.attempts, self.written, self._unreadable = {}, [], set()

    async def read(self, name: str) -> Node | None:
        await asyncio.sleep(0)
        if self._world.away or name in self._unreadable:
            raise ClusterError(f"cannot get nodes {name}: 500")
        entry = self._world.objects.store.get(NODES, "", name)
        return None if entry is None else node_of(entry.decode())

    async def patch(self, patch: NodePatch) -> Node:
        replica = self._replica
        # The client refuses writes as soon as the Lease is lost.
        if not replica.leadership.may_write:
            assert Fault.DEMOTED in self.struck, f"{patch} is due on one who does not lead"
            raise NotPermittedError(f"cannot patch nodes {patch.node}: it does not lead")
        assert not replica.dry_run, f"{patch} is sent in a dry run"
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if self._world.away:
            fault = Fault.REFUSED
        attempt = Attempt(fault)
        self.attempts.setdefault(patch.node, []).append(attempt)
        await asyncio.sleep(0)
        try:
            return await self._fail_or_apply(patch, fault)
        except BaseException as error:
            attempt.error = error
            raise

    async def _fail_or_apply(self, patch: NodePatch, fault: Fault) -> Node:
        name = patch.node
        if fault in MEDDLING:
            self._meddle(fault, name)
        if fault in (Fault.LOST, Fault.ECHOED, Fault.HUNG_APPLIED):
            self._apply(patch)
        if fault in (Fault.HUNG, Fault.HUNG_APPLIED):
            await asyncio.sleep(LeaseTimes().write_timeout)
            raise ClusterError(f"cannot patch nodes {name}: no answer")
        if fault is Fault.DEMOTED:
            self._world.lead(None)
        if fault in ERRORS:
            raise ERRORS[fault](f"cannot patch nodes {name}: {fault}")
        return self._apply(patch)

    def _meddle(self, fault: Fault, name: str) -> None:
        somebody = self._world.somebody
        if fault is Fault.MEDDLED_BLIND:
            self._unreadable.add(name)
        match fault:
            case Fault.MEDDLED | Fault.MEDDLED_BLIND:
                somebody.labels(name, "beat", str(self._world.objects.store.version))
            case Fault.TAINTED:
                somebody.taints(name, {"key": "other.io/late", "effect": "NoSchedule"})
            case Fault.STOLEN:
                somebody.labels(name, "status", "maintenance")
            case Fault.RELEASED:
                somebody.tidies(name)
            case Fault.IGNORED:
                somebody.labels(name, "dynsched.io/ignore", "true")
            case Fault.DELETED | Fault.RECREATED:
                somebody.deletes(name)
        if fault is Fault.RECREATED:
            somebody.creates(name)

    def _apply(self, patch: NodePatch) -> Node:
        before = self._world.stored(patch.node)
        written = patch_node(self._world.objects, patch)
        assert before is not None
        self.written.append(Written(patch, before, _node(written)))
        return self.written[-1].after


class Watch:
    """A replica's watch. ``held``: events wait; ``deaf``: they are lost until a new list."""

    def __init__(self, objects: Objects) -> None:
        self.store = NodeStore()
        self.store.synced = True
        self.held = self.deaf = False
        self._missed = False
        self._objects = objects
        self._waiting: dict[str, deque[StoreChange]] = {}
        self._list()
        self.close = objects.store.subscribe(NODES, self._hear)

    def _hear(self, change: StoreChange) -> None:
        if self.deaf:
            self._missed = True
            return
        self._waiting.setdefault(change.entry.uid, deque()).append(change)
        if not self.held:
            self.catch_up()

    def deliver(self, pick: int) -> None:
        """Deliver one event; only the events of the same object keep their sequence."""
        if not self._waiting:
            return
        uid = sorted(self._waiting, key=lambda each: self._waiting[each][0].version)[
            pick % len(self._waiting)
        ]
        change = self._waiting[uid].popleft()
        if not self._waiting[uid]:
            del self._waiting[uid]
        known = self.store.nodes()
        if change.type is ChangeType.DELETED:
            self.store.drop(change.entry.name, change.entry.uid)
        else:
            self.store.offer(_node(change.entry))
        for name, node in self.store.nodes().items():
            assert name not in known or _version(node) >= _version(known[name]), "it goes back"
        assert self.is_fresh or self._waiting or self._missed, "all events came, and it is wrong"

    @property
    def is_fresh(self) -> bool:
        """Whether the store has the current version of every node."""
        seen = {name: _version(node) for name, node in self.store.nodes().items()}
        return seen == {each.name: each.version for each in self._objects.store.entries(NODES)}

    def catch_up(self) -> None:
        while self._waiting:
            self.deliver(0)

    def relist(self) -> None:
        """Begin a new watch, with a new list."""
        self.held = self.deaf = self._missed = False
        self._waiting.clear()
        self._list()

    def _list(self) -> None:
        listed = (_node(each) for each in self._objects.store.entries(NODES))
        self.store.correct({node.name: node for node in listed}, self.store.changes)


def _version(node: Node) -> int:
    return int(node.resource_version)


def _node(entry: Entry) -> Node:
    node = node_of(entry.decode())
    assert node is not None
    return node


class Source:
    """The source of samples and of their history."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def query(self, rule: Rule) -> QueryResult:
        mode = self._world.modes.get(rule.name, "ok")
        if mode == "raises":
            raise RuntimeError("a bug in a source")
        if mode == "failed":
            return QueryResult(error="connection refused")
        if mode == "slow":
            await asyncio.sleep(5)
        age = {"aged": 15.0, "old": 1000.0, "ahead": -30.0}.get(mode, 0.0)
        values = self._world.values(rule)
        if mode == "partial":
            values = {name: value for name, value in values.items() if name in NAMES[::2]}
        if mode == "empty":
            values = {}
        at = self._world.wall() - age
        samples = [Sample(_labels(name), value, at) for name, value in values.items()]
        if mode == "strange":
            samples += [Sample({}, 99.0, at), Sample({"node": "who"}, 99.0, at)]
        return QueryResult(tuple(samples), warnings=("a store is away",) * (mode == "partial"))

    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        await asyncio.sleep(0)
        if self._world.modes.get(rule.name) in ("failed", "raises"):
            raise PastUnknownError("connection refused")
        ahead = self._world.wall() - self._world.lived
        points: dict[str, list[tuple[float, float]]] = {}
        for number in range(round((end - start) / step) + 1):
            at = start + number * step
            for name, value in self._world.values(rule, at - ahead).items():
                points.setdefault(name, []).append((at, value))
        return tuple(Series(_labels(name), tuple(found)) for name, found in points.items())


def _labels(name: str) -> dict[str, str]:
    number = NAMES.index(name)
    return {"node": name} if number % 2 else {"instance": f"10.0.0.{number + 1}:9100"}


@dataclass(frozen=True)
class Moment:
    """One tick of one replica, and the nodes before and after it."""

    replica: Replica
    may_write: bool
    fresh_before: bool
    fresh_after: bool
    before: Mapping[str, Node]
    after: Mapping[str, Node]
    decided_on: Mapping[str, Node]
    tick: Tick
    posted: Sequence[tuple[str, str]]
    """Node and reason of each Event."""

    @property
    def rule_set(self) -> RuleSet:
        return self.tick.rule_set

    @property
    def evaluation(self) -> Evaluation:
        return self.tick.evaluation

    def is_hot(self, name: str) -> bool:
        return name in self.evaluation.hot

    @property
    def wrote_freely(self) -> bool:
        """Whether it led throughout with a current view, and nobody else changed a node then."""
        faults = self.replica.api.struck
        return self.leads and self.fresh_before and not faults & (MEDDLING | {Fault.DEMOTED})

    @property
    def undone(self) -> set[str]:
        """Nodes whose due write failed, or was given up after too many failures."""
        due = {patch.node for patch in self.tick.planned}
        return self.replica.api.unwritten | due - self.replica.api.attempts.keys()

    @property
    def leads(self) -> bool:
        return self.may_write and not self.replica.dry_run


class Replica:
    """One process: an Evaluator with all its parts."""

    def __init__(
        self, world: World, *, dry_run: bool = False, leadership: FakeLeadership | None = None
    ) -> None:
        self.dry_run = dry_run
        self.api = Api(world, self)
        self.watch = Watch(world.objects)
        self.source = Source(world)
        self.rules_file = FakeRulesFile(world.rule_set)
        self.leadership = leadership or FakeLeadership(False, None, steps_down=False)
        self.events = FakeEvents()
        kind = DryRunCluster if dry_run else NodeCluster
        self.cluster = kind(cast("KubeClient", self.api), self.watch.store)
        self._world = world
        self.evaluator = Evaluator(
            self.rules_file,
            queries=Queries({"prometheus": self.source}),
            histories={"prometheus": self.source},
            cluster=self.cluster,
            reporter=Reporter(self.events, dry_run=dry_run),
            leadership=self.leadership,
            publish=_publish_nothing,
            dry_run=dry_run,
            clock=world.wall,
            monotonic=lambda: world.lived,
        )

    async def tick(self) -> Moment:
        self.api.forget()
        fresh, before = self.watch.is_fresh, self._world.all_stored()
        nodes = self.cluster.nodes()
        may_write = self.leadership.may_write
        tick = await self.evaluator.tick(self._world.lived)
        assert tick is not None
        posted = [(node, reason) for node, reason, *_ in self.events.posted]
        self.events.posted.clear()
        return Moment(
            replica=self,
            may_write=may_write,
            fresh_before=fresh,
            fresh_after=self.watch.is_fresh,
            before=before,
            after=self._world.all_stored(),
            decided_on=nodes,
            tick=tick,
            posted=posted,
        )


async def _publish_nothing(tick: Tick) -> None:
    pass


class World:
    """The cluster, its replicas and its other writers; ``loop`` has the virtual clock."""

    def __init__(self, loop: VirtualLoop, rule_set: RuleSet) -> None:
        self.loop = loop
        self.rule_set = rule_set
        self.objects = Objects(Store(history=10))
        self.others: dict[str, Body] = {}
        self.strays: dict[str, set[str]] = {}
        self.former_labels: set[str] = set()
        """Labels of former rules; they stay unless `prune` runs with those rules."""
        self.somebody = Somebody(self)
        self.modes: dict[str, str] = {}
        self.away = False
        self.replicas: list[Replica] = []
        self.sound = True
        self.checked: set[int] = set()
        self._set_by = 0.0
        self._loads: list[tuple[float, dict[str, dict[str, float]]]] = [(0.0, {})]
        self._known: tuple[int, Mapping[str, Node]] = (0, {})

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run_until_complete(doing)
        except BaseException:
            self.sound = False
            raise

    @property
    def lived(self) -> float:
        return self.loop.now

    def wall(self) -> float:
        return NOON + self.loop.now + self._set_by

    def set_clock(self, seconds: float) -> None:
        self._set_by += seconds

    def load(self, rule: str, values: Mapping[str, float | None]) -> None:
        """Set the values from now on; None: the node is not measured."""
        loads = {name: dict(found) for name, found in self._loads[-1][1].items()}
        found = {**loads.get(rule, {}), **values}
        loads[rule] = {name: value for name, value in found.items() if value is not None}
        self._loads.append((self.lived, loads))

    def values(self, rule: Rule, at: float | None = None) -> dict[str, float]:
        """A rule's values now or ``at`` a time, inverted if low values are bad."""
        loads: dict[str, dict[str, float]] = {}
        for since, loads in reversed(self._loads):  # noqa: B007 - the last one counts
            if at is None or since <= at:
                break
        found = loads.get(rule.name, {})
        return found if rule.op == ">" else {name: 100 - value for name, value in found.items()}

    def stored(self, name: str) -> Node | None:
        return self.all_stored().get(name)

    def all_stored(self) -> Mapping[str, Node]:
        """All current nodes; the same version of a node is always the same object."""
        version, known = self._known
        if version != self.objects.store.version:
            known = {
                entry.name: found
                if (found := known.get(entry.name)) and _version(found) == entry.version
                else _node(entry)
                for entry in self.objects.store.entries(NODES)
            }
            self._known = self.objects.store.version, known
        return known

    def lead(self, number: int | None) -> None:
        """Make one replica the leader, or none."""
        for each, replica in enumerate(self.replicas):
            replica.leadership.may_write = each == number
            replica.leadership.leader = None if number is None else f"replica-{number}"

    def reload(self, news: RuleSet | str) -> None:
        if isinstance(news, RuleSet):
            label = self.rule_set.mark.label
            if label is not None and str(label) != DEFAULT_LABEL:
                self.former_labels.add(str(label))
            self.rule_set = news
        for replica in self.replicas:
            replica.rules_file.next_content = news

    def restart(self, number: int, *, dry_run: bool = False) -> Replica:
        """Replace a process by a new one; the leader stays the same."""
        old = self.replicas[number]
        old.watch.close()
        new = Replica(self, dry_run=dry_run, leadership=old.leadership)
        self.replicas[number] = new
        return new


class Somebody:
    """All other writers of nodes. Their changes to a missing node have no effect."""

    def __init__(self, world: World) -> None:
        self._world = world

    def creates(
        self, name: str, labels: Mapping[str, str] | None = None, taints: Sequence[Body] = ()
    ) -> None:
        if name in self._world.others:
            return
        labels, taints = dict(labels or {}), list(taints)
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": {"other.io/ttl": "0"}},
            "spec": {"podCIDR": "10.64.0.0/24", **({"taints": taints} if taints else {})},
            "status": {
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{NAMES.index(name) + 1}"}]
            },
        }
        self._world.others[name] = self._world.objects.create("nodes", body).decode()
        self._world.strays[name] = texts_on(self._world.all_stored()[name]) & OUR_TEXTS

    def deletes(self, name: str) -> None:
        if self._world.others.pop(name, None) is not None:
            self._world.objects.delete("nodes", name)

    def labels(self, name: str, key: str, value: str | None) -> None:
        self._patch(name, lambda _: {"metadata": {"labels": {key: value}}})
        if value is not None and name in self._world.others:
            self._world.strays[name] |= {label_text(key, value)} & OUR_TEXTS

    def annotates(self, name: str, key: str, value: str | None) -> None:
        stored = self._world.stored(name)
        self._patch(name, lambda _: {"metadata": {"annotations": {key: value}}})
        if stored is not None and key == RECORD:
            self._world.strays[name] |= texts_on(stored) & OUR_TEXTS

    def taints(self, name: str, taint: Body, *, first: bool = False) -> None:
        """Add a taint at the front or the end, unless one with its key and effect exists."""
        stored, place = self._world.stored(name), _place(taint)
        if stored is None or place in map(_place, stored.taints):
            return
        self._edit_taints(name, place, [taint] * first, [taint] * (not first))
        self._world.strays[name] |= {taint_text(taint)} & OUR_TEXTS

    def untaints(self, name: str, key: str, effect: str) -> None:
        self._edit_taints(name, (key, effect), [], [])

    def tidies(self, name: str) -> None:
        """Remove every label and taint in the place of a mark."""
        for key in ("status", "load"):
            self.labels(name, key, None)
        self.untaints(name, RECORD, "PreferNoSchedule")

    def _edit_taints(
        self, name: str, place: tuple[str, str], front: list[Body], behind: list[Body]
    ) -> None:
        def edited(body: Body) -> Body:
            kept = [each for each in body["spec"].get("taints", []) if _place(each) != place]
            return {"spec": {"taints": [*front, *kept, *behind] or None}}

        self._patch(name, edited)

    def _patch(self, name: str, made: Callable[[Body], Body]) -> None:
        """Patch the stored node and the node as it would be without dynsched."""
        others = self._world.others
        if name in others:
            now = self._world.objects.get("nodes", name)
            self._world.objects.patch("nodes", name, made(now), how=Write("somebody"))
            others[name] = merge_patch(others[name], made(others[name]))


def _place(taint: Mapping[str, Any]) -> tuple[str, str]:
    return taint["key"], taint["effect"]


def foreign(body: Body) -> str:
    """A node as comparable text, without our marks and the API server's bookkeeping."""
    meta, spec = dict(body["metadata"]), dict(body["spec"])
    del meta["resourceVersion"], meta["managedFields"]
    labels, annotations = meta.pop("labels", {}), meta.pop("annotations", {})
    taints = spec.pop("taints", [])
    return json.dumps(
        [
            {k: v for k, v in labels.items() if label_text(k, v) not in OUR_TEXTS},
            {k: v for k, v in annotations.items() if k != RECORD},
            [each for each in taints if taint_text(each) not in OUR_TEXTS],
            {**body, "metadata": meta, "spec": spec},
        ],
        sort_keys=True,
    )
