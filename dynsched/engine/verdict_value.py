"""One number for a node, for programs that act on it (the descheduler, an alert).

It has three values, so that nothing is done where nothing is certain: with two, a node that is hot
and has no mark because of ``guard.max_marked`` would look like a cool one to which pods can go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dynsched.engine.columns import OK
from dynsched.engine.snapshot import NodeViews
from dynsched.rules.rule_set import Rule, RuleSet

HOT: Final = 1.0
UNDECIDED: Final = 0.5
COOL: Final = 0.0


def verdict_values(views: NodeViews, names: Sequence[str], rule_set: RuleSet) -> list[float]:
    """Of each of these nodes. HOT: the node is marked, and a rule fires on it that has not cleared.
    COOL: it is known that no rule fires or is pending, and the node carries no mark. UNDECIDED: all
    else, such as a mark that is only held by ``keep_firing_for``, an early mark, a hot node that
    the cap leaves unmarked, an unknown value, a conflict, a node that must not be marked.
    """
    table, places = views.evaluation.alerts, views.places_of(names)
    rows = [row for row, name in enumerate(table.rules) if _makes_hot(rule_set.by_name[name])]
    cells = np.ix_(rows, places)
    states, early = table.states, views.evaluation.verdicts.early[places]
    exists, ok, firing = table.exists[cells], table.quality[cells] == OK, states.firing[cells]
    goes_on = exists & ok & firing & np.isnan(states.keep_firing_since[cells])
    is_idle = ok & ~firing & ~states.pending[cells]
    cool = ~early & exists.any(axis=0) & (is_idle | ~exists).all(axis=0)
    marked = np.array([name in views.marked for name in names], np.bool_)
    hindered = [name in views.ineligible or name in views.conflicts for name in names]
    found = np.select(
        [np.array(hindered, np.bool_), marked & goes_on.any(axis=0), cool & ~marked],
        [UNDECIDED, HOT, COOL],
        UNDECIDED,
    )
    return [float(value) for value in found]


def _makes_hot(rule: Rule) -> bool:
    return rule.early_of is None and not rule.shadow
