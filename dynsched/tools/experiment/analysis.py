"""The difference between the blocks that are on and those that are off, with its interval. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from dynsched.engine.columns import Floats

FEWEST: Final = 10
"""Pairs of blocks, with less of which nothing is said."""
_DRAWS, _OUTSIDE = 1999, 50  # 2.5 % of the draws and of the one that happened


class Effect(NamedTuple):
    """Means of the blocks, their difference (on less off), and its 95 % interval."""

    pairs: int
    on: float
    off: float
    effect: float
    low: float
    high: float

    def blocks_more(self, precision: float) -> int:
        """Until the interval reaches no more than ``precision`` to each side."""
        times = max(1.0, (self.high - self.low) / 2 / precision) ** 2
        return 2 * (math.ceil(self.pairs * times) - self.pairs)


def effect_of(on: Floats, off: Floats) -> Effect | None:
    """Of pairs of blocks; None where fewer than FEWEST are known.

    Which of a pair was on is by chance: under an effect E, so are the signs of the differences less
    E. E is refused where too few random signs give as large (or as small) a mean as the one that
    happened; that is, where too few means of random subsets of the differences lie beyond E.
    """
    known = ~np.isnan(on - off)
    on, off = on[known], off[known]
    if len(on) < FEWEST:
        return None
    picks = np.random.default_rng(0).random((_DRAWS, len(on))) < 1 / 2
    picks[~picks.any(axis=1)] = True
    means = np.sort(picks @ (on - off) / picks.sum(axis=1))
    told = on.mean(), off.mean(), (on - off).mean(), means[_OUTSIDE - 1], means[-_OUTSIDE]
    return Effect(len(on), *map(float, told))
