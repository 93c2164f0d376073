"""What is asked of Prometheus for the page alone: what pods request on each node, which pods use
more than they request, and how hot the last days were.

Nothing is asked while nobody looks at the page, and nothing more often because many do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from dynsched.engine.message_kind import LoggedKinds
from dynsched.engine.model import Node, Sample
from dynsched.engine.overload import DAYS, Overload, day_of, name_of
from dynsched.engine.pod_facts import AboveRequest
from dynsched.rules.rule_set import RuleSet
from dynsched.sources import page_queries as queries
from dynsched.sources.pod_use import EVERY
from dynsched.sources.prometheus import PrometheusSource
from dynsched.util.stopping import pause, unless_stopped

logger = logging.getLogger(__name__)

RARELY: Final = 3600.0
"""Seconds until it is asked again for the shares of whole days."""
_MAX_PERCENT: Final = 1000.0
HOTTEST: Final = 100
"""Nodes whose pods are asked for: the hottest."""
_POLL: Final = 2.0
"""Seconds between two checks whether a page is open."""


class Board(Protocol):
    """What shows it. ``requested`` and ``above`` as of `dynsched.api.page.facts.PageFacts`."""

    requested: Mapping[str, Mapping[str, int]]
    above: Mapping[str, Sequence[AboveRequest]] | None
    overload: Overload

    @property
    def is_looked_at(self) -> bool: ...

    def hottest(self, most: int) -> list[str]: ...


class PageFactsSource:
    """Asks, and hands the answers to ``board``. What fails keeps what was known.

    ``nodes``: by name. ``namespace``: that of this process; of several dynsched in one Prometheus,
    its own counts.
    ``clock`` gives Unix seconds, ``monotonic`` seconds that never go back.
    """

    def __init__(
        self,
        prometheus: PrometheusSource,
        board: Board,
        *,
        rule_set: Callable[[], RuleSet],
        nodes: Callable[[], Mapping[str, Node]],
        namespace: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prometheus = prometheus
        self._board = board
        self._rule_set = rule_set
        self._nodes = nodes
        self._namespace = namespace
        self._clock = clock
        self._monotonic = monotonic
        self._told = LoggedKinds()
        self._due: dict[Callable[[], Awaitable[float]], float] = dict.fromkeys(
            (self._ask_requested, self._ask_above, self._ask_overload), -math.inf
        )

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._board.is_looked_at:
                await unless_stopped(stop, self.ask())
            await pause(stop, _POLL)

    async def ask(self) -> None:
        """Ask for what is due, one after the other."""
        for part, due in self._due.items():
            now = self._monotonic()
            if now < due:
                continue
            self._due[part] = now + EVERY
            try:
                self._due[part] = now + await part()
            except Exception:
                # Nothing depends on it, so that a defect here must not end the process.
                logger.exception("what the page shows could not be asked for")

    # Each part returns after how many seconds it is due again.

    async def _ask_requested(self) -> float:
        rules = self._rule_set().file_rules
        resources = sorted({rule.resource for rule in rules if rule.resource and rule.rises})
        found: dict[str, Mapping[str, int]] = {}
        nodes = self._nodes()
        for resource in resources:
            samples = await self._samples(f"requests of {resource}", queries.requested(resource))
            if samples is None:
                found[resource] = self._board.requested.get(resource, {})
            elif samples:
                found[resource] = _percent(samples, resource, nodes)
        self._board.requested = found
        return EVERY

    async def _ask_above(self) -> float:
        names = self._board.hottest(HOTTEST)
        if not names:
            return _POLL
        above: dict[str, list[AboveRequest]] = {name: [] for name in names}
        is_known = False
        for resource in queries.USES:
            what = f"pods above their requests of {resource}"
            samples = await self._samples(what, queries.above(resource, names))
            if samples is None:
                return EVERY
            is_known = is_known or bool(samples)
            for sample in samples:
                of_node = above.get(sample.labels.get("node", ""))
                if of_node is not None and math.isfinite(sample.value):
                    pod = f"{sample.labels.get('namespace', '')}/{sample.labels.get('pod', '')}"
                    of_node.append(AboveRequest(pod, resource, sample.value))
        for of_node in above.values():
            of_node.sort(key=lambda pod: (pod.resource, -pod.above))
        self._board.above = above if is_known else None
        return EVERY

    async def _ask_overload(self) -> float:
        now = self._clock()
        samples = await self._samples("overload by day", queries.overload(now))
        by_day: dict[str, dict[str, float]] = defaultdict(dict)
        for sample in samples or ():
            if 0 <= sample.value <= 1:
                labels = sample.labels
                by_day[labels.get("day", "")][labels.get("namespace", "")] = sample.value
        days = {name_of(day): day for day in range(day_of(now) - DAYS + 1, day_of(now) + 1)}
        own = {days[name]: self._own(by_day[name]) for name in by_day.keys() & days.keys()}
        self._board.overload.set_known_shares(
            {day: share for day, share in own.items() if share is not None}, now
        )
        return EVERY if samples is None else RARELY

    def _own(self, shares: Mapping[str, float]) -> float | None:
        """By namespace: of several dynsched in one Prometheus this one's, or of the only one."""
        if len(shares) == 1:
            return next(iter(shares.values()))
        return shares.get(self._namespace)

    async def _samples(self, what: str, expr: str) -> Sequence[Sample] | None:
        answer = await self._prometheus.query_expr(expr, "node")
        if answer.error is not None:
            self._tell(what, answer.error)
            return None
        self._told.forget(what)
        return answer.samples

    def _tell(self, what: str, error: str) -> None:
        if self._told.is_new(what, error):
            logger.info("the page lacks %s: %s", what, error)


def _percent(samples: Iterable[Sample], resource: str, nodes: Mapping[str, Node]) -> dict[str, int]:
    """Of what each node can give. Whole numbers and names that are known already: at 5,000 nodes
    this is half a megabyte for both resources.
    """
    found = {}
    for sample in samples:
        node = nodes.get(sample.labels.get("node", ""))
        capacity = 0.0 if node is None else node.allocatable.get(resource, 0.0)
        if node is not None and capacity > 0 and math.isfinite(sample.value):
            found[node.name] = round(min(100 * sample.value / capacity, _MAX_PERCENT))
    return found
