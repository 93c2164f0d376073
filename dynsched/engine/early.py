"""Early marks: how far each node's expected load is above the early line of its pool.

Where the scheduler is to prefer a node is decided between nodes: one that has more load than the
mean gets enough pods already. So it is marked before it is hot, and pods go to the others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.guard import early_limit
from dynsched.rules.fields import Limit
from dynsched.rules.rule_set import FileRule

GAP: Final = 6.0
"""Points by which a node must be hotter than those that get the pods in its place: what is
measured on equal nodes differs by 3 points either way."""
_HEAVIEST: Final = 4.0
"""A node weighs this many times what the median of its kind does, at most."""
_FULL: Final = 100.0


def above_line(  # noqa: PLR0917 - the columns
    rule: FileRule,
    loads: Floats,
    weights: Floats,
    kind: Ints,
    counts: Bools,
    max_marked: Limit,
) -> Floats:
    """How far each load is above the early line, in points, for a ``rule`` that has ``early``.
    ``loads``: NaN where nothing is known; the last axis has one element for each node, as the other
    arrays have. ``kind``: a number for each; each kind has a line of its own.

    The line is the mean of the nodes that ``counts`` names (those that may be marked), weighted by
    what they have of the rule's resource; or ``mean_at_least`` where that is higher. A node's
    weight and load are limited here: one node does not decide about all others.

    So many nodes stay unmarked as ``max_marked`` leaves out, the coolest. One that is not GAP
    hotter than each of these is told as no further above the line than ``above_mean``: it gets no
    mark, and one that it has is held.
    """
    if rule.early is None or not kind.size:
        return loads
    found = np.array(loads, np.float64)
    order = np.argsort(kind, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        here = loads[..., places]
        known = np.where(counts[places], here, np.nan)
        number = np.count_nonzero(~np.isnan(known), axis=-1, keepdims=True)
        weight = np.where(np.isnan(known), np.nan, weights[places])
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            weight = np.minimum(weight, _HEAVIEST * _lowest(weight, number // 2))
            total = np.nansum(np.minimum(known, _FULL) * weight, axis=-1, keepdims=True)
            mean = total / np.nansum(weight, axis=-1, keepdims=True)
        # There is none of nodes without known loads, or with weights beyond what can be counted.
        line = np.fmax(np.where(np.isfinite(mean), mean, np.nan), rule.early.mean_at_least)
        others = _lowest(known, _unmarked(max_marked, number) - 1)
        stands_out = here > others + GAP
        found[..., places] = np.where(
            stands_out, here - line, np.minimum(here - line, rule.early.above_mean)
        )
    return found


def _lowest(values: Floats, place: Ints) -> Floats:
    """The value at this place from the lowest, of those that are not NaN."""
    return np.take_along_axis(np.sort(values, axis=-1), place, axis=-1)


def _unmarked(max_marked: Limit, numbers: Ints) -> Ints:
    """Of so many nodes, how many stay without an early mark at least."""
    counts = [each - early_limit(max_marked, each) for each in numbers.ravel().tolist()]
    return np.array(counts, np.int64).reshape(numbers.shape)
