"""What one tick came to: the decision, the state of each node after the writes, and the Snapshot
from which every answer, page and log line is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from dynsched.engine.alerting.alerts import Verdicts
from dynsched.engine.alerting.guard import Selection
from dynsched.engine.alerting.plan import plan_node
from dynsched.engine.columns import OK, Bools, Floats
from dynsched.engine.load.expected import (
    NO_PODS,
    NOTHING_EXPECTED,
    ExpectedLoad,
    KnownPods,
    added_on,
)
from dynsched.engine.loads import rule_loads
from dynsched.engine.model import (
    Node,
    NodePatch,
    Order,
    RuleHealth,
    SeveralSeries,
    Unmatched,
    Verdict,
    WriteFailure,
)
from dynsched.engine.nodes.inventory import Inventory, take_inventory
from dynsched.engine.nodes.mark_state import MarkState, carried, mark_state
from dynsched.engine.pod_values import Added, PodUse
from dynsched.rules.rule_set import Rule, RuleSet

HOT: Final = 1.0
UNDECIDED: Final = 0.5
COOL: Final = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick came to, on the nodes as they were."""

    inventory: Inventory
    verdicts: Verdicts
    selection: Selection
    patches: tuple[NodePatch, ...]
    """Those that are due; nothing has been written yet."""
    unmatched: tuple[Unmatched, ...]
    several: Mapping[str, SeveralSeries]
    expected: Mapping[str, ExpectedLoad]

    @property
    def rule_set(self) -> RuleSet:
        """The rules by which it was decided."""
        return self.inventory.rule_set

    def without(self, delayed: Mapping[str, str]) -> Decision:
        """The same, where the patches of some nodes are ``delayed``; by node: why."""
        withheld = {**self.selection.withheld, **delayed}
        return replace(self, selection=replace(self.selection, withheld=withheld))

    def replan(self, node: Node) -> NodePatch | None:
        """The patch for one node that changed since; None when nothing is due any more, or when it
        has replaced the node of its name: it is decided on in the next tick.
        """
        if not self.is_of(node):
            return None
        indices = self.inventory.index.roster.indices_of([node.name])
        (verdict,) = self.verdicts.of_nodes(indices)
        return self.due(mark_state(node, self.rule_set.mark, self.rule_set.nodes), verdict)

    def due(self, state: MarkState, verdict: Verdict) -> NodePatch | None:
        """The patch that a node needs by this decision; None when nothing is due."""
        return plan_node(
            state,
            verdict,
            self.rule_set,
            self.selection,
            added_on(verdict.node, self.expected),
        )

    def is_of(self, node: Node) -> bool:
        """Whether this node, and not a former one of its name, was decided on."""
        decided = self.inventory.nodes.get(node.name)
        return decided is not None and decided.uid == node.uid

    def views(self, nodes: Mapping[str, Node]) -> NodeViews:
        """Of ``nodes`` as they are after the writes."""
        return NodeViews(self, nodes)


class NodeView(Struct, frozen=True, gc=False):
    """One node in the last tick. ``due``: the patch that it needs and that was not written.
    ``withheld``: why a hot node is left unmarked, or why a mark stays on a cool one. ``added``: by
    rule, without rules to which nothing is added.
    """

    state: MarkState
    verdict: Verdict
    due: NodePatch | None
    withheld: str | None
    added: Mapping[str, Added]


class NodeViews(Mapping[str, NodeView]):
    """The state of each node in the last tick, by name; a view is made when somebody asks for it,
    and what many ask of all nodes is answered from the columns. ``nodes`` must not change.
    """

    def __init__(self, decision: Decision, nodes: Mapping[str, Node]) -> None:
        rule_set, decided = decision.rule_set, decision.inventory
        changed = [node for name, node in nodes.items() if decided.nodes.get(name) is not node]
        if new := {node.name for node in changed if not decision.is_of(node)}:
            # They are decided on in the next tick.
            nodes = {name: node for name, node in nodes.items() if name not in new}
        self._decision = decision
        self.inventory = take_inventory(nodes, rule_set, decided)
        """As of the nodes after the writes."""
        self.marked = self.inventory.marked
        self.ineligible = self.inventory.ineligible
        self.conflicts = self.inventory.conflicts
        self.verdicts = decision.verdicts
        roster = self.inventory.index.roster
        if roster is not decided.index.roster:
            alerts = self.verdicts.alerts.on(self.verdicts.alerts.rules, roster)
            self.verdicts = Verdicts.of(alerts, decided.limits)
        self._names = roster.names
        self._mark = rule_set.mark
        self.expected = decision.expected
        """By rule: what is added to the nodes' measured loads."""

    def __getitem__(self, name: str) -> NodeView:
        if name not in self.inventory.nodes:
            raise KeyError(name)
        return self.of([name])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self.inventory.nodes

    def of(self, names: Sequence[str]) -> list[NodeView]:
        """In the order of ``names``; KeyError for one that is unknown."""
        return list(map(self._view, self.verdicts.of_nodes(self.indices_of(names))))

    def _view(self, verdict: Verdict) -> NodeView:
        decision, name = self._decision, verdict.node
        state, withheld = self.inventory.states[name], decision.selection.withheld.get(name)
        added = added_on(name, decision.expected)
        return NodeView(state, verdict, decision.due(state, verdict), withheld, added)

    def indices_of(self, names: Sequence[str]) -> list[int]:
        """The places of these nodes in the columns; KeyError for one that is unknown."""
        return self.inventory.index.roster.indices_of(names)

    def pools_at(self, indices: Sequence[int]) -> list[str]:
        """The pools of the nodes at these places of the columns; empty without
        ``guard.pool_label``.
        """
        columns = self.inventory.columns
        kinds = columns.kind[indices].tolist()
        return [columns.kinds[kind].pool for kind in kinds]

    @cached_property
    def hot(self) -> frozenset[str]:
        """The names of those on which an alert fires."""
        return self._named(self.verdicts.hot)

    def expected_loads(self, row: int, *, to_place: bool = False) -> Floats:
        """By the rule of this row of the alerts: of all nodes, in points; NaN where nothing is
        known. ``to_place``: by which pods are placed (`ExpectedLoad.add_to`).
        """
        alerts, rule = self.verdicts.alerts, self._rule(row)
        loads = rule_loads(rule, alerts.good_values(row))
        if rule.name in self.expected:
            self.expected[rule.name].add_to(loads, self.inventory.columns, to_place=to_place)
        return loads

    def next_pod(self, row: int) -> Floats:
        """By the rule of this row: what a pod of mean use adds to each node, in points."""
        expected = self.expected.get(self._rule(row).name, NOTHING_EXPECTED)
        return expected.next_pod(self.inventory.columns)

    @cached_property
    def stays_hot(self) -> Bools:
        """By alert: it fires, and the node's expected load is not below the
        threshold. One whose load has gone is let have pods before the late metric clears the alert:
        the others would get all of them meanwhile.
        """
        alerts = self.verdicts.alerts
        found = alerts.firing & alerts.exists
        for row in np.flatnonzero(found.any(axis=1)).tolist():
            rule = self._rule(row)
            found[row] &= ~(self.expected_loads(row) < rule_loads(rule, rule.threshold))
        return found

    def _rule(self, row: int) -> Rule:
        return self._decision.rule_set.by_name[self.verdicts.alerts.rules[row]]

    @cached_property
    def not_cooled(self) -> frozenset[str]:
        """The hot ones, without those that are expected to be hot no more."""
        is_hot = self.stays_hot & ~self.inventory.limits.is_shadow
        return self._named(np.logical_or.reduce(is_hot, axis=0))

    def _named(self, which: Bools) -> frozenset[str]:
        return frozenset([self._names[index] for index in np.flatnonzero(which)])

    def carrying(self, part: str) -> frozenset[str]:
        """Those that carry a part of the mark, as `carried` writes it."""
        states = self.inventory.marked_states
        return frozenset([s.node.name for s in states if part in carried(s, self._mark)])

    @cached_property
    def withheld(self) -> Mapping[str, str]:
        """Of those that are left unmarked, or whose mark stays: why."""
        withheld = self._decision.selection.withheld
        return {name: why for name, why in withheld.items() if name in self}

    @cached_property
    def pools(self) -> Counter[tuple[str, bool]]:
        """How many that may be marked there are, by their pool and whether they are hot."""
        columns = self.inventory.columns
        numbers = 2 * columns.kind + self.verdicts.hot
        counted = np.delete(numbers, self.indices_of(list(self.ineligible)))
        found: Counter[tuple[str, bool]] = Counter()
        for number, count in zip(*np.unique(counted, return_counts=True), strict=True):
            found[columns.kinds[number // 2].pool, bool(number % 2)] += int(count)
        return found

    def due_of(self, names: Iterable[str]) -> list[str]:
        """Of these nodes those that need a patch; unknown ones are left out."""
        # On all other nodes nothing can be due.
        seen, wanted = self.inventory, self._decision.selection.marked
        concerned = [n for n in names if n in self and (n in seen.touched or n in wanted)]
        # The alerts are in a patch's text alone.
        verdicts = self.verdicts.of_nodes(self.indices_of(concerned), with_alerts=False)
        return [each.node for each in verdicts if self._decision.due(seen.states[each.node], each)]

    def verdict_values(self, names: Sequence[str]) -> list[float]:
        """One number for each of these nodes, for programs that act on it. HOT: the node is marked,
        and a rule fires on it that has not cleared. COOL: it is known that no rule fires or is
        pending, and the node carries no mark. UNDECIDED: all else, such as a mark that is only held
        by ``keep_firing_for``, a hot node that the cap leaves unmarked, an unknown
        value, a conflict, a node that must not be marked: nothing is to be done about those.
        """
        table, limits, indices = self.verdicts.alerts, self.inventory.limits, self.indices_of(names)
        rows = np.flatnonzero(~limits.is_shadow).tolist()
        cells = np.ix_(rows, indices)
        exists, ok, firing = table.exists[cells], table.quality[cells] == OK, table.firing[cells]
        goes_on = exists & ok & firing & np.isnan(table.keep_firing_since[cells])
        is_idle = ok & ~firing & ~table.pending[cells]
        cool = exists.any(axis=0) & (is_idle | ~exists).all(axis=0)
        marked = np.array([name in self.marked for name in names], np.bool_)
        found = np.select([marked & goes_on.any(axis=0), cool & ~marked], [HOT, COOL], UNDECIDED)
        found = np.where(self.inventory.columns.may_mark[indices], found, UNDECIDED)
        return list(map(float, found))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The immutable result of one tick. All HTTP answers are made from the last Snapshot."""

    taken_at: float
    """When the tick was finished, in Unix seconds."""
    tick: int
    """The first after a start is 1; the decisions between two ticks count too."""
    duration: float
    """Seconds, queries and writes included."""
    rule_set: RuleSet
    nodes: NodeViews
    rules: tuple[RuleHealth, ...]
    unmatched: tuple[Unmatched, ...] = ()
    capped: frozenset[str] = frozenset()
    """The pools in which ``guard.max_marked`` is reached and hot nodes stay unmarked; "" stands for
    all nodes where there are no pools."""
    disputes: Mapping[str, str] = field(default_factory=dict)
    """By node name: a sign that another program or person changes the node's mark too."""
    planned: tuple[NodePatch, ...] = ()
    """The patches that were due. In a dry run: only those that it would send now."""
    applied: tuple[NodePatch, ...] = ()
    failures: tuple[WriteFailure, ...] = ()
    delayed: int = 0
    """How many of the planned patches wait for ``guard.max_writes_per_minute``."""
    error: str | None = None
    """Why the tick failed, in one line; None when it succeeded."""
    dry_run: bool = False
    leading: bool = True
    leader: str | None = None
    rules_error: str | None = None
    """Why the present content of the rules file is refused while older rules are in force, or none
    are."""
    reloaded: bool = False
    """Whether the rules file changed since the last tick and its content was accepted."""
    refused: bool = False
    """The same, and its content was refused."""
    queried: bool = True
    """Whether the rules were queried for it; False where it was decided again on the last answers,
    because pods were bound or ended."""
    order: Order | None = None
    """For new pods; None where the rules want none, or no load is known."""
    order_error: str | None = None
    """Why the order could not be written when this was published."""
    pods: KnownPods = NO_PODS
    """What was known of pods; NO_PODS where they are not watched."""

    @property
    def uses(self) -> Mapping[str, PodUse]:
        """By rule: what a pod is expected to use; empty when nothing is known of pods."""
        return {name: load.use for name, load in self.nodes.expected.items()}
