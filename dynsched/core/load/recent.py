"""Pods that were bound or ended recently, which no load metric shows yet.

A metric is an average over its range, and is scraped at intervals: a node that received ten pods
five seconds ago still looks cool, and one that lost ten still looks hot. This module stores these
pods, keyed by UID. `expected` computes what they mean for the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dynsched.core.load.pods import BoundPod, PodChange, RecentPod
from dynsched.core.nodes import Node

WINDOW: Final = 60.0
"""Minimum seconds for which a change is stored. An assumed pod whose binding is never observed also
counts for this long."""
TO_START: Final = 30.0
"""Seconds for which a pod counts before any of its containers starts. It counts again once one
does. Without this limit, pods that never start would keep a node's expected load high."""
MAX_PODS: Final = 50_000
"""Maximum number of pods that are stored; the oldest are dropped first."""


class _Entry(NamedTuple):
    pod: BoundPod
    bound: float | None
    ended: float | None = None
    started: bool = False

    @property
    def at(self) -> float:
        """When the pod was bound or started, or when it ended."""
        at = self.bound if self.ended is None else self.ended
        return 0.0 if at is None else at

    def counts(self, now: float) -> bool:
        """Whether the pod counts: it runs, may be about to run, or has ended."""
        if self.started or self.pod.assumed or self.bound is None or self.ended is not None:
            return True
        return now - self.bound < TO_START


class RecentPods:
    """The pods that were bound or ended in the last ``window`` seconds.

    ``window`` may be changed at any time; ``most`` limits the memory. Times are seconds of any
    monotonic clock.
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
        """Store a pod that was bound, or is assumed to be.

        A pod that is already stored keeps its time, and its requests are updated. The time of an
        assumed pod restarts when its binding is observed. An assumed binding never replaces an
        observed one.
        """
        known = self._find(pod.uid, now)
        if known is None:
            self._put(_Entry(pod, now))
            self._report(PodChange(pod, 1))
            return
        if known.ended is not None or known.pod == pod or (pod.assumed and not known.pod.assumed):
            return
        self._report(PodChange(known.pod, -1), PodChange(pod, 1))
        if known.pod.assumed and not pod.assumed:
            self._put(known._replace(pod=pod, bound=now))
        else:
            self._entries[pod.uid] = known._replace(pod=pod)

    def start(self, uid: str, now: float) -> None:
        """Note that the first container of a pod started: from now on it uses resources."""
        known = self._entries.get(uid)
        if known is None or known.started or known.ended is not None or known.pod.assumed:
            return
        self._put(known._replace(bound=now, started=True))

    def end(self, pod: BoundPod, now: float) -> None:
        """Note that a pod finished or was deleted, and no longer uses resources."""
        known = self._find(pod.uid, now)
        if known is None:
            self._put(_Entry(pod, None, now))
            self._report(PodChange(pod, -1, is_recent=False))
        elif known.pod.assumed:  # its binding was missed: do not subtract its use
            self.remove(pod.uid)
        elif known.ended is None:
            self._put(known._replace(ended=now))
            self._report(PodChange(known.pod, -1))

    def never_ran(self, uid: str) -> None:
        """Forget a pod that is gone and none of whose containers ever ran.

        This is not reported as a change: part of the load that it counted has already faded, and a
        change would subtract all of it until loads are computed again.
        """
        self._entries.pop(uid, None)

    def remove(self, uid: str) -> None:
        """Forget a pod as if it had never been on its node."""
        known = self._entries.pop(uid, None)
        if known is not None and known.ended is None:
            self._report(PodChange(known.pod, -1))

    def follow(self, nodes: Mapping[str, Node]) -> None:
        """Forget the pods of nodes that were deleted or replaced since the last call.

        Pods of a node that was never seen stay, because the pod watch can be ahead of the node
        watch.
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
        """The recent pods. Their ages are as of ``ago`` seconds before ``now``; the age of a later
        event is negative.

        Pods that have waited long for their start are left out. Assumed pods whose binding should
        have been observed by now are removed.
        """
        # Expiry is not reported as a change: by then the metrics show the pod.
        since = now - self.window
        self._entries = {uid: each for uid, each in self._entries.items() if each.at > since}
        late = [
            uid
            for uid, entry in self._entries.items()
            if entry.pod.assumed and entry.bound is not None and now - entry.bound >= WINDOW
        ]
        # Reported as a change, so that no reader subtracts the pod again if it is bound later.
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
        """The seconds since pods were bound, and since they ended, keyed by ``namespace/name``.

        If several pods have the same name, the most recent one counts.
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
        """The changes after number ``sequence``, in order, as far as they are still stored."""
        skipped = max(0, sequence - self._journal_begins)
        return list(islice(self._journal, skipped, None))

    @property
    def sequence(self) -> int:
        """The number of the last change, for `changes_after`."""
        return self._journal_begins + len(self._journal)

    def _report(self, *changes: PodChange) -> None:
        for change in changes:
            if len(self._journal) == self._most:
                self._journal.popleft()
                self._journal_begins += 1
            self._journal.append(change)

    def forget_changes(self, sequence: int) -> None:
        """Drop the changes up to number ``sequence``, which nobody reads again."""
        while self._journal and self._journal_begins < sequence:
            self._journal.popleft()
            self._journal_begins += 1

    def _find(self, uid: str, now: float) -> _Entry | None:
        """The entry of a pod, unless it has expired."""
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.at > now - self.window else None

    def _put(self, entry: _Entry) -> None:
        """Store an entry as the latest one. Above the limit the oldest entry is dropped."""
        self._entries.pop(entry.pod.uid, None)
        self._entries[entry.pod.uid] = entry
        if len(self._entries) > self._most:
            del self._entries[next(iter(self._entries))]


def newly_bound(changes: Sequence[PodChange]) -> list[str]:
    """The node of each pod whose binding was observed, from the changes of `RecentPods`.

    Assumed pods do not count, nor do pods whose requests were corrected, which appear as one pod
    less and one more.
    """
    found, corrected = [], ""
    for pod, sign, _ in changes:
        if sign < 0:
            corrected = "" if pod.assumed else pod.uid
        elif not pod.assumed and pod.uid != corrected:
            found.append(pod.node)
    return found
