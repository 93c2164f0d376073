"""Pods that were bound or ended a moment ago: no load metric shows that yet.

A metric is an average over its range, and is scraped now and then: a node that took ten pods five
seconds ago still looks cool, and one that lost ten still looks hot. `expected` works out what
follows for the load. Here the pods are remembered, each once by its uid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dynsched.core.load.pods import BoundPod, PodChange, RecentPod
from dynsched.core.nodes import Node

WINDOW: Final = 60.0
"""Seconds for which a change is remembered at least; and for which an assumed pod counts, if its
binding is never observed."""
TO_START: Final = 30.0
"""Seconds for which a pod counts of which no container has started; it counts again from its start
on. Without this, pods that are never started would hold a node's load up."""
MAX_PODS: Final = 50_000
"""Pods that are remembered at most; beyond it the oldest are forgotten first."""


class _Entry(NamedTuple):
    pod: BoundPod
    bound: float | None
    ended: float | None = None
    started: bool = False

    @property
    def at(self) -> float:
        """When something happened to the pod last."""
        at = self.bound if self.ended is None else self.ended
        return 0.0 if at is None else at

    def counts(self, now: float) -> bool:
        """Whether it runs, or may be about to; or has ended."""
        if self.started or self.pod.assumed or self.bound is None or self.ended is not None:
            return True
        return now - self.bound < TO_START


class RecentPods:
    """What happened to pods in the last ``window`` seconds, which may be changed at any time. Times
    are seconds of any one clock that does not go back; ``most`` bounds the memory.
    """

    def __init__(self, window: float = WINDOW, *, most: int = MAX_PODS) -> None:
        self.window = window
        self._most = most
        self._entries: dict[str, _Entry] = {}
        self._journal: deque[PodChange] = deque()
        self._journal_begins = 0
        self._nodes: Mapping[str, Node] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, pod: BoundPod, now: float) -> None:
        """A pod was bound, or is assumed to be. One that is known keeps its time, and may correct
        its requests; the time of one that was assumed begins with its binding. A binding that was
        observed is never overwritten by an assumed one.
        """
        known = self._find(pod.uid, now)
        if known is None:
            self._put(_Entry(pod, now))
            self._tell(PodChange(pod, 1))
            return
        if known.ended is not None or known.pod == pod or (pod.assumed and not known.pod.assumed):
            return
        self._tell(PodChange(known.pod, -1), PodChange(pod, 1))
        if known.pod.assumed and not pod.assumed:
            self._put(known._replace(pod=pod, bound=now))
        else:
            self._entries[pod.uid] = known._replace(pod=pod)

    def start(self, uid: str, now: float) -> None:
        """The first container of a pod was started: it uses something from now on."""
        known = self._entries.get(uid)
        if known is None or known.started or known.ended is not None or known.pod.assumed:
            return
        self._put(known._replace(bound=now, started=True))

    def end(self, pod: BoundPod, now: float) -> None:
        """A pod that ran on a node uses nothing more: it finished, or was deleted."""
        known = self._find(pod.uid, now)
        if known is None:
            self._put(_Entry(pod, None, now))
            self._tell(PodChange(pod, -1, is_recent=False))
        elif known.pod.assumed:  # its binding was missed, so its use is not to be taken off
            self.remove(pod.uid)
        elif known.ended is None:
            self._put(known._replace(ended=now))
            self._tell(PodChange(known.pod, -1))

    def never_ran(self, uid: str) -> None:
        """A pod is gone of which no container ever ran. That is no change: a part of its count
        has faded, and a change would take off all of it until loads are worked out again.
        """
        self._entries.pop(uid, None)

    def remove(self, uid: str) -> None:
        """As if it had never been on its node."""
        known = self._entries.pop(uid, None)
        if known is not None and known.ended is None:
            self._tell(PodChange(known.pod, -1))

    def follow(self, nodes: Mapping[str, Node]) -> None:
        """Forget the pods of nodes that were deleted or replaced since this was last called. A node
        that was never seen may be on its way: the watch of pods can be ahead of that of nodes.
        """
        before, self._nodes = self._nodes, nodes
        if before is nodes:
            return
        gone = {
            name
            for name in {entry.pod.node for entry in self._entries.values()} & before.keys()
            if name not in nodes or nodes[name].uid != before[name].uid
        }
        for uid in [uid for uid, entry in self._entries.items() if entry.pod.node in gone]:
            self.remove(uid)

    def pods(self, now: float, *, ago: float = 0.0) -> tuple[RecentPod, ...]:
        """All that is remembered, its ages as of ``ago`` seconds before ``now`` (negative for what
        happened since), without those that wait to be started for long, and without assumed pods
        whose binding should have come by now: these are removed.
        """
        # Forgetting is no change: by then the metrics show the pod.
        since = now - self.window
        self._entries = {uid: each for uid, each in self._entries.items() if each.at > since}
        late = [
            uid
            for uid, entry in self._entries.items()
            if entry.pod.assumed and entry.bound is not None and now - entry.bound >= WINDOW
        ]
        # With a change: who counted such a pod must not take it off again when it is bound later.
        for uid in late:
            self.remove(uid)
        then = now - ago
        return tuple(
            RecentPod(
                entry.pod,
                None if entry.bound is None else then - entry.bound,
                None if entry.ended is None else then - entry.ended,
            )
            for entry in self._entries.values()
            if entry.counts(now)
        )

    def names(self, now: float) -> tuple[dict[str, float], dict[str, float]]:
        """``namespace/name`` of those that were bound, and of those that ended; with the seconds
        since then, of several pods of a name the least.
        """
        bound: dict[str, float] = {}
        ended: dict[str, float] = {}
        for entry in self._entries.values():
            if entry.pod.name and not entry.pod.assumed:
                if entry.ended is not None:
                    ago = now - entry.ended
                    ended[entry.pod.name] = min(ago, ended.get(entry.pod.name, ago))
                elif entry.bound is not None:
                    bound[entry.pod.name] = now - entry.bound
        return bound, ended

    def changes_after(self, sequence: int) -> list[PodChange]:
        """What changed after the change of this number, in its order; as far as it is kept."""
        skipped = max(0, sequence - self._journal_begins)
        return list(islice(self._journal, skipped, None))

    @property
    def sequence(self) -> int:
        """The number of the last change, for `changes_after`."""
        return self._journal_begins + len(self._journal)

    def _tell(self, *changes: PodChange) -> None:
        for change in changes:
            if len(self._journal) == self._most:
                self._journal.popleft()
                self._journal_begins += 1
            self._journal.append(change)

    def forget_changes(self, sequence: int) -> None:
        """Up to the change of this number: nobody asks for them again."""
        while self._journal and self._journal_begins < sequence:
            self._journal.popleft()
            self._journal_begins += 1

    def _find(self, uid: str, now: float) -> _Entry | None:
        """What is remembered of a pod, unless it is to be forgotten by now."""
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.at > now - self.window else None

    def _put(self, entry: _Entry) -> None:
        """As the latest one. Above the limit the oldest entry is dropped."""
        self._entries.pop(entry.pod.uid, None)
        self._entries[entry.pod.uid] = entry
        if len(self._entries) > self._most:
            del self._entries[next(iter(self._entries))]


def newly_bound(changes: Sequence[PodChange]) -> list[str]:
    """The node of each pod whose binding was observed, of the changes of `RecentPods`. A pod that
    is only assumed to be bound does not count. Nor does one whose requests are corrected, which is
    reported as one pod less and one more.
    """
    found, corrected = [], ""
    for pod, sign, _ in changes:
        if sign < 0:
            corrected = "" if pod.assumed else pod.uid
        elif not pod.assumed and pod.uid != corrected:
            found.append(pod.node)
    return found
