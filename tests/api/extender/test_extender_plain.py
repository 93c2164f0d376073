"""The extender's answers are those of a plain one: names as strings, loads in a dict, one candidate
after the other. Whatever the order, with names that are there twice or that nobody knows, and with
pods that are bound between two questions.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from extender_support import ROOM, RULES, ask
from hypothesis import given
from hypothesis import strategies as st
from plain_score import PlainScorer, plain_ties
from properties import steady
from snapshots import NOON, Scene

from dynsched.api.extender.answers import Extender
from dynsched.api.extender.scoring import ScoringSnapshot
from dynsched.engine.load.expected import KnownPods
from dynsched.engine.load.recent import RecentPods
from dynsched.engine.model import Node
from dynsched.engine.placing.score import FreshPods, load_refusals, node_loads, weighted_profile
from dynsched.engine.pod_values import BoundPod
from dynsched.engine.snapshot import Snapshot

LONG = "a-very-long-name" * 15
STRANGE = [
    'with "quotes"',
    "back\\slash",
    "é",
    "\u2028",
    'a","b',
    "\x7f",
    "nul\0",
    "",
    LONG[:-1],
    "x" * 300,
]
SCHEDULERS = ["default-scheduler", "mem-real-usage-scheduler"]


class Plain:
    """What the extender answers, worked out in the plainest way."""

    def __init__(self) -> None:
        self.bound = RecentPods()

    def take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.refused = load_refusals(snapshot)

    def loads(self, scheduler: str) -> dict[str, int]:
        weighed = weighted_profile(self.snapshot.rule_set, scheduler)
        loads = node_loads(self.snapshot.nodes, weighed)
        fresh = {name: FreshPods(weighed) for name in loads}
        for change in self.bound.changes_after(self.snapshot.pods.sequence):
            if change.pod.node in loads:
                fresh[change.pod.node].count(change, self.snapshot.uses, ROOM)
        return {name: fresh[name].add_to(load, ROOM) for name, load in loads.items()}

    def prioritize(self, names: Sequence[str], scheduler: str, uid: str, now: float) -> Any:
        every = self.loads(scheduler)
        loads = [every.get(name) for name in names]
        method = weighted_profile(self.snapshot.rule_set, scheduler).method
        scores = PlainScorer(method).score(loads)
        best = plain_ties(scores, loads)
        if best is not None:
            self.bound.add(BoundPod(uid, names[best], assumed=True), now)
        pairs = zip(names, loads, strict=True)
        return [{"Host": name, "Score": scores[load]} for name, load in pairs]

    def filter(self, names: Sequence[str]) -> Any:
        stopped = [name for name in names if name in self.refused]
        few = len(stopped) <= 8
        reasons = {
            name: self.refused[name].long if few else self.refused[name].short for name in stopped
        }
        return {
            "Nodes": None,
            "NodeNames": [name for name in names if name not in self.refused],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": reasons,
            "Error": "",
        }


class Both:
    """The extender and the plain one, in the same world of 40 nodes."""

    def __init__(self, seed: int, count: int = 40) -> None:
        self.chance = random.Random(seed)
        self.names = [f"node-{number}.eu" for number in range(count)] + [LONG, "é", 'q"']
        self.nodes = {name: Node(name, allocatable=ROOM) for name in self.names}
        self.scene = Scene(RULES, self.nodes.values())
        self.now = 1000.0
        self.plain = Plain()
        self.bound = RecentPods()
        self.extender = Extender(
            nodes=lambda: self.nodes,
            synced=lambda: True,
            rules=lambda: self.scene.rule_set.extender,
            clock=lambda: self.now,
            bound=self.bound,
        )
        self.readings: ScoringSnapshot | None = None
        self.list = self.names
        self.tick()

    def tick(self) -> None:
        def some() -> dict[str, float]:
            return {
                name: self.chance.uniform(0, 99)
                for name in self.names
                if self.chance.random() > 0.1
            }

        at = NOON + self.now
        pods = KnownPods(recent=self.bound.pods(self.now), sequence=self.bound.sequence)
        snapshot = self.scene.tick(at, pods=pods, node_cpu=some(), node_mem_usage=some())
        self.readings = ScoringSnapshot(snapshot, self.readings)
        self.extender.take(self.readings)
        self.plain.take(snapshot)

    def bind(self) -> None:
        pod = BoundPod(str(self.chance.random()), self.chance.choice([*self.names, "gone"]))
        for pods in (self.bound, self.plain.bound):
            pods.add(pod, self.now)

    def ask(self, *, compact: bool) -> None:
        names = self.list
        scheduler = self.chance.choice(SCHEDULERS)
        uid = str(self.chance.random())
        asked = ask(names, scheduler)
        asked["Pod"]["metadata"]["uid"] = uid
        body = json.dumps(
            asked,
            separators=(",", ":") if compact else None,
            ensure_ascii=self.chance.random() < 0.5,
        ).encode()
        found = self.extender.filter(body)
        assert json.loads(found) == self.plain.filter(names)
        expected = self.plain.prioritize(names, scheduler, uid, self.now)
        assert json.loads(self.extender.prioritize(body)) == expected

    def other_names(self, kind: str) -> None:
        names, chance = self.list, self.chance
        middle = chance.randrange(len(names) + 1)
        some = [*names, *chance.choices([*STRANGE, "node-1", "node-1.eu2"], k=3)]
        self.list = {
            "rotated": names[middle:] + names[:middle],
            "shuffled": chance.sample(names, len(names)),
            "twice": names + chance.choices(self.names, k=5),
            "unknown": chance.sample(some, len(some)),
            "fewer": names[:middle],
            "all": self.names,
        }[kind]


KINDS = ["rotated", "shuffled", "twice", "unknown", "fewer", "all"]


@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(["tick", "bind", "ask", "ask", "ask indented", *KINDS]), max_size=15),
)
@steady(60)
def test_answers_are_those_of_a_plain_extender(seed: int, steps: list[str]) -> None:
    both = Both(seed)
    for step in [*steps, "ask", "tick", "ask", "bind", "ask", "ask indented"]:
        both.now += 0.01
        if step == "tick":
            both.tick()
        elif step == "bind":
            both.bind()
        elif step.startswith("ask"):
            both.ask(compact=step == "ask")
        else:
            both.other_names(step)


def test_many_candidates_in_any_order() -> None:
    """More than are looked up in one step, and more than are assumed anywhere."""
    both = Both(7, count=9000)
    both.ask(compact=True)
    for kind in ("shuffled", "unknown", "twice"):
        both.other_names(kind)
        both.bind()
        both.ask(compact=True)
