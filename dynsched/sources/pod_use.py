"""Queries for the expected load: what pods use, and how often nodes are scraped."""

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
"""Up to this number of running pods the use of each is queried; beyond it, the use of new pods and
the means of workloads."""
EVERY: Final = 60.0
EVERY_OF_MANY: Final = 300.0
"""Seconds between two rounds of queries, with up to MOST_PODS pods and with more."""
EVERY_OF_RECENT: Final = 10.0
"""Seconds between two queries of new pods and of pods that have just ended."""
MOST_NAMED: Final = 2_000
"""Pods that one query names, the latest ones: some 100 kB."""
SCRAPES_OVER: Final = 600.0
"""Seconds over which scrapes are counted."""
Ask = Callable[[str], Awaitable[Sequence[Sample] | None]]
"""An expression -> samples; None when the query failed."""

YOUNGEST: Final = 5.0
OLDEST: Final = 180.0
"""Age in seconds of a new container at its last scrape, at least and at most."""
RANGE: Final = "5m"
"""The range of the queries of use."""
_MOST: Final[Mapping[str, float]] = {"cpu": 4096.0, "memory": 2.0**50}
"""Cores and bytes, more than any machine has. A larger value is an error of the target: it must not
count in the mean of a workload, and so in each new pod of it.
"""
KUBELET_JOB: Final = "(?i).*(kubelet|cadvisor).*"
"""The names of the jobs that scrape kubelets in all common installations. Any other target may
claim to have series of any pod."""
KUBELETS: Final = f',job=~"{KUBELET_JOB}"'
_CPU: Final = "container_cpu_usage_seconds_total"
_MEMORY: Final = "container_memory_working_set_bytes"
_STARTED: Final = "container_start_time_seconds"
_CONTAINER: Final = "namespace, pod, container"
_KEYS: Final = f"{_CONTAINER}, id, instance"
"""One container on one node: the resource endpoint has no id, and the next pod of a StatefulSet's
name may be on another node."""


def _series(metric: str, more: str) -> str:
    return f'{metric}{{container!="",pod!=""{more}}}'


def _of_pods(each: str) -> str:
    """``max``, because two Prometheus servers may scrape the same kubelet, and a kubelet has each
    value twice: cAdvisor's series have the label cpu, those of the resource endpoint do not.
    """
    return f"sum by (namespace, pod) (max by ({_CONTAINER}) (sum without (cpu) ({each})))"


def of_pod(resource: str, more: str = "") -> str:
    """The use of each pod, by the series that ``more`` matchers select. ``rate`` would divide by
    the whole range: a pod that is one minute old would count a fifth. ``deriv`` is the slope of the
    samples that there are; it is below 0 where a restarted container has no series of its own.

    A container that has ended (an init container, or the one before a restart) has samples in the
    range for minutes. Its start time is gone: kubelets expose that one without a timestamp, so
    Prometheus knows when it ends. Where no container of a pod runs, all count with their last use.
    """
    each = _series(_MEMORY, more)
    if resource == "cpu":
        each = f"deriv({_series(_CPU, more)}[{RANGE}]) >= 0"
    running = f"{each} and on ({_KEYS}) {_series(_STARTED, more)}"
    return f"({_of_pods(running)} or {of_ended_pod(resource, more)})"


def of_new_pod(resource: str, more: str = "") -> str:
    """The use of new pods: their CPU time divided by their age, which needs one scrape only. The
    ``max by`` makes one series of each container: a duplicate must not fail the query.
    """
    measured = _series(_MEMORY if resource == "memory" else _CPU, more)
    started = f"max by ({_KEYS}) ({_series(_STARTED, more)})"
    # The kubelet may have taken the sample long before it was scraped.
    taken = f"max by ({_KEYS}, cpu) (timestamp({measured}))"
    age = f"({taken} - on ({_KEYS}) group_left () {started} > {YOUNGEST:g} < {OLDEST:g})"
    value = f"max by ({_KEYS}, cpu) ({measured})"
    return _of_pods(f"{value} {'and' if resource == 'memory' else '/'} {age}")


def of_ended_pod(resource: str, more: str = "") -> str:
    """The last use of pods that have ended, from their last two scrapes."""
    if resource == "memory":
        return _of_pods(f"last_over_time({_series(_MEMORY, more)}[{RANGE}])")
    return _of_pods(f"irate({_series(_CPU, more)}[{RANGE}])")


def _named(pods: Sequence[str]) -> str:
    """The matcher for ``namespace/name``. It is rare that two namespaces have a pod of one name."""
    names = "|".join(pod.partition("/")[2].replace(".", "\\\\.") for pod in pods[-MOST_NAMED:])
    return f',pod=~"{names}"'


class LastUses:
    """The last use of each pod that was in an answer of this round or the one before. The use of a
    pod that has ended is needed, and not every answer has it.
    """

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._since: dict[str, float] = {}

    def begin_round(self) -> None:
        """Forget the pods that were in no answer of the round that ends."""
        self._before, self._since = self._since, {}

    def add(self, uses: Mapping[str, float]) -> dict[str, float]:
        """All known uses, with those of one more answer."""
        self._since.update(uses)
        return {**self._before, **self._since}


class PodUseSource:
    """The answers, named as in `KnownPods`. Uses are in cores or bytes.

    ``of_workloads``: by resource and workload, the mean use of a pod. ``of_pods``: by resource and
    pod (`LastUses`). ``of_ended``: the last use of pods that ended. ``cpu_by_age``: by new pod,
    where pods use more at their start. ``scrape_intervals``: by rule, in seconds. ``reaches``: by
    rule, for expressions that only the server reads.
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
        """Query until ``stop`` is set. ``running``: the number of running pods, if it is known."""
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
                # Nothing depends on it, so that a defect here must not end the process.
                logger.exception("what pods use could not be asked for")
            await pause(stop, EVERY_OF_RECENT)

    async def query_recent(self, bound: Mapping[str, float], ended: Mapping[str, float]) -> None:
        """The use of new pods, and the last use of those that ended. Both: by ``namespace/name``,
        with the seconds since then. New pods count in a workload's mean only where it has no older
        ones, which say more than the first seconds of a pod.
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
            # Again soon after an end: what is known may be of an earlier pod with the same name.
            just = 2 * EVERY_OF_RECENT
            if unknown := [name for name, ago in ended.items() if name not in known or ago < just]:
                expr = of_ended_pod(resource, self._jobs + _named(unknown))
                found = await self._uses(f"the {resource} of pods that ended", expr, resource) or {}
                known |= {name: found[name] for name in unknown if name in found}
            self.of_ended = {**self.of_ended, resource: known}

    def _follow(
        self, means: Mapping[str, float], bound: Mapping[str, float], ended: Collection[str]
    ) -> dict[str, float]:
        """The use of new pods since the scrape before the last one. Empty where new pods do not use
        more at their start: there, a pod whose use falls is one on a node that is full.
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
        """One round. Where a query fails, its last values stay."""
        rules = [rule for rule in self._rule_set().rules if rule.source == "prometheus"]
        if rules:
            await self._prometheus.ask_clock()
        resources = {rule.resource for rule in rules if rule.resource}
        self._means = {name: each for name, each in self._means.items() if name in resources}
        if resources:
            expr = f"count({_series(_CPU, KUBELETS)})"
            if await self._samples("the kubelets' series", expr):
                self._jobs = KUBELETS  # for good: other jobs must not count while these are down
        for resource in sorted(resources):
            expr = of_pod(resource, self._jobs)
            what = f"the {resource} of pods"
            uses = await self._uses(what, expr, resource) if each_pod else None
            self._last_uses[resource].begin_round()
            self._add(resource, uses or {})
            if uses is None:
                of_workloads = _by_workload(f"{expr} <= {_MOST[resource]:.0f}")
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
        # By the expression: after a reload a rule of the same name may have another one.
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
        """By ``namespace/`` and the value of ``label``."""
        samples = await self._samples(what, expr)
        if samples is None:
            return None
        return {
            f"{one.labels.get('namespace', '')}/{one.labels.get(label, '')}": one.value
            for one in samples
            if 0 <= one.value <= _MOST[resource]
        }

    async def _samples(self, what: str, expr: str) -> Sequence[Sample] | None:
        answer = await self._prometheus.query_expr(expr)
        if answer.error is not None:
            if self._logged.is_new(what, answer.error):
                text = "the expected load is worked out without %s: %s"
                logger.info(text, what, answer.error)
            return None
        return answer.samples


def _means_of_workloads(uses: Mapping[str, float]) -> dict[str, float]:
    """The mean use of a pod by workload. ``uses``: by ``namespace/name`` of the pod."""
    found: dict[str, list[float]] = {}
    for name, use in uses.items():
        found.setdefault(workload_of(*name.split("/", 1)), []).append(use)
    return {workload: fmean(each) for workload, each in found.items()}


def _by_workload(of_pod: str) -> str:
    """The mean use of each workload's pods. A pod without a controller is a workload by itself."""
    named = f'label_replace({of_pod}, "workload", "$1", "pod", "(.*)")'
    by_controller = f'label_replace({named}, "workload", "$1", "pod", "{POD_NAME}")'
    return f"avg by (namespace, workload) ({by_controller})"


async def scrape_interval(ask: Ask, rule: Rule) -> float | None:
    """In seconds, of the target that has the same node label as the rule's first sample."""
    samples = await ask(rule.expr or "")
    labels = samples[0].labels if samples else {}
    label = next((each for each in rule.node_labels if each in labels), None)
    if label is None:
        return None
    # kube-prometheus scrapes /metrics/slis every 5 s; it has no load metrics.
    node = f'{label_name(label)}="{escaped(labels[label])}"'
    target = f'up{{{node},metrics_path!="/metrics/slis"}}'
    over = f"{SCRAPES_OVER:.0f}s"
    # A younger target has few scrapes within the time, whatever its interval is.
    found = await ask(f"max(count_over_time({target}[{over}]) and {target} offset {over})")
    counts = [sample.value for sample in found or () if sample.value > 1]
    return SCRAPES_OVER / counts[0] if counts else None
