"""The extender's scores, worked out one load after the other, in the plainest way: what the
arrays of `dynsched.engine.placing.score` must agree with.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from dynsched.engine.placing.score import (
    BEST,
    FEW_BEST,
    FIRING,
    MAX_CANDIDATES_ASSUMED,
    MIN_COOL,
    NEUTRAL,
    SPREAD,
    TENTHS,
    Method,
    without_firing,
)


class PlainScorer:
    """Loads to scores by one method. None is a node of unknown load."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def score(self, loads: Sequence[int | None]) -> dict[int | None, int]:
        """The score of each distinct load."""
        known = [load for load in loads if load is not None]
        if not known:
            return {None: NEUTRAL}
        scores: dict[int | None, int] = dict(self._known(known))
        if None in loads:
            in_order = sorted(scores[load] for load in known)
            scores[None] = in_order[(len(in_order) - 1) // 2]
        return scores

    def _known(self, known: list[int]) -> Mapping[int, int]:
        coolest, hottest = min(known), max(known)
        plains = [without_firing(load) / TENTHS for load in known]
        score = _METHODS[self._method](min(plains), max(plains))
        mixed = coolest < FIRING <= hottest
        lift = BEST - score(coolest / TENTHS) if mixed else 0.0
        scores = {}
        for load in known:
            value = math.floor(score(without_firing(load) / TENTHS) + lift + 0.5)
            least = MIN_COOL if mixed else 0
            scores[load] = 0 if mixed and load >= FIRING else max(least, min(BEST, value))
        return scores


def plain_ties(scores: dict[int | None, int], loads: Sequence[int | None]) -> int | None:
    """As `break_ties`, by the scores of `PlainScorer`."""
    if not 0 < len(loads) <= MAX_CANDIDATES_ASSUMED:
        return None
    most = max(scores.values())
    best = [index for index, load in enumerate(loads) if scores[load] == most]
    known = [(load, index) for index in best if (load := loads[index]) is not None]
    if len(best) > FEW_BEST or not known:
        return None
    least, first = min(known)
    others = {loads[index] for index in best} - {least}
    for load in others:
        if most > 0:
            scores[load] = most - 1
    if others and most == 0:
        scores[least] = 1
    return first


_METHODS: Mapping[Method, Callable[[float, float], Callable[[float], float]]] = {
    "linear": lambda _low, _high: lambda load: (100 - load) / 10,
    "relative": lambda low, high: (
        lambda load: BEST * (low + max(high - low, SPREAD) - load) / max(high - low, SPREAD)
    ),
}
