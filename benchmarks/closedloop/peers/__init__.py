"""Other load-aware schedulers as players. Each sees the load through its own metrics, with their
real delay, and adds its own score (`closedloop.peers.formulas`) to that of kube-scheduler.

Common to all here: pods have requests and no limits; memory is used as requested; a pod for which
no node passes the filter waits (`world`). `ways` has each peer as shipped and, if a setting is
obvious, tuned: chosen on seeds 41 and 42 of "40 % used" and "60 % used".

Read in November 2026, each at the newest available commit:

    openshift/cluster-kube-descheduler-operator  945dcaa9  2026-06-27
    kubernetes-sigs/descheduler                  7d2b28bf  2026-06-30, v0.36.0 and later
    kubernetes-sigs/scheduler-plugins            903da7df  2026-08-16
    paypal/load-watcher                          17df8f96  2024-12-19, v0.2.4
    volcano-sh/volcano                           ed72c7c8  2026-08-20, v1.16.0-alpha.1 and later
    koordinator-sh/koordinator                   a7a1b76b  2026-07-24, v1.8.0 and later
    gocrane/crane-scheduler                      c2c05338  2023-10-17
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from closedloop.peers.beside import Descheduled, SoftTainter
from closedloop.peers.low_node_utilization import (
    TUNED,
    Descheduling,
    with_low_node_utilization,
)
from closedloop.peers.schedulers import Crane, Koordinator, Volcano
from closedloop.peers.trimaran import (
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    TargetLoadPacking,
)
from closedloop.players import Default
from closedloop.world import World


def ways() -> dict[str, Callable[[World], Default]]:
    """The peers by name."""
    made = functools.partial
    alone: dict[str, Callable[[World], Default]] = {
        "TargetLoadPacking": TargetLoadPacking,
        # as in the example of its README
        "TargetLoadPacking, Prometheus": made(TargetLoadPacking, latest=False),
        # target 20 %, requests x 2.5 (what pods use), weight 3
        "TargetLoadPacking, tuned": made(
            TargetLoadPacking, target=20.0, multiplier=2.5, weight=3.0
        ),
        # requests x 1: for scenarios where requests follow use
        **{
            f"TargetLoadPacking, target {target}": made(
                TargetLoadPacking, target=float(target), multiplier=1.0
            )
            for target in (40, 60, 80)
        },
        "LoadVariationRiskBalancing": LoadVariationRiskBalancing,
        "LoadVariationRiskBalancing, Prometheus": made(LoadVariationRiskBalancing, latest=False),
        "LowRiskOverCommitment": LowRiskOverCommitment,
        # as if each pod had a limit of one core; other weights were no better
        "LowRiskOverCommitment, limits": made(LowRiskOverCommitment, limits=5.0),
        "Koordinator": Koordinator,
        # koordlet: a mean of 60 s each 30 s (its least); estimates as requested (its most); CPU
        # alone, no filter
        "Koordinator, tuned": made(
            Koordinator,
            report=30,
            window=60.0,
            factors=(100, 70),
            limits=(0, 0),
            weights=(1, 0),
        ),
        "Volcano usage": Volcano,
        "Volcano usage without estimator": made(Volcano, estimator=False),
        # a metric that the user provides through the adapter (a rate over 2m), estimates as
        # requested, CPU alone, weight 1, no binpack
        "Volcano usage, tuned": made(
            Volcano, ratio=1.0, weights=(1, 0), weight=1, adapted=True, binpack=False
        ),
        "crane": Crane,
        # only the mean of 5 minutes, every 30 s, no filter
        "crane, tuned": made(Crane, metrics=Crane.TUNED, weight=1.0),
        "soft-tainter": SoftTainter,
        # KubeVirtRelieveAndMigrate: pods are virtual machines, and rest after each move
        "soft-tainter and descheduler": made(
            SoftTainter, how=SoftTainter.MACHINES, descheduler=True
        ),
        # with descheduler:node:actuation_priority:p66_5m
        "soft-tainter and descheduler, stable": made(
            SoftTainter, how=SoftTainter.MACHINES, load="stable", descheduler=True
        ),
        # CPU alone (PrometheusCPUCombined), 0:20 (AsymmetricMedium), every 10 s
        "soft-tainter, tuned": made(SoftTainter, how=Descheduling(0, 20, every=10), load="plain"),
        "LowNodeUtilization": made(Descheduled, how=Descheduling(20, 50, relative=False)),
        # 10:10 around the mean, one pod a node and three a cycle
        "LowNodeUtilization, tuned": made(Descheduled, how=TUNED),
    }
    beside = (
        "TargetLoadPacking, tuned",
        "LoadVariationRiskBalancing",
        "LowRiskOverCommitment",
        "Koordinator, tuned",
        "Volcano usage, tuned",
        "crane, tuned",
    )
    return alone | {
        f"{name}, and LowNodeUtilization": with_low_node_utilization(alone[name]) for name in beside
    }
