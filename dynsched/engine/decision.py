"""What one tick came to, and what follows from it for each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dynsched.engine.columns import Ints
from dynsched.engine.evaluate import Evaluation
from dynsched.engine.expected import ExpectedLoad
from dynsched.engine.guard import Selection, pool_of, why_ineligible
from dynsched.engine.inventory import Survey
from dynsched.engine.mark_state import MarkState, carried, mark_state
from dynsched.engine.model import Node, NodePatch, NodeView, SeveralSeries, Unmatched, Verdict
from dynsched.engine.plan import plan_node
from dynsched.engine.pod_values import Added
from dynsched.rules.rule_set import RuleSet


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick came to, on the nodes as they were. ``patches`` are due; nothing has been
    written yet.
    """

    survey: Survey
    evaluation: Evaluation
    selection: Selection
    patches: tuple[NodePatch, ...]
    unmatched: tuple[Unmatched, ...]
    several: Mapping[str, SeveralSeries]
    expected: Mapping[str, ExpectedLoad]

    @property
    def rule_set(self) -> RuleSet:
        """The rules that were decided by."""
        return self.survey.rule_set

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that were decided on."""
        return self.survey.nodes

    def without(self, delayed: Mapping[str, str]) -> Decision:
        """The same, where the patches of some nodes are ``delayed``; by node: why."""
        withheld = {**self.selection.withheld, **delayed}
        return replace(self, selection=replace(self.selection, withheld=withheld))

    def replan(self, node: Node) -> NodePatch | None:
        """The patch for one node that changed since; None when nothing is due any more.

        One that has replaced the node of its name is decided on in the next tick.
        """
        verdicts = self.evaluation.verdicts
        return self.due(*self.standing(node), verdicts) if self.is_of(node) else None

    def standing(self, node: Node) -> tuple[MarkState, str | None]:
        """How the mark stands on it, and why it must not be marked at all: as it was found then,
        unless it changed since.
        """
        seen = self.survey
        state = seen.states[node.name]
        if state.node is node:
            return state, seen.ineligible.get(node.name)
        return mark_state(node, seen.mark), why_ineligible(node, self.rule_set.nodes)

    def due(
        self, state: MarkState, ineligible: str | None, verdicts: Mapping[str, Verdict]
    ) -> NodePatch | None:
        """The patch for a node of which its ``standing`` is known, and its verdict is at hand."""
        wanted = self.selection.marked if ineligible is None else frozenset()
        return plan_node(state, wanted, verdicts, self.rule_set)

    def is_of(self, node: Node) -> bool:
        """Whether this node, and not a former one of its name, was decided on."""
        decided = self.nodes.get(node.name)
        return decided is not None and decided.uid == node.uid

    def views(self, nodes: Mapping[str, Node]) -> NodeViews:
        """What `/nodes` tells, of nodes as they are now (after the writes)."""
        return NodeViews(self, nodes)


class NodeViews(Mapping[str, NodeView]):
    """The state of each node in the last tick, by name; a view is made when somebody asks for it.

    What many ask of all nodes is answered from the columns. Immutable: ``nodes`` must not change.
    """

    def __init__(self, decision: Decision, nodes: Mapping[str, Node]) -> None:
        decided = decision.nodes
        self._decision = decision
        self._nodes = nodes
        self._changed: frozenset[str] = frozenset()
        if nodes is not decided:
            self._changed = frozenset(
                [name for name, node in nodes.items() if decided.get(name) is not node]
            )
            strange = [name for name in self._changed if not decision.is_of(nodes[name])]
            if strange:
                self._nodes = {n: node for n, node in nodes.items() if n not in set(strange)}
                self._changed -= set(strange)

    def __getitem__(self, name: str) -> NodeView:
        return self._view(self._nodes[name], self.evaluation.verdicts[name])

    def of(self, names: Sequence[str]) -> list[NodeView]:
        """Those of some nodes, in less time than one by one."""
        verdicts = self.evaluation.verdicts.of_nodes(self.places_of(names))
        return [
            self._view(self._nodes[name], verdict)
            for name, verdict in zip(names, verdicts, strict=True)
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    @property
    def evaluation(self) -> Evaluation:
        """The alerts and verdicts in columns; `places` says which element is which node's."""
        return self._decision.evaluation

    @property
    def expected(self) -> Mapping[str, ExpectedLoad]:
        """By rule: what is added to the nodes' measured loads."""
        return self._decision.expected

    @cached_property
    def places(self) -> Ints:
        """The place of each node in the columns, in our order."""
        roster = self._decision.survey.index.roster
        if roster.names == tuple(self._nodes):
            return np.arange(len(roster))
        return np.array(roster.places_of(self._nodes), np.int64)

    def places_of(self, names: Sequence[str]) -> list[int]:
        """The places of some nodes in the columns."""
        return self._decision.survey.index.roster.places_of(names)

    def pools_of(self, names: Sequence[str]) -> list[str]:
        """``NodeView.pool`` of some nodes."""
        guard = self._decision.rule_set.guard
        return [pool_of(self._nodes[name], guard) for name in names]

    @cached_property
    def hot(self) -> frozenset[str]:
        """The nodes on which a rule fires."""
        return self._named(self.evaluation.verdicts.hot)

    @cached_property
    def early(self) -> frozenset[str]:
        """Those that are not hot, and are to be avoided by their expected load."""
        return self._named(self.evaluation.verdicts.early)

    @cached_property
    def marked(self) -> frozenset[str]:
        """Those that carry the mark, a part of it, or the mark of an older configuration."""
        stay = (n for n in self._decision.survey.marked - self._changed if n in self._nodes)
        return frozenset(stay).union(
            [name for name, (state, _) in self._standings.items() if state.marked]
        )

    @cached_property
    def _standings(self) -> Mapping[str, tuple[MarkState, str | None]]:
        """`Decision.standing` of the nodes that changed since."""
        return {name: self._decision.standing(self._nodes[name]) for name in self._changed}

    def carrying(self, part: str) -> frozenset[str]:
        """Those that carry a part of the mark, as it stands in ``NodeView.carries``."""
        decision, nodes = self._decision, self._nodes
        mark = decision.survey.mark
        return frozenset(
            [n for n in self.marked if part in carried(decision.standing(nodes[n])[0], mark)]
        )

    @cached_property
    def ineligible(self) -> Mapping[str, str]:
        """Of those that must not be marked at all: why."""
        return self._those(self._decision.survey.ineligible, lambda found: found[1])

    @cached_property
    def withheld(self) -> Mapping[str, str]:
        """Of those that the guard leaves unmarked, or whose release it delays: why."""
        withheld = self._decision.selection.withheld
        return {name: why for name, why in withheld.items() if name in self._nodes}

    @cached_property
    def conflicts(self) -> Mapping[str, str]:
        """Of those on which something of somebody else stands in the mark's place: what."""
        return self._those(self._decision.survey.conflicts, lambda found: found[0].conflict)

    def _those(
        self,
        decided: Mapping[str, str],
        of: Callable[[tuple[MarkState, str | None]], str | None],
    ) -> Mapping[str, str]:
        """``decided`` of the nodes that stay as they were, and what is so ``of`` the others."""
        changed = self._changed
        found = {n: why for n, why in decided.items() if n in self._nodes and n not in changed}
        for name, standing in self._standings.items():
            why = of(standing)
            if why is not None:
                found[name] = why
        return found

    @cached_property
    def pools(self) -> Counter[tuple[str, bool]]:
        """How many that may be marked there are, by their pool and whether they are hot."""
        columns, hot = self._decision.survey.columns, self.evaluation.verdicts.hot
        # A node that changed since may be in another pool by now.
        aside = [n for n in self.ineligible.keys() | self._changed if n in self._nodes]
        counts = np.zeros(len(hot), np.bool_)
        counts[self.places] = True
        counts[self._decision.survey.index.roster.places_of(aside)] = False
        counted = np.flatnonzero(counts)
        numbers = np.bincount(2 * columns.kind[counted] + hot[counted]).tolist()
        found: Counter[tuple[str, bool]] = Counter()
        for place, number in enumerate(numbers):
            if number:
                found[columns.kinds[place // 2].pool, bool(place % 2)] += number
        guard = self._decision.rule_set.guard
        found.update(
            (pool_of(self._nodes[name], guard), name in self.hot)
            for name in self._changed.difference(self.ineligible)
        )
        return found

    @cached_property
    def due(self) -> list[str]:
        """Those that need a patch that has not been written."""
        return self.due_of(self._nodes)

    def due_of(self, names: Iterable[str]) -> list[str]:
        """`due`, of some nodes."""
        decision = self._decision
        concerned = [name for name in names if name in self._concerned]
        found = self.evaluation.verdicts.of_nodes(self.places_of(concerned))
        verdicts = dict(zip(concerned, found, strict=True))
        return [
            name
            for name in concerned
            if decision.due(*decision.standing(self._nodes[name]), verdicts)
        ]

    @cached_property
    def _concerned(self) -> frozenset[str]:
        """The nodes on which something can be due."""
        decision = self._decision
        return self._changed | decision.survey.touched | decision.selection.marked

    def _named(self, which: np.ndarray) -> frozenset[str]:
        names = self._decision.survey.index.roster.names
        found = [names[place] for place in np.flatnonzero(which)]
        return frozenset(name for name in found if name in self._nodes)

    def _view(self, node: Node, verdict: Verdict) -> NodeView:
        decision, name = self._decision, node.name
        state, ineligible = decision.standing(node)
        return NodeView(
            name=name,
            ineligible=ineligible,
            carries=carried(state, decision.survey.mark),
            pressured=verdict.pressured,
            since=verdict.since,
            alerts=verdict.alerts,
            due=decision.due(state, ineligible, {name: verdict}),
            conflict=state.conflict,
            withheld=decision.selection.withheld.get(name),
            early=verdict.early,
            pool=pool_of(node, decision.rule_set.guard),
            added=self._added_to(name),
        )

    def _added_to(self, node: str) -> Mapping[str, Added]:
        """By rule: what is added to the node's load; most often nothing."""
        expected = self._decision.expected
        return {rule: load.added[node] for rule, load in expected.items() if node in load.added}
