"""The world of the soak: nodes, their loads, and checks of everything that is written to them.

The API server is `dynsched_sim`'s, over HTTP on loopback.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from soak_prometheus import INTERVAL, Clock, Prometheus

from dynsched.core.guard import count_of
from dynsched.core.mark_record import read_record
from dynsched.core.marks import mark_state
from dynsched.core.nodes import Node, why_ineligible
from dynsched.kube.decode_node import node_of
from dynsched.kube.election import LeaseTimes
from dynsched.rules import keys
from dynsched.rules.labels import Mark
from dynsched.rules.rule_set import RuleSet
from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.apiserver.objects import Write
from dynsched_sim.apiserver.record import RequestLog
from dynsched_sim.apiserver.resources import EVENTS, LEASES, NODES
from dynsched_sim.apiserver.store import Backup, ChangeType, Entry, StoreChange
from dynsched_sim.examples import make_node

IDENTITY = "dynsched"
"""The identity that may hold the Lease and write."""

LEASE = LeaseTimes(duration=1.0, renew_every=0.15, write_for=0.5, write_timeout=0.3)

_HISTORY = 300
"""Changes that a watch can start from. Soon full, so that the simulator's memory does not grow."""
_IDLE = 0.15
"""Seconds after which the API server closes an idle connection. With a longer time, frequent calls
would keep two connections alive by turns, although one is enough."""

BLIND = 10.0
"""Seconds, on the machine's clock, within which dynsched must know all nodes after a restore. Lists
that are usually five minutes apart come every 0.5 s here; the rest is for faults meanwhile."""

OTHER_LABEL = "status=hot"
"""A label for marks, in addition to the default one."""
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"

_OURS = frozenset({keys.DEFAULT_LABEL, OTHER_LABEL, TAINT})


class Carried(NamedTuple):
    """The label and the taint on a node that some rules of the soak may have put there (``parts``),
    and those that its record names.
    """

    parts: frozenset[str]
    recorded: frozenset[str]

    def strays(self, mark: Mark) -> frozenset[str]:
        """The parts that are of older rules, and stay.

        For dynsched, a record proves that a taint and the default label are its own. Any other
        label stays, and whatever had its record destroyed by another client.
        """
        return self.parts - {*mark.texts} - (self.recorded - {OTHER_LABEL})

    def is_mark(self, mark: Mark) -> bool:
        """Whether a part is of ``mark``, or of older rules and no stray."""
        return self.parts > self.strays(mark)


_NOTHING = Carried(frozenset(), frozenset())


@dataclass(frozen=True)
class Past:
    """The state that `World.restore` restores."""

    stored: Backup
    numbers: Mapping[str, int]


class World:
    """The cluster and its loads. ``happened`` counts what happened; ``violations`` must stay empty.

    ``rules`` and ``seen``: the rules and nodes that dynsched's decisions are checked against. It
    cannot know of a node that has just left or joined. ``is_known``: dynsched has seen all nodes
    as they are since the last restore; before that it decides on a state that was undone.
    ``is_led``: whether a rival leads. ``is_pruned``: whether marks of older rules are removed too.
    """

    def __init__(self, nodes: int, seed: int) -> None:
        self.clock = Clock()
        self.chance = random.Random(seed)
        self.server = ApiServer(history=_HISTORY, idle_timeout=_IDLE)
        self.server.requests = RequestLog(maxlen=100)
        self.prometheus = Prometheus(self.clock, self._loads)
        self.size = nodes
        self.happened: Counter[str] = Counter()
        self.violations: list[str] = []
        self.seen: Mapping[str, Node] = {}
        self.rules: Callable[[], RuleSet]
        self.is_led: Callable[[], bool] = lambda: False
        self.is_known = True
        self.is_pruned = False
        self._restored_at = -BLIND
        self._carried: dict[str, Carried] = {}
        self._numbers: dict[str, int] = {}
        self._hot_until: dict[str, float] = {}
        self._serial = 0
        self._is_others = False
        self._old_events: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Start the servers, and create the first nodes."""
        self.server.store.subscribe(NODES, self._judge)
        await self.server.start()
        await self.prometheus.start()
        self.join(self.size)

    async def stop(self) -> None:
        """Stop the servers."""
        await self.prometheus.stop()
        await self.server.stop()

    # --- loads ---

    def _loads(self) -> Mapping[str, float]:
        """Load per node, by the address of its exporter."""
        return {
            f"{_address(number)}:9100": (85.0 if name in self._hot_until else 40.0) + number % 13
            for name, number in self._numbers.items()
        }

    def heat(self) -> None:
        """With some probability, make a node hot for a while."""
        now, chance = self.clock.passed, self.chance
        self._hot_until = {name: at for name, at in self._hot_until.items() if at > now}
        names = list(self._numbers)
        if chance.random() < 0.15:
            self._hot_until[chance.choice(names)] = now + chance.uniform(60, 3000)

    def heat_many(self) -> None:
        """Make a quarter of the nodes hot."""
        herd = self.chance.sample(list(self._numbers), k=len(self._numbers) // 4)
        until = self.clock.passed + self.chance.uniform(200, 900)
        self._hot_until |= dict.fromkeys(herd, until)

    # --- actions of other clients ---

    @contextmanager
    def _others(self) -> Iterator[None]:
        self._is_others = True
        try:
            yield
        finally:
            self._is_others = False

    def entries(self) -> tuple[Entry, ...]:
        """All stored nodes."""
        return self.server.store.entries(NODES)

    def come_and_go(self) -> None:
        """Remove or add a few nodes, to keep their number about constant; rarely fifty at once."""
        number = 50 if self.chance.random() < 0.02 else self.chance.randint(1, 4)
        if len(self._numbers) > self.size:
            self._leave(number)
        else:
            self.join(number)

    def join(self, count: int) -> None:
        """Create nodes, some with taints."""
        for number in range(self._serial, self._serial + count):
            name = f"node-{number:05d}"
            body = make_node(name, number % 50_000, labels={"team": f"t{number % 5}"})
            body["metadata"]["annotations"]["other.io/note"] = f"of {name}"
            if number % 3 == 0:
                body["spec"]["taints"] = [
                    {"key": "other.io/z", "effect": "NoSchedule"},
                    {"key": "other.io/a", "value": "1", "effect": "PreferNoSchedule"},
                ]
            with self._others():
                self.server.objects.create("nodes", body)
            self._numbers[name] = number
        self._serial += count
        self.happened["nodes joined"] += count

    def _leave(self, count: int) -> None:
        for name in self.chance.sample(list(self._numbers), min(count, self.size)):
            with self._others():
                self.server.objects.delete("nodes", name)
            del self._numbers[name]
            self.happened["nodes left"] += 1

    def beat(self) -> None:
        """Send a kubelet's heartbeat, and sometimes change a label, annotation or taint."""
        names = list(self._numbers)
        port = 10_000 + int(self.clock.passed / INTERVAL) % 10_000
        beat = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
        self._patch(self.chance.choice(names), beat, "status")
        if self.chance.random() < 0.1:
            name = self.chance.choice(names)
            self._patch(name, self._interference(name))

    def _patch(self, name: str, body: Mapping[str, Any], subresource: str = "") -> None:
        how = Write("somebody", subresource=subresource)
        with self._others():
            self.server.objects.patch("nodes", name, body, how=how)
        self.happened["writes by others"] += 1

    def _interference(self, name: str) -> dict[str, Any]:
        word = self.chance.choice(["blue", "red", None])
        taints = self.server.objects.get("nodes", name)["spec"].get("taints", [])
        taint = {"key": "other.io/mid", "value": "x", "effect": "NoSchedule"}
        rest = [each for each in taints if each["key"] != "other.io/mid"]
        meta: dict[str, Any] = self.chance.choice(
            [
                {"labels": {"team": word}},
                {"labels": {"status": "maintenance"}},
                {"labels": {"status": None}},
                {"labels": {keys.IGNORE_LABEL: word and "true"}},
                {"annotations": {"other.io/note": word}},
                {"annotations": {keys.EVIDENCE_ANNOTATION: word and "{"}},
                {},
            ]
        )
        return (
            {"metadata": meta} if meta else {"spec": {"taints": [*rest, taint] if word else rest}}
        )

    def ignore_marked(self) -> list[str]:
        """Exclude some marked nodes from marking; returns their names."""
        names = self.chance.sample(marked := sorted(self.marked()), min(3, len(marked)))
        for name in names:
            self._patch(name, {"metadata": {"labels": {keys.IGNORE_LABEL: "true"}}})
        return names

    def ignore_no_more(self, names: Iterable[str]) -> None:
        """Allow marks again on those of the nodes that still exist."""
        for name in sorted(self._numbers.keys() & set(names)):
            self._patch(name, {"metadata": {"labels": {keys.IGNORE_LABEL: None}}})

    def forget_events(self) -> None:
        """Delete Events an hour after they came, as the API server does."""
        store = self.server.store
        for entry in store.entries(EVENTS):
            if entry.key in self._old_events:
                store.delete(EVENTS, entry)
                self.happened["Events forgotten"] += 1
        self._old_events = frozenset(entry.key for entry in store.entries(EVENTS))

    # --- restore ---

    def back_up(self) -> Past:
        """Back up the current state."""
        return Past(self.server.store.back_up(), dict(self._numbers))

    async def restore(self, past: Past) -> None:
        """Stop the API server, restore an older state of etcd, and start it again."""
        await self.server.restore(past.stored)
        self._numbers = dict(past.numbers)
        found = {entry.name: _carried(entry) for entry in self.entries()}
        self._carried = {name: carried for name, carried in found.items() if carried.parts}
        self.is_known, self._restored_at = False, time.monotonic()

    def judge_the_sight(self) -> None:
        """Add a violation if dynsched does not know the restored nodes in time."""
        if not self.is_known and time.monotonic() - self._restored_at > BLIND:
            self.violations.append(f"{BLIND:g} s after a restore the nodes are not known")
            self.is_known = True  # report it once

    # --- checks of dynsched's writes, at the moment they are stored ---

    def _judge(self, change: StoreChange) -> None:
        entry, previous = change.entry, change.previous
        is_gone = change.type is ChangeType.DELETED
        before = self._carried.pop(entry.name, _NOTHING)
        after = _NOTHING if is_gone else _carried(entry)
        if after.parts:
            self._carried[entry.name] = after
        if is_gone or self._is_others or previous is None:
            return
        mark = self.rules().mark
        had, has = before.is_mark(mark), after.is_mark(mark)
        self.happened["writes by dynsched"] += 1
        self.happened["marks put"] += has and not had
        self.happened["marks taken back"] += had and not has
        if not self.is_pruned:
            self._check_strays(entry.name, before, after)
        if _foreign(entry) != _foreign(previous):
            self.violations.append(f"{entry.name}: foreign content was changed")
        if has and not had and self.is_known:
            self._check_cap(entry.name)
        lease = self.server.store.get(LEASES, "default", "dynsched")
        holder = lease.decode()["spec"].get("holderIdentity") if lease else None
        # A restore brings back an old Lease; the current holder notices at its next renewal.
        is_restored = time.monotonic() - self._restored_at < LEASE.write_for
        if self.is_led() or (holder != IDENTITY and not is_restored):
            self.violations.append(f"{entry.name}: written while {holder} holds the Lease")

    def _check_strays(self, name: str, before: Carried, after: Carried) -> None:
        """Check that dynsched lets strays stay, and makes none: a record that proves something to
        be dynsched's stays at least as long.
        """
        old, new = (each.strays(self.rules().mark) for each in (before, after))
        self.violations += [f"{name}: {part} was removed" for part in old - after.parts]
        self.violations += [f"{name}: {part} lost its record" for part in new - old]

    def _check_cap(self, name: str) -> None:
        """Check the cap, which depends on the nodes that dynsched's decision was based on."""
        count = len(self.marked())
        if count > (room := _room(self.rules(), self.seen)):
            self.violations.append(f"{name}: {count} marks, cap {room}")

    def marked(self) -> set[str]:
        """The marked nodes. Strays do not count."""
        mark = self.rules().mark
        return {name for name, carried in self._carried.items() if carried.is_mark(mark)}

    def left_by_prune(self, mark: Mark) -> dict[str, frozenset[str]]:
        """What `dynsched prune` with this ``mark`` has to leave, by node: labels and taints of
        older rules that no record names.
        """
        return {
            name: carried.parts - {*mark.texts} - carried.recorded
            for name, carried in self._carried.items()
        }

    def judge_the_prune(self, expected: Mapping[str, frozenset[str]]) -> None:
        """Add a violation for each node that has anything else of dynsched than ``expected``."""
        for entry in self.entries():
            annotations = entry.decode()["metadata"].get("annotations", {})
            left = _carried(entry).parts | (annotations.keys() & {keys.EVIDENCE_ANNOTATION})
            if left != expected.get(entry.name, frozenset()):
                self.violations.append(f"{entry.name}: after prune it has {sorted(left)}")


def _carried(entry: Entry) -> Carried:
    node = node_of(entry.decode())
    assert node is not None
    label = f"status={node.labels.get('status')}"
    taints = (f"{each['key']}={each.get('value')}:{each['effect']}" for each in node.taints)
    record = read_record(node)
    return Carried(_ours((label, *taints)), _ours(record.mark.texts if record else ()))


def _ours(texts: Iterable[str | None]) -> frozenset[str]:
    found = {*texts}
    return frozenset(each for each in _OURS if each in found)  # no new strings: many are kept


def _room(rules: RuleSet, nodes: Mapping[str, Node]) -> int:
    """Maximum number of marks on these nodes."""
    eligible = sum(
        why_ineligible(node, rules.nodes) is None and mark_state(node, rules.mark).conflict is None
        for node in nodes.values()
    )
    return count_of(rules.guard.max_marked, eligible)


def _address(number: int) -> str:
    """The InternalIP that `make_node` gives the node."""
    high, low = divmod(number % 50_000 + 1, 250)
    return f"10.0.{high}.{low}"


def _described(entry: Entry) -> dict[str, Any]:
    body = entry.decode()
    for key in ("resourceVersion", "managedFields"):
        del body["metadata"][key]
    body["spec"].setdefault("taints", [])
    return body


def _foreign(entry: Entry) -> dict[str, Any]:
    """The node without dynsched's label, annotation and taint."""
    body = _described(entry)
    labels, annotations = body["metadata"]["labels"], body["metadata"].get("annotations", {})
    if f"status={labels.get('status')}" in _OURS:
        del labels["status"]
    annotations.pop(keys.EVIDENCE_ANNOTATION, None)
    taints = body["spec"]["taints"]
    body["spec"]["taints"] = [each for each in taints if each["key"] != keys.EVIDENCE_ANNOTATION]
    return body
