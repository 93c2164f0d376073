"""The scenarios of the closed loop. Designs were chosen by looking at CHOSEN_ON; the other
scenarios were not looked at, and are the ones that are reported.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from closedloop.events import RolledOut, Scaled
from closedloop.workload import Kind, Scenario

_LIFE = Scenario("60 % used")
_TYPICAL = Kind()

CHOSEN_ON = (
    replace(_LIFE, name="40 % used", used=0.4),
    _LIFE,
    replace(_LIFE, name="70 % used", used=0.7),
)
"""Pods of 15 minutes, with a lognormal use of half a core on average, on nodes of 8 cores; scrapes
every 30 s, a rate over 2m, ticks every 10 s."""

REPORTED = (
    replace(_LIFE, name="50 % used", used=0.5),
    replace(_LIFE, name="75 % used", used=0.75),
    replace(_LIFE, name="many small pods", kinds=(replace(_TYPICAL, mean=0.02),)),
    replace(_LIFE, name="few big pods", kinds=(replace(_TYPICAL, mean=0.2, sigma=0.5),)),
    replace(_LIFE, name="heavy tail", kinds=(replace(_TYPICAL, sigma=1.6),)),
    replace(
        _LIFE,
        name="bursts of 30 replicas",
        kinds=(
            replace(_TYPICAL, share=0.6),
            replace(_TYPICAL, share=0.4, replicas=30, alike=True),
        ),
    ),
    replace(
        _LIFE,
        name="replicas that use the same",
        kinds=(replace(_TYPICAL, alike=True, replicas=3),),
    ),
    replace(_LIFE, name="memory (a gauge)", window=0.0),
    replace(_LIFE, name="waves of load", used=0.5, wave=0.6, wave_length=7200.0, hours=2.0),
    replace(_LIFE, name="scrapes 15 s, rate 40 s", scrape=15.0, window=40.0),
    replace(_LIFE, name="70 % used, scrapes 15 s, rate 1m", used=0.7, scrape=15.0, window=60.0),
    replace(_LIFE, name="scrapes 60 s, rate 5m", scrape=60.0, window=300.0),
    replace(_LIFE, name="some nodes four times as large", big_nodes=0.2),
    replace(_LIFE, name="5 of 50 nodes join empty", joining=5),
    replace(_LIFE, name="20 nodes", nodes=20),
    replace(_LIFE, name="100 nodes", nodes=100),
    replace(_LIFE, name="1,000 nodes", nodes=1000, hours=0.1),
    replace(_LIFE, name="5,000 nodes", nodes=5000, hours=0.1),
    replace(_LIFE, name="use rises after placement", kinds=(replace(_TYPICAL, starts_with=0.3),)),
    replace(
        _LIFE,
        name="use rises after hours",
        used=0.85,
        kinds=(replace(_TYPICAL, lives=14400.0, starts_with=0.3),),
        hours=4.0,
        warm=7200.0,
    ),
)

_JOBS = replace(
    _LIFE,
    name="Jobs in bursts of 30",
    kinds=(
        replace(_TYPICAL, share=0.6),
        replace(_TYPICAL, share=0.4, replicas=30, alike=True, spreads=False),
    ),
)
AT_ONCE = (
    _JOBS,
    replace(_JOBS, name="Jobs in bursts of 30, 20 nodes", nodes=20),
    replace(_JOBS, name="Jobs in bursts of 30, 12 nodes", nodes=12),
    replace(
        _LIFE,
        name="CronJobs at the full minute",
        kinds=(
            replace(_TYPICAL, share=0.9),
            # 100 pods of 2 minutes, every 5 minutes, use 20 of 400 cores on average.
            replace(_TYPICAL, share=0.1, replicas=100, every=300.0, lives=120.0, spreads=False),
        ),
    ),
    replace(
        _LIFE,
        name="a Deployment goes from 10 to 200",
        kinds=(replace(_TYPICAL, share=0.7),),
        events=(Scaled(),),
    ),
    replace(
        _LIFE,
        name="rolling updates of 60 replicas",
        kinds=(replace(_TYPICAL, share=0.67),),
        events=(RolledOut(),),
    ),
    replace(_LIFE, name="a node is drained every 10 minutes", drained_every=600.0),
    replace(_LIFE, name="all pods come within 30 s", begins_within=30.0, warm=0.0, hours=0.5),
    replace(_LIFE, name="slow starters", kinds=(replace(_TYPICAL, start=5.0),)),
)
"""Many pods at once, as in real clusters: pods that the scheduler does not spread, pods that come
back at the same time, and pods whose use is not known yet.
"""

_RIGHT = replace(_TYPICAL, requests=(1.15, 0.2))
_HOT_SPOTS = replace(_TYPICAL, share=0.5), replace(_TYPICAL, share=0.5, mean=0.25, sigma=0.8)
_PACKED = replace(_LIFE, packs=True, kinds=(replace(_TYPICAL, requests=(1.0, 0.5)),))
REQUESTS = (
    replace(_LIFE, name="requests are right", kinds=(_RIGHT,)),
    replace(
        _LIFE,
        name="half of the requests are right",
        kinds=(replace(_RIGHT, share=0.5), replace(_TYPICAL, share=0.5)),
    ),
    replace(
        _LIFE,
        name="wide requests, 45 % used",
        used=0.45,
        kinds=(replace(_TYPICAL, requests=(1.6, 0.7)),),
    ),
    replace(
        _LIFE,
        name="requests of a tenth",
        kinds=(replace(_TYPICAL, requests=(0.1, 0.5)),),
    ),
    # These pods use 0.41 cores on average instead of 0.5.
    replace(_LIFE, name="limits of 1 core, 48 % used", kinds=(replace(_TYPICAL, limit=1.0),)),
    *(
        replace(_LIFE, name=f"hot spots, {used} % used", used=used / 100, kinds=_HOT_SPOTS)
        for used in (15, 25, 35)
    ),
    replace(
        _LIFE,
        name="hot spots of memory, 45 % used",
        window=0.0,
        used=0.45,
        kinds=tuple(replace(kind, lives=7200.0) for kind in _HOT_SPOTS),
        hours=4.0,
        warm=3600.0,
    ),
    *(
        replace(_PACKED, packs=packs, name=f"{name}, {used} % used", used=used / 100)
        for name, packs in (("packed", True), ("requests follow use", False))
        for used in (30, 40, 50)
    ),
    replace(
        _LIFE,
        name="nothing is spread, bursts of 30",
        spreads=False,
        kinds=(
            replace(_TYPICAL, share=0.6),
            replace(_TYPICAL, share=0.4, replicas=30, alike=True),
        ),
    ),
)
"""Requests follow use, or the scheduler is configured differently."""

ALL = {scenario.name: scenario for scenario in (*CHOSEN_ON, *REPORTED, *AT_ONCE, *REQUESTS)}


def of_trace(folder: Path) -> dict[str, Scenario]:
    """Scenarios in which pods use what the series in the folder say.

    Services run for a day; those that exist at its start arrive in the hours before.
    """
    short = replace(_LIFE, kinds=(replace(_TYPICAL, trace=folder),))
    jobs = (replace(short.kinds[0], lives=7200.0),)
    services = (replace(short.kinds[0], lives=2 * 86400.0, by_clock=True),)
    found = (
        replace(scenario, name=f"trace, {scenario.name}, {used:.0%} used", used=used)
        for scenario in (
            replace(short, name="pods of 15 minutes"),
            replace(short, name="pods of 2 hours", kinds=jobs, hours=4.0, warm=3600.0),
            replace(short, name="services", kinds=services, hours=24.0, warm=14400.0),
        )
        for used in (0.6, 0.7)
    )
    return {scenario.name: scenario for scenario in found}
