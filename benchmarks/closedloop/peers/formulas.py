"""The formulas of other load-aware schedulers: what each says of nodes, from its own source.

Each docstring names the files and the commit that were read. Arguments are arrays by node unless
said otherwise; a share is 0 to 1, and ``percent`` 0 to 100. Scores are 0 to 100, as those of
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
"""Of the series below; the ratio of two terms is less than one."""


def _rounded(values: Floats) -> Floats:
    """Halves go up, as Go rounds what is not negative."""
    return np.floor(values + 0.5)


def target_load_packing(predicted: Floats, target: float = 40.0) -> Floats:
    """Trimaran TargetLoadPacking. ``predicted``: per cent of CPU with the pod. Rises up to the
    target, where it is best, and falls beyond it from the target's own number to 0 at 100 %.

    kubernetes-sigs/scheduler-plugins 903da7df, pkg/trimaran/targetloadpacking/targetloadpacking.go;
    defaults in apis/config/v1/defaults.go.
    """
    below = (BEST - target) * predicted / target + target
    beyond = target * (100 - predicted) / (100 - target)
    return _rounded(np.where(predicted > target, np.maximum(beyond, 0), below))


def risk_balancing(
    mean: Floats, deviation: Floats, margin: float = 1.0, sensitivity: float = 1.0
) -> Floats:
    """Trimaran LoadVariationRiskBalancing, one resource, not yet rounded. ``mean`` with the pod and
    ``deviation`` are shares. The risk is half of the mean and the (scaled) deviation.

    kubernetes-sigs/scheduler-plugins 903da7df, pkg/trimaran/loadvariationriskbalancing/analysis.go
    and pkg/trimaran/resourcestats.go.
    """
    sigma = np.clip(deviation, 0, 1)
    if sensitivity >= 0:
        sigma = sigma ** (1 / sensitivity) if sensitivity else np.where(sigma < 1, 0.0, 1.0)
    return BEST * (1 - (np.clip(mean, 0, 1) + np.clip(margin * sigma, 0, 1)) / 2)


def beta_below(alpha: Floats, beta: Floats, line: Floats) -> Floats:
    """The probability that a beta distribution is below the line (0 to 1), by the power series of
    the incomplete beta function on the side where it converges.
    """
    swap = line > (alpha + 1) / (alpha + beta + 2)
    a, b = np.where(swap, beta, alpha), np.where(swap, alpha, beta)
    x = np.where(swap, 1 - line, line)
    k = np.arange(_TERMS)[:, None]
    series = 1 + np.cumprod((a + b + k) / (a + 1 + k) * x, axis=0).sum(axis=0)
    gamma = np.vectorize(math.lgamma, otypes=[float])
    with np.errstate(divide="ignore"):  # the logarithm of 0 is a power that is 0
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
    """Trimaran LowRiskOverCommitment, the risk of one resource, 0 to 1. ``requests`` and ``limits``
    of the pods on a node are without the pod's own, ``of_pod``; ``mean`` and ``deviation`` are
    shares. Part of it is how far limits go beyond the capacity, part how probable it is that the
    node uses more than is requested (a beta distribution fitted to mean and deviation), given its
    limits.

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
    """How probable it is that the use is below the line, where it is below the limit (1: none); all
    are shares.
    """
    widest = mean * (1 - mean)
    variance = np.minimum(variance, 0.99 * widest)
    below = np.where(mean <= line, 1.0, 0.0)
    spread = variance > 1e-4  # less is as good as none
    if spread.any():
        total = widest[spread] / variance[spread] - 1
        alpha, beta = mean[spread] * total, (1 - mean[spread]) * total
        found = beta_below(alpha, beta, line[spread])
        within = beta_below(alpha, beta, limit[spread])
        below[spread] = np.minimum(found / np.where(within > 0, within, 1), 1)
    below[limit == 0] = 1
    return below


def koordinator_estimate(request: float, limit: float, factor: float, unset: float) -> float:
    """Koordinator's LoadAwareScheduling: what it expects a pod to use, from the larger of request
    and limit, not beyond the limit; ``unset`` for a pod that has neither. ``factor`` in per cent.

    koordinator-sh/koordinator a7a1b76b,
    pkg/scheduler/plugins/loadaware/estimator/default_estimator.go; 85 and 70 in
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
    """Koordinator's LoadAwareScheduling: the least used share (with the pod) of CPU and memory, by
    weights; ``dominant`` is the weight of the scarcer one.

    koordinator-sh/koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go.
    """
    scores = [np.where(used > 1, 0.0, np.floor(BEST * (1 - used) + 1e-9)) for used in (cpu, memory)]
    total: Floats = weights[0] * scores[0] + weights[1] * scores[1] + dominant * np.minimum(*scores)
    return total // (sum(weights) + dominant)


def koordinator_passes(cpu: Floats, memory: Floats, limits: tuple[float, float]) -> Bools:
    """Koordinator's filter by the same shares; a limit of 0 (per cent) is none. As above."""
    passed = np.ones(len(cpu), dtype=np.bool_)
    for used, limit in zip((cpu, memory), limits, strict=True):
        if limit:
            passed &= _rounded(100 * used) <= limit
    return passed


def volcano_estimate(
    request: float, limit: float, ratio: float = 0.7, burst: float = 0.0, risk: float = 1.0
) -> float:
    """Volcano usage: what a pod is expected to use until the metric shows it: a ratio of its
    request and of what its limit leaves above that, times the risk factor, at most the limit.

    volcano-sh/volcano ed72c7c8 (since v1.16.0-alpha.0), pkg/scheduler/plugins/usage/estimator.go.
    """
    limit = max(limit, request)
    return min(max((request * ratio + (limit - request) * burst) * risk, 0.0), limit)


def volcano_composite(percent: Floats, estimated: Floats, capacity: Floats) -> Floats:
    """Volcano usage: the share in use with what just-bound pods are expected to use. As above."""
    return np.clip(percent / 100 + estimated / capacity, 0, 1)


def volcano_score(
    cpu: Floats, memory: Floats, weights: tuple[int, int] = (1, 1), weight: int = 5
) -> Floats:
    """Volcano usage: the free shares by weights, times the weight. Also in usage.go."""
    free = (weights[0] * (1 - cpu) + weights[1] * (1 - memory)) / sum(weights)
    return BEST * weight * free


def crane_score(shares: Floats, weights: Floats, hot_value: Floats) -> Floats:
    """crane-scheduler Dynamic: the free shares by weights, less 10 for each point of the hot value.
    ``shares`` by metric and node; one that is missing (NaN) counts as used up.

    gocrane/crane-scheduler c2c05338, pkg/plugins/dynamic/stats.go and plugins.go.
    """
    free = np.nan_to_num(1 - shares, nan=0.0)
    scores: Floats = np.trunc(BEST * (weights[:, None] * free).sum(axis=0) / weights.sum())
    return np.maximum(scores - 10 * hot_value, 0)


def crane_hot_value(bound: dict[float, Floats], counts: dict[float, int]) -> Floats:
    """crane-scheduler's hot value. ``bound``: pods bound to each node within so many seconds;
    ``counts``: so many of them make a point. pkg/controller/annotator/node.go, the same commit.
    """
    points: Floats = np.sum([bound[each] // count for each, count in counts.items()], axis=0)
    return points


def soft_tainter_deviations(cpu: Floats, pressure: Floats, memory: Floats) -> Floats:
    """How far each node is above the mean in CPU, CPU pressure (where more than 70 % is used) and
    memory. Pressure of memory, which counts above 70 % of it, is not simulated.

    openshift/cluster-kube-descheduler-operator 945dcaa9,
    bindata/assets/kube-descheduler/prometheusrule.yaml, for this and the next two.
    """
    shares = np.stack([cpu, np.where(cpu > 0.7, pressure, 0.0), memory])
    return np.maximum(shares - shares.mean(axis=1, keepdims=True), 0)


def soft_tainter_cooldown(evicted: Floats) -> Floats:
    """The factor that quiets a node: less by a tenth for each eviction in the last 10 minutes."""
    return np.maximum(1 - 0.1 * evicted, 0.01)


def soft_tainter_load(deviations: Floats, cooldown: Floats | float = 1.0) -> Floats:
    """The load that OpenShift's soft-tainter uses, in whole percent: three times the distance above
    the mean, at most 1, times the cooldown.
    """
    distance = np.sqrt((deviations**2).sum(axis=0))
    load: Floats = np.floor(100 * np.minimum(3 * distance, 1) * cooldown)
    return load


def bands(load: Floats, low: float, high: float, *, relative: bool) -> tuple[Bools, Bools]:
    """Which nodes LowNodeUtilization takes as under-used and as over-used, by per cent.
    ``relative``: the two lines lie so far below and above the mean. A node at the low line is
    under-used.

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter/nodeutilization.go;
    kubernetes-sigs/descheduler 7d2b28bf, pkg/framework/plugins/nodeutilization.
    """
    mean = load.mean() if relative else 0.0
    lines = (mean - low, mean + high) if relative else (low, high)
    lowest, highest = np.clip(lines, 0, 100)
    under = load <= lowest
    return under, (load > highest) & ~under


def soft_taints(under: Bools, over: Bools) -> NDArray[np.int64]:
    """How many soft taints OpenShift's soft-tainter puts on each node: none on under-used ones, one
    on those between (none where no node is under-used), two on over-used ones.

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter/softtainter.go.
    """
    between = np.int64(under.any())
    return np.where(over, 2, np.where(under, 0, between))
