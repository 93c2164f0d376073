"""Other load-aware schedulers as players: each sees the load through its own metrics, as late as it
does in life, and adds its own score (`closedloop.peers.formulas`) to that of kube-scheduler.

What all have in common here: pods have requests and no limits; memory is used as it is requested; a
pod that no node passes the filter for waits (`world`). `ways` has each as shipped and, where a
setting is plain, tuned: chosen on seeds 41 and 42 of "40 % used" and "60 % used".
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
        # metrics-server, not Prometheus; target 20 %, requests x 2.5 (what pods use), weight 3
        "TargetLoadPacking, tuned": made(
            TargetLoadPacking, target=20.0, multiplier=2.5, latest=True, weight=3.0
        ),
        "LoadVariationRiskBalancing": LoadVariationRiskBalancing,
        # metrics-server, not Prometheus
        "LoadVariationRiskBalancing, tuned": made(LoadVariationRiskBalancing, latest=True),
        "LowRiskOverCommitment": LowRiskOverCommitment,
        # as if each pod had a limit of one core; other weights and metrics-server were no better
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
        # a metric of the user's own by the adapter (a rate over 2m), estimates as requested, CPU
        # alone, weight 1, no binpack
        "Volcano usage, tuned": made(
            Volcano, ratio=1.0, weights=(1, 0), weight=1, adapted=True, binpack=False
        ),
        "crane": Crane,
        # only the mean of 5 minutes, each 30 s, no filter
        "crane, tuned": made(Crane, metrics=Crane.TUNED, weight=1.0),
        "soft-tainter": SoftTainter,
        "soft-tainter and descheduler": made(SoftTainter, descheduler=True),
        # CPU alone (PrometheusCPUCombined), 0:20 (AsymmetricMedium), each 10 s
        "soft-tainter, tuned": made(SoftTainter, how=Descheduling(0, 20, every=10), plain=True),
        "LowNodeUtilization": made(Descheduled, how=Descheduling(20, 50, relative=False)),
        # 10:10 around the mean, one pod a node and three a cycle
        "LowNodeUtilization, tuned": made(Descheduled, how=TUNED),
    }
    beside = (
        "TargetLoadPacking, tuned",
        "LoadVariationRiskBalancing, tuned",
        "LowRiskOverCommitment",
        "Koordinator, tuned",
        "Volcano usage, tuned",
        "crane, tuned",
    )
    return alone | {
        f"{name}, and LowNodeUtilization": with_low_node_utilization(alone[name]) for name in beside
    }
