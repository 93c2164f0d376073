"""Runs that are faster than real time: the scenario, and rules with shortened durations.

Real servers cannot run faster than the clock. So pods live shorter, scrapes and ticks are more
frequent, and every duration in the rules is divided by the same factor.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from closedloop import kubelets
from closedloop.workload import Kind, Scenario
from dynsched.controller import evaluator
from dynsched.core.load import use_by_age
from dynsched.features.order import writer
from dynsched.sources import pod_use
from dynsched.util.durations import format_duration, parse_duration

FASTER = 10
"""Speed-up over real time."""
LIVES = 90.0
"""Mean life of a pod in seconds; stands for 15 minutes."""
TICK = 1.0
"""Seconds between two ticks of dynsched."""
SCRAPE = 1.0
"""Seconds between two scrapes."""

_DURATION = re.compile(r"(?:\d+(?:ms|[ywdhms]))+", re.ASCII)
_RANGE = re.compile(r"\[\s*((?:\d+(?:ms|[ywdhms]))+)\s*\]", re.ASCII)


def scenario(
    *,
    nodes: int,
    used: float,
    seconds: float,
    warm: float,
    window: float,
    jobs: bool = False,
    packs: bool = False,
    requests: tuple[float, float] | None = None,
) -> Scenario:
    """The scenario for the real servers and for the simulator.

    ``used``: share of all CPU. ``window``: range of the rules' ``rate`` in seconds. ``jobs``: two
    fifths of the use are Jobs' pods in bursts of 30.
    """
    kinds: tuple[Kind, ...] = (Kind(lives=LIVES, requests=requests),)
    if jobs:
        burst = replace(kinds[0], share=0.4, replicas=30, alike=True, spreads=False)
        kinds = (replace(kinds[0], share=0.6), replace(burst, within=burst.within / FASTER))
    return Scenario(
        "ten times faster than life",
        used=used,
        nodes=nodes,
        kinds=kinds,
        scrape=SCRAPE,
        window=window,
        tick=TICK,
        hours=seconds / 3600,
        warm=warm,
        packs=packs,
    )


def hasten() -> None:
    """Divide dynsched's own intervals, and those of the simulator, in this process too.

    These are the intervals between two evaluations, two writes of the order, and two queries of
    what pods use, and the range of these queries.
    """
    for module, *names in (
        (evaluator, "REEVALUATE", "POLL"),
        (writer, "APART", "RENEW"),
        (pod_use, "EVERY", "EVERY_OF_RECENT", "YOUNGEST", "OLDEST"),
        (use_by_age, "LATE"),
        (kubelets, "HOUSEKEEPING"),
    ):
        for name in names:
            setattr(module, name, getattr(module, name) / FASTER)
    pod_use.RANGE = "30s"  # type: ignore[misc]


def faster(content: Any, window: float | None) -> Any:
    """The content of a rules file with every duration divided by FASTER, and the range of every
    expression replaced by ``window`` seconds (None: divided as well).

    Durations are recognised by their format, so that keys added later are shortened too.
    """
    if isinstance(content, dict):
        return {key: faster(value, window) for key, value in content.items()}
    if isinstance(content, list):
        return [faster(value, window) for value in content]
    if not isinstance(content, str):
        return content
    if _DURATION.fullmatch(content):
        return format_duration(parse_duration(content) / FASTER)
    return _RANGE.sub(
        lambda found: f"[{format_duration(window or parse_duration(found[1]) / FASTER)}]", content
    )
