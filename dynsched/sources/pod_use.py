"""Queries for the expected load: the use of pods, and the scrape intervals of rules."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final

from dynsched.core.load.lag import needs_reach
from dynsched.core.load.pods import POD_NAME, workload_of
from dynsched.core.load.recent import RecentPods
from dynsched.core.load.use_by_age import Counts, counted, start_factor, uses_of
from dynsched.core.samples import Sample
from dynsched.rules.promql import Reach
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.prometheus import PrometheusSource
from dynsched.util.formatting import escaped, label_name
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import pause, run_until_stopped

logger = logging.getLogger(__name__)

MOST_PODS: Final = 10_000
"""Up to this number of running pods, the use of each one is queried; above it, the means of
workloads. New and ended pods are always queried."""
EVERY: Final = 60.0
EVERY_OF_MANY: Final = 300.0
"""Seconds between two rounds of queries: with up to MOST_PODS pods, and with more."""
EVERY_OF_RECENT: Final = 10.0
"""Seconds between two queries for new pods and for pods that have just ended."""
MOST_NAMED: Final = 2_000
"""Maximum number of pods that a query names, the latest ones: about 100 kB."""
SCRAPES_OVER: Final = 600.0
"""Seconds over which scrapes are counted."""
Ask = Callable[[str], Awaitable[Sequence[Sample] | None]]
"""Queries an expression; None if the query failed."""

YOUNGEST: Final = 5.0
OLDEST: Final = 180.0
"""Minimum and maximum age, in seconds, of a new container at its last sample."""
RANGE: Final = "5m"
"""Range of the queries for use."""
_MAX_USE: Final[Mapping[str, float]] = {"cpu": 4096.0, "memory": 2.0**50}
"""Maximum use of a pod in cores and bytes, more than any machine has. A larger value is an error of
the target. It must not enter the mean of a workload, because that is assumed for each new pod.
"""
KUBELET_JOB: Final = "(?i).*(kubelet|cadvisor).*"
"""Matches the jobs that scrape kubelets in all common installations. Any other target could expose
series for any pod."""
KUBELETS: Final = f',job=~"{KUBELET_JOB}"'
_CPU: Final = "container_cpu_usage_seconds_total"
_MEMORY: Final = "container_memory_working_set_bytes"
_STARTED: Final = "container_start_time_seconds"
_CONTAINER: Final = "namespace, pod, container"
_KEYS: Final = f"{_CONTAINER}, id, instance"
"""Labels that identify a container on a node. The instance is needed because the resource endpoint
has no id, and a StatefulSet's next pod of the same name may be on another node."""


def _series(metric: str, more: str) -> str:
    return f'{metric}{{container!="",pod!=""{more}}}'


def _of_pods(each: str) -> str:
    """The sum of each pod's series. ``max`` removes duplicates: two Prometheus servers may scrape
    the same kubelet, and a kubelet exposes each value twice (cAdvisor's series have the label cpu,
    those of the resource endpoint do not).
    """
    return f"sum by (namespace, pod) (max by ({_CONTAINER}) (sum without (cpu) ({each})))"


def of_pod(resource: str, more: str = "") -> str:
    """Expression for the use of each pod; ``more`` are additional label matchers.

    ``rate`` would divide by the whole range, so a pod that is one minute old would count a fifth.
    ``deriv`` is the slope of the existing samples. It is negative if a restarted container
    continues the series of the previous one; such series are left out.

    A container that has ended (an init container, or the one before a restart) has samples in the
    range for minutes. Its start time disappears at once: kubelets expose it without a timestamp, so
    Prometheus marks it stale. If no container of a pod runs, all count with their last use.
    """
    each = _series(_MEMORY, more)
    if resource == "cpu":
        each = f"deriv({_series(_CPU, more)}[{RANGE}]) >= 0"
    running = f"{each} and on ({_KEYS}) {_series(_STARTED, more)}"
    return f"({_of_pods(running)} or {of_ended_pod(resource, more)})"


def of_new_pod(resource: str, more: str = "") -> str:
    """Expression for the use of new pods: their CPU time divided by their age, which needs only
    one scrape. ``max by`` leaves one series per container: a duplicate would fail the query.
    """
    measured = _series(_MEMORY if resource == "memory" else _CPU, more)
    started = f"max by ({_KEYS}) ({_series(_STARTED, more)})"
    # The kubelet may have taken the sample long before it was scraped.
    taken = f"max by ({_KEYS}, cpu) (timestamp({measured}))"
    age = f"({taken} - on ({_KEYS}) group_left () {started} > {YOUNGEST:g} < {OLDEST:g})"
    value = f"max by ({_KEYS}, cpu) ({measured})"
    return _of_pods(f"{value} {'and' if resource == 'memory' else '/'} {age}")


def of_ended_pod(resource: str, more: str = "") -> str:
    """Expression for the last use of ended pods: CPU from two samples, memory from one."""
    if resource == "memory":
        return _of_pods(f"last_over_time({_series(_MEMORY, more)}[{RANGE}])")
    return _of_pods(f"irate({_series(_CPU, more)}[{RANGE}])")


def _named(pods: Sequence[str]) -> str:
    """Matcher for pods given as ``namespace/name``. It ignores the namespace: two namespaces rarely
    have pods of the same name.
    """
    names = "|".join(pod.partition("/")[2].replace(".", "\\\\.") for pod in pods[-MOST_NAMED:])
    return f',pod=~"{names}"'


class LastUses:
    """The last use of each pod in the responses of this round and the one before. The use of ended
    pods is needed too, and not every response has it.
    """

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._since: dict[str, float] = {}

    def begin_round(self) -> None:
        """Forget the pods that were in no response of the round that ends."""
        self._before, self._since = self._since, {}

    def add(self, uses: Mapping[str, float]) -> dict[str, float]:
        """Add the uses of one response; returns all known uses."""
        self._since.update(uses)
        return {**self._before, **self._since}


class PodUseSource:
    """Queries the use of pods, and keeps the results that `KnownPods` needs.

    ``of_workloads``: mean use of a pod, by resource and workload. ``of_pods``: use of each pod, by
    resource and pod (`LastUses`). ``of_ended``: last use of ended pods, by resource and pod.
    ``cpu_by_age``: CPU times of new pods; empty unless pods use more at their start.
    ``scrape_intervals``: by rule, in seconds. ``reaches``: by rule, for expressions that only the
    server can parse. Uses are in cores or bytes.
    """

    def __init__(self, prometheus: PrometheusSource, rule_set: Callable[[], RuleSet]) -> None:
        self._prometheus = prometheus
        self._rule_set = rule_set
        self._logged = LoggedKinds()
        self._intervals: dict[str, float] = {}
        self._means: dict[str, Mapping[str, float]] = {}
        self.of_workloads: Mapping[str, Mapping[str, float]] = {}
        self.of_pods: Mapping[str, Mapping[str, float]] = {}
        self.of_ended: Mapping[str, Mapping[str, float]] = {}
        self._counts: Mapping[str, Counts] = {}
        self.cpu_by_age: Mapping[str, Counts] = {}
        self.start_factor = 1.0
        self._jobs = ""
        self._last_uses: defaultdict[str, LastUses] = defaultdict(LastUses)
        self.scrape_intervals: Mapping[str, float] = {}
        self.reaches: Mapping[str, Reach] = {}

    async def run(
        self, stop: asyncio.Event, running: Callable[[], int | None], recent: RecentPods
    ) -> None:
        """Query until ``stop`` is set. ``running`` returns the number of running pods, if known."""
        queried_at = -math.inf
        while not stop.is_set():
            number, now = running(), time.monotonic()
            each_pod = number is not None and number <= MOST_PODS
            try:
                if self._rule_set().uses_expected_load:
                    if now - queried_at >= (EVERY if each_pod else EVERY_OF_MANY):
                        queried_at = now
                        await run_until_stopped(stop, self.query(each_pod=each_pod))
                    await run_until_stopped(stop, self.query_recent(*recent.names(now)))
            except Exception:
                # The use of pods is optional, so a bug here must not end the process.
                logger.exception("the use of pods could not be queried")
            await pause(stop, EVERY_OF_RECENT)

    async def query_recent(self, bound: Mapping[str, float], ended: Mapping[str, float]) -> None:
        """Query the use of new pods and the last use of ended ones.

        ``bound`` and ``ended``: seconds since then, by ``namespace/name``. New pods count in a
        workload's mean only if it has no older ones: those predict more than the first seconds of a
        pod.
        """
        for resource, means in self._means.items():
            if bound:
                expr = of_new_pod(resource, self._jobs + _named(list(bound)))
                of_new = await self._uses(f"the {resource} of new pods", expr, resource)
                if of_new is not None:
                    if resource == "cpu":
                        of_new |= self._follow(of_new, bound, ended)
                    both = {**_means_of_workloads(of_new), **means}
                    self.of_workloads = {**self.of_workloads, resource: both}
                    self._add(resource, of_new)
            known = self.of_ended.get(resource, {})
            known = {name: known[name] for name in ended if name in known}
            # Query again soon after the end: a known use may be of an earlier pod of that name.
            just = 2 * EVERY_OF_RECENT
            if unknown := [name for name, ago in ended.items() if name not in known or ago < just]:
                expr = of_ended_pod(resource, self._jobs + _named(unknown))
                found = await self._uses(f"the {resource} of pods that ended", expr, resource) or {}
                known |= {name: found[name] for name in unknown if name in found}
            self.of_ended = {**self.of_ended, resource: known}

    def _follow(
        self, means: Mapping[str, float], bound: Mapping[str, float], ended: Collection[str]
    ) -> dict[str, float]:
        """The use of new pods between their last two scrapes. Empty unless new pods use more at
        their start: otherwise falling use means that the node is full.
        """
        before = self._counts
        of_ended = {name: before[name] for name in ended if name in before}
        found = counted(before, means, bound)
        self._counts = of_ended | found
        workloads = {name: workload_of(*name.split("/", 1)) for name in found}
        self.start_factor = start_factor(found, workloads, self._means["cpu"])
        self.cpu_by_age = self._counts if self.start_factor > 1 else {}
        return {name: uses_of(found[name])[-1] for name in found if name in self.cpu_by_age}

    async def query(self, *, each_pod: bool = False) -> None:
        """Run one round of queries. If a query fails, its last values are kept."""
        rules = [rule for rule in self._rule_set().expecting_rules if rule.source == "prometheus"]
        if rules:
            await self._prometheus.ask_clock()
        resources = {rule.resource for rule in rules if rule.resource}
        self._means = {name: each for name, each in self._means.items() if name in resources}
        if resources:
            expr = f"count({_series(_CPU, KUBELETS)})"
            if await self._samples("the kubelets' series", expr):
                self._jobs = KUBELETS  # permanent: other jobs must not count while these are down
        for resource in sorted(resources):
            expr = of_pod(resource, self._jobs)
            what = f"the {resource} of pods"
            uses = await self._uses(what, expr, resource) if each_pod else None
            self._last_uses[resource].begin_round()
            self._add(resource, uses or {})
            if uses is None:
                of_workloads = _by_workload(f"{expr} <= {_MAX_USE[resource]:.0f}")
                means = await self._uses(what, of_workloads, resource, "workload")
            else:
                means = _means_of_workloads(uses)
            if means is not None:
                self._means[resource] = means
                self.of_workloads = {**self.of_workloads, resource: means}
        for rule in rules:
            what = f"the scrape interval of rule {rule.name}"
            interval = await scrape_interval(partial(self._samples, what), rule)
            if interval is not None:
                self._intervals[rule.expr or ""] = interval
        # Keyed by expression: after a reload, a rule of the same name may have another one.
        self.scrape_intervals = {
            rule.name: self._intervals[expr]
            for rule in rules
            if (expr := rule.expr or "") in self._intervals
        }
        reaches = {
            rule.name: await self._prometheus.reach(rule.expr or "")
            for rule in rules
            if needs_reach(rule)
        }
        self.reaches = {name: reach for name, reach in reaches.items() if reach is not None}

    def _add(self, resource: str, uses: Mapping[str, float]) -> None:
        self.of_pods = {**self.of_pods, resource: self._last_uses[resource].add(uses)}

    async def _uses(
        self, what: str, expr: str, resource: str, label: str = "pod"
    ) -> dict[str, float] | None:
        """Values by ``namespace/`` and the value of ``label``; None if the query failed."""
        samples = await self._samples(what, expr)
        if samples is None:
            return None
        return {
            f"{one.labels.get('namespace', '')}/{one.labels.get(label, '')}": one.value
            for one in samples
            if 0 <= one.value <= _MAX_USE[resource]
        }

    async def _samples(self, what: str, expr: str) -> Sequence[Sample] | None:
        answer = await self._prometheus.query_expr(expr)
        if answer.error is not None:
            if self._logged.is_new(what, answer.error):
                text = "the expected load is calculated without %s: %s"
                logger.info(text, what, answer.error)
            return None
        return answer.samples


def _means_of_workloads(uses: Mapping[str, float]) -> dict[str, float]:
    """Mean use of a pod, by workload. ``uses``: by ``namespace/name`` of the pod."""
    found: dict[str, list[float]] = {}
    for name, use in uses.items():
        found.setdefault(workload_of(*name.split("/", 1)), []).append(use)
    return {workload: fmean(each) for workload, each in found.items()}


def _by_workload(of_pod: str) -> str:
    """Expression for the mean use of each workload's pods. A pod without a controller is a workload
    by itself.
    """
    named = f'label_replace({of_pod}, "workload", "$1", "pod", "(.*)")'
    by_controller = f'label_replace({named}, "workload", "$1", "pod", "{POD_NAME}")'
    return f"avg by (namespace, workload) ({by_controller})"


async def scrape_interval(ask: Ask, rule: Rule) -> float | None:
    """Seconds between scrapes of the target with the node label of the rule's first sample; None if
    unknown.
    """
    samples = await ask(rule.expr or "")
    labels = samples[0].labels if samples else {}
    label = next((each for each in rule.node_labels if each in labels), None)
    if label is None:
        return None
    # kube-prometheus scrapes /metrics/slis every 5 s; it has no load metrics.
    node = f'{label_name(label)}="{escaped(labels[label])}"'
    target = f'up{{{node},metrics_path!="/metrics/slis"}}'
    over = f"{SCRAPES_OVER:.0f}s"
    # Younger targets are left out: they have too few scrapes so far, whatever their interval.
    found = await ask(f"max(count_over_time({target}[{over}]) and {target} offset {over})")
    counts = [sample.value for sample in found or () if sample.value > 1]
    return SCRAPES_OVER / counts[0] if counts else None
