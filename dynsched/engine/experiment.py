"""Blocks of time in which marks and the order are on or off, so that an owner can compare.

Which of both a block has follows from the seed and the time alone: replicas and restarts agree, and
nothing is kept. Of two blocks that follow one another one is on and one is off, in an order by
chance: the load of the two is alike, which makes the comparison sharper (docs/decisions/0028).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from dynsched.engine.alerting.alerts import Verdicts
from dynsched.engine.alerting.guard import Selection
from dynsched.engine.load.expected import KnownPods
from dynsched.engine.load.lag import longest_lag
from dynsched.rules.rule_set import RuleSet
from dynsched.rules.sections import ExperimentRules

OFF: Final = "not marked: the experiment has marks off in this block"


class Phase(NamedTuple):
    """Where an experiment is at one moment. Times are Unix seconds, ``wash_out`` seconds from the
    beginning of the block, ``washes_out``: whether they have not passed yet.
    """

    on: bool
    began: float
    ends: float
    wash_out: float
    washes_out: bool
    until: float


def is_off(phase: Phase | None) -> bool:
    """Whether an experiment has marks and the order off."""
    return phase is not None and not phase.on


def is_on(rules: ExperimentRules, block: int) -> bool:
    """``block``: its number since 1970."""
    pair, second = divmod(block, 2)
    drawn = hashlib.sha256(f"{rules.seed} {pair}".encode()).digest()[0] & 1
    return drawn == second


def default_wash_out(rule_set: RuleSet, pods: KnownPods) -> float:
    """The longest lag of a rule and the median life of a pod, as far as it is known."""
    return longest_lag(rule_set, pods.scrape_intervals) + (pods.median_life or 0.0)


def phase_at(rule_set: RuleSet, now: float, pods: KnownPods) -> Phase | None:
    """None where there is no experiment, or it has ended: all is on then."""
    rules = rule_set.experiment
    if rules is None or now >= rules.until:
        return None
    block = int(now // rules.block)
    began, wash_out = block * rules.block, rules.wash_out
    if wash_out is None:
        wash_out = min(default_wash_out(rule_set, pods), rules.block)
    ends, washes_out = began + rules.block, now < began + wash_out
    return Phase(is_on(rules, block), began, ends, wash_out, washes_out, rules.until)


def without_marks(
    selection: Selection, verdicts: Verdicts, names: tuple[str, ...], rules: ExperimentRules
) -> Selection:
    """In a block that is off; ``names``: of the nodes of the ``verdicts``."""
    hot = {names[index] for index in np.flatnonzero(verdicts.hot).tolist()}
    marked = selection.marked & hot if rules.keep_hot_marks else frozenset[str]()
    withheld = {**selection.withheld, **dict.fromkeys(selection.marked - marked, OFF)}
    return replace(selection, marked=marked, withheld=withheld, why_unmarked=OFF)
