"""Other load-aware schedulers as players: each sees the load through its own metrics, as late as it
does in life, and adds its own score (`closedloop.peers.formulas`) to that of kube-scheduler.

What all have in common here: pods have requests and no limits; memory is used as it is requested; a
pod that no node passes the filter for waits (`world`). `ways` has each as shipped and, where a
setting is plain, tuned: chosen on seeds 41 and 42 of "40 % used" and "60 % used".
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from closedloop.peers.base import Descheduling
from closedloop.peers.beside import Descheduled, SoftTainter
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
    return {
        "TargetLoadPacking": TargetLoadPacking,
        "TargetLoadPacking, tuned": made(
            TargetLoadPacking, target=5.0, multiplier=2.5, latest=True, weight=5.0
        ),
        "LoadVariationRiskBalancing": LoadVariationRiskBalancing,
        "LoadVariationRiskBalancing, tuned": made(
            LoadVariationRiskBalancing, latest=True, weight=5.0
        ),
        "LowRiskOverCommitment": LowRiskOverCommitment,
        "LowRiskOverCommitment, tuned": made(LowRiskOverCommitment, limits=5.0, weight=5.0),
        "Koordinator": Koordinator,
        "Koordinator, tuned": made(
            Koordinator,
            report=30,
            window=60.0,
            factors=(100, 70),
            limits=(0, 0),
            weights=(1, 0),
            weight=5.0,
        ),
        "Volcano usage": Volcano,
        "Volcano usage without estimator": made(Volcano, estimator=False),
        "Volcano usage, tuned": made(
            Volcano, ratio=1.0, weights=(1, 0), adapted=True, binpack=False
        ),
        "crane": Crane,
        "crane, tuned": made(Crane, metrics=Crane.TUNED, weight=5.0),
        "soft-tainter": SoftTainter,
        "soft-tainter and descheduler": made(SoftTainter, descheduler=True),
        "soft-tainter, tuned": made(SoftTainter, how=Descheduling(10, 10, every=10), plain=True),
        "LowNodeUtilization by load": made(
            Descheduled, descheduling=Descheduling(20, 50, relative=False)
        ),
        "LowNodeUtilization by load, tuned": made(
            Descheduled, descheduling=Descheduling(10, 10, per_node=1)
        ),
    }
