"""The formulas with which other load-aware schedulers score nodes, each from its own source.

Each docstring names the files and the commit that were read. Arguments are arrays by node unless
stated otherwise. A share is 0 to 1, and ``percent`` 0 to 100. Scores are 0 to 100, as in
kube-scheduler.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from closedloop.meters import Floats

Bools = NDArray[np.bool_]

BEST = 100.0
_TERMS = 250
"""Terms of the series below; the ratio of two successive terms is less than one."""


def _rounded(values: Floats) -> Floats:
    """Round halves up, as Go rounds non-negative numbers."""
    return np.floor(values + 0.5)


def target_load_packing(predicted: Floats, target: float = 40.0) -> Floats:
    """Trimaran TargetLoadPacking. ``predicted``: percent of CPU, including the pod.

    The score rises up to the target, where it is 100. Beyond it, it falls from the value of the
    target itself to 0 at 100 %.

    kubernetes-sigs/scheduler-plugins 903da7df, pkg/trimaran/targetloadpacking/targetloadpacking.go;
    defaults in apis/config/v1/defaults.go.
    """
    below = (BEST - target) * predicted / target + target
    beyond = target * (100 - predicted) / (100 - target)
    return _rounded(np.where(predicted > target, np.maximum(beyond, 0), below))


def risk_balancing(
    mean: Floats, deviation: Floats, margin: float = 1.0, sensitivity: float = 1.0
) -> Floats:
    """Trimaran LoadVariationRiskBalancing for one resource, not yet rounded.

    ``mean``, which includes the pod, and ``deviation`` are shares. The risk is half the sum of the
    mean and the (scaled) deviation.

    kubernetes-sigs/scheduler-plugins 903da7df, pkg/trimaran/loadvariationriskbalancing/analysis.go
    and pkg/trimaran/resourcestats.go.
    """
    sigma = np.clip(deviation, 0, 1)
    if sensitivity >= 0:
        sigma = sigma ** (1 / sensitivity) if sensitivity else np.where(sigma < 1, 0.0, 1.0)
    return BEST * (1 - (np.clip(mean, 0, 1) + np.clip(margin * sigma, 0, 1)) / 2)


def beta_below(alpha: Floats, beta: Floats, line: Floats) -> Floats:
    """The probability that a beta-distributed value is below ``line`` (0 to 1).

    It uses the power series of the incomplete beta function, on the side where it converges.
    """
    swap = line > (alpha + 1) / (alpha + beta + 2)
    a, b = np.where(swap, beta, alpha), np.where(swap, alpha, beta)
    x = np.where(swap, 1 - line, line)
    k = np.arange(_TERMS)[:, None]
    series = 1 + np.cumprod((a + b + k) / (a + 1 + k) * x, axis=0).sum(axis=0)
    gamma = np.vectorize(math.lgamma, otypes=[float])
    with np.errstate(divide="ignore"):  # log(0) gives a power of 0
        power = a * np.log(x) + b * np.log1p(-x)
    part: Floats = np.exp(gamma(a + b) - gamma(a + 1) - gamma(b) + power) * series
    return np.where(swap, 1 - part, part)


def over_commitment_risk(
    mean: Floats,
    deviation: Floats,
    capacity: Floats,
    *,
    requests: Floats,
    limits: Floats,
    of_pod: tuple[float, float],
    smoothing: int = 5,
    weight: float = 0.5,
) -> Floats:
    """Trimaran LowRiskOverCommitment: the risk of one resource, 0 to 1.

    ``requests`` and ``limits`` of the pods on a node exclude those of the new pod (``of_pod``).
    ``mean`` and ``deviation`` are shares. One part of the risk is how far limits exceed the
    capacity. The other is the probability that the node uses more than is requested, given its
    limits, from a beta distribution fitted to mean and deviation.

    kubernetes-sigs/scheduler-plugins 903da7df,
    pkg/trimaran/lowriskovercommitment/lowriskovercommitment.go and beta.go, and
    pkg/trimaran/resourcestats.go.
    """
    all_requests = np.minimum(requests + of_pod[0], capacity)
    all_limits = limits + of_pod[1]
    excess, room = all_limits - capacity, all_limits - all_requests
    by_limit = np.where(excess > 0, excess / np.where(room > 0, room, 1), 0.0)
    within = _probable(
        np.clip(mean, 0, 1),
        np.clip(deviation, 0, 1) ** 2 * smoothing,
        np.clip(np.minimum(requests, capacity) / capacity, 0, 1),
        np.where(limits >= np.minimum(requests, capacity), np.clip(limits / capacity, 0, 1), 1),
    )
    return np.clip(weight * by_limit + (1 - weight) * (1 - within), 0, 1)


def _probable(mean: Floats, variance: Floats, line: Floats, limit: Floats) -> Floats:
    """The probability that use is below ``line``, given that it is below ``limit`` (1: no limit).

    All arguments are shares.
    """
    widest = mean * (1 - mean)
    variance = np.minimum(variance, 0.99 * widest)
    below = np.where(mean <= line, 1.0, 0.0)
    spread = variance > 1e-4  # a smaller variance counts as none
    if spread.any():
        total = widest[spread] / variance[spread] - 1
        alpha, beta = mean[spread] * total, (1 - mean[spread]) * total
        found = beta_below(alpha, beta, line[spread])
        within = beta_below(alpha, beta, limit[spread])
        below[spread] = np.minimum(found / np.where(within > 0, within, 1), 1)
    below[limit == 0] = 1
    return below


def koordinator_estimate(request: float, limit: float, factor: float, unset: float) -> float:
    """Koordinator's LoadAwareScheduling: the expected use of a pod. ``factor`` in percent.

    It is a share of the larger of request and limit, but at most the limit; ``unset`` for a pod
    that has neither.

    koordinator-sh/koordinator a7a1b76b,
    pkg/scheduler/plugins/loadaware/estimator/default_estimator.go; 85 and 70 are in
    pkg/scheduler/apis/config/v1/defaults.go.
    """
    wanted = max(request, limit)
    if not wanted:
        return unset
    estimate = wanted * factor / 100
    return min(estimate, limit) if limit else estimate


def koordinator_score(
    cpu: Floats, memory: Floats, weights: tuple[int, int] = (1, 1), dominant: int = 0
) -> Floats:
    """Koordinator's LoadAwareScheduling: the weighted free shares of CPU and memory.

    ``cpu`` and ``memory``: shares in use, including the pod. ``dominant``: additional weight of the
    scarcer resource.

    koordinator-sh/koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go.
    """
    scores = [np.where(used > 1, 0.0, np.floor(BEST * (1 - used) + 1e-9)) for used in (cpu, memory)]
    total: Floats = weights[0] * scores[0] + weights[1] * scores[1] + dominant * np.minimum(*scores)
    return total // (sum(weights) + dominant)


def koordinator_passes(cpu: Floats, memory: Floats, limits: tuple[float, float]) -> Bools:
    """Koordinator's filter on the same shares. ``limits``: percent; 0 is no limit. Same source."""
    passed = np.ones(len(cpu), dtype=np.bool_)
    for used, limit in zip((cpu, memory), limits, strict=True):
        if limit:
            passed &= _rounded(100 * used) <= limit
    return passed


def volcano_estimate(
    request: float, limit: float, ratio: float = 0.7, burst: float = 0.0, risk: float = 1.0
) -> float:
    """Volcano usage: the expected use of a pod until the metric includes it.

    It is a ratio of its request, plus a ratio of the difference between limit and request, times
    the risk factor, but at most the limit.

    volcano-sh/volcano ed72c7c8 (since v1.16.0-alpha.0), pkg/scheduler/plugins/usage/estimator.go.
    """
    limit = max(limit, request)
    return min(max((request * ratio + (limit - request) * burst) * risk, 0.0), limit)


def volcano_composite(percent: Floats, estimated: Floats, capacity: Floats) -> Floats:
    """Volcano usage: the share in use, with the estimates of recently bound pods. Same source."""
    return np.clip(percent / 100 + estimated / capacity, 0, 1)


def volcano_score(
    cpu: Floats, memory: Floats, weights: tuple[int, int] = (1, 1), weight: int = 5
) -> Floats:
    """Volcano usage: the weighted free shares, times the plugin's weight. In usage.go."""
    free = (weights[0] * (1 - cpu) + weights[1] * (1 - memory)) / sum(weights)
    return BEST * weight * free


def crane_score(shares: Floats, weights: Floats, hot_value: Floats) -> Floats:
    """crane-scheduler Dynamic: the weighted free shares, minus 10 per point of the hot value.

    ``shares``: by metric and node; a missing one (NaN) counts as fully used.

    gocrane/crane-scheduler c2c05338, pkg/plugins/dynamic/stats.go and plugins.go.
    """
    free = np.nan_to_num(1 - shares, nan=0.0)
    scores: Floats = np.trunc(BEST * (weights[:, None] * free).sum(axis=0) / weights.sum())
    return np.maximum(scores - 10 * hot_value, 0)


def crane_hot_value(bound: dict[float, Floats], counts: dict[float, int]) -> Floats:
    """crane-scheduler's hot value. pkg/controller/annotator/node.go, the same commit.

    ``bound``: by number of seconds, the pods bound to each node within that time.
    ``counts``: how many of them make one point.
    """
    points: Floats = np.sum([bound[each] // count for each, count in counts.items()], axis=0)
    return points


def soft_tainter_deviations(cpu: Floats, pressure: Floats, memory: Floats) -> Floats:
    """How far each node is above the mean in CPU, CPU pressure (above 70 % CPU use) and memory.

    Memory pressure, which counts above 70 % memory use, is not simulated.

    openshift/cluster-kube-descheduler-operator 945dcaa9,
    bindata/assets/kube-descheduler/prometheusrule.yaml, for this and the next two.
    """
    shares = np.stack([cpu, np.where(cpu > 0.7, pressure, 0.0), memory])
    return np.maximum(shares - shares.mean(axis=1, keepdims=True), 0)


def soft_tainter_cooldown(evicted: Floats) -> Floats:
    """The damping factor of a node: minus a tenth for each eviction in the last 10 minutes."""
    return np.maximum(1 - 0.1 * evicted, 0.01)


def soft_tainter_load(deviations: Floats, cooldown: Floats | float = 1.0) -> Floats:
    """The load that OpenShift's soft-tainter uses, in whole percent.

    It is three times the distance above the mean, at most 1, times the cooldown.
    """
    distance = np.sqrt((deviations**2).sum(axis=0))
    load: Floats = np.floor(100 * np.minimum(3 * distance, 1) * cooldown)
    return load


def bands(load: Floats, low: float, high: float, *, relative: bool) -> tuple[Bools, Bools]:
    """Which nodes LowNodeUtilization counts as under-used and as over-used.

    ``load``, ``low`` and ``high`` are in percent. ``relative``: the thresholds are distances below
    and above the mean. A node at the low threshold is under-used.

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter/nodeutilization.go;
    kubernetes-sigs/descheduler 7d2b28bf, pkg/framework/plugins/nodeutilization.
    """
    mean = load.mean() if relative else 0.0
    lines = (mean - low, mean + high) if relative else (low, high)
    lowest, highest = np.clip(lines, 0, 100)
    under = load <= lowest
    return under, (load > highest) & ~under


def soft_taints(under: Bools, over: Bools) -> NDArray[np.int64]:
    """The number of soft taints that OpenShift's soft-tainter puts on each node.

    None on under-used nodes, two on over-used ones, one on the others (none if no node is
    under-used).

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter/softtainter.go.
    """
    between = np.int64(under.any())
    return np.where(over, 2, np.where(under, 0, between))
