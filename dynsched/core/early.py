"""Early marks: how far each node's expected load is above the mean of its pool.

Where the scheduler is to prefer a node is decided between nodes: one that has more load than the
mean gets enough pods already. So it is marked before it is hot, and pods go to the others.
"""

from __future__ import annotations

import numpy as np

from dynsched.core.columns import Bools, Floats, Ints
from dynsched.core.rules import FileRule


def above_mean(rule: FileRule, loads: Floats, weights: Floats, pool: Ints, counts: Bools) -> Floats:
    """How far each load is above the mean of its pool, in points, for a ``rule`` that has
    ``early``. ``loads``: NaN where nothing is known; the last axis has one element for each node,
    as the other arrays have. ``pool``: a number for each, from 0.

    The mean is that of the nodes that ``counts`` names: those that may be marked and are not
    cordoned, weighted by what they have of the rule's resource: the share of the pool that is used.
    """
    at_least = rule.early.mean_at_least if rule.early else 0.0
    if not pool.size:
        return loads
    known = counts & ~np.isnan(loads)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        totals = _sums(np.where(known, loads * weights, 0.0), pool)
        of_known = _sums(np.where(known, weights, 0.0), pool)
        means = totals / of_known
    # There is none of a pool without known loads, or with weights beyond what can be counted.
    means = np.where(np.isfinite(means), np.maximum(at_least, means), at_least)
    return np.asarray(loads - means[..., pool], np.float64)


def _sums(values: Floats, pool: Ints) -> Floats:
    """The sum over each pool, along the last axis."""
    order = np.argsort(pool, kind="stable")
    numbers, begins = np.unique(pool[order], return_index=True)
    found = np.zeros((*values.shape[:-1], int(pool.max()) + 1))
    found[..., numbers] = np.add.reduceat(values[..., order], begins, axis=-1)
    return found
