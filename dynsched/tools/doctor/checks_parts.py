"""The checks of the parts of an expression: P14 and P15."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from dynsched.core.samples import match_samples
from dynsched.tools.doctor.findings import Finding, warning
from dynsched.tools.doctor.rule_context import CheckedRule
from dynsched.util.formatting import one_line

_SHOWN: Final = 100


def fragile_joins(rule: CheckedRule) -> Iterator[Finding]:
    """Joins with series that nothing makes one for each group."""
    for join in rule.expression.joins:
        yield warning(
            "the query fails for all nodes as soon as one has two series in a join",
            f"nothing makes one series of each group: {one_line(join.one_side, _SHOWN)}",
            f"write in its place: {one_line(join.lasting, _SHOWN)}",
        )


async def alternatives_without_nodes(rule: CheckedRule) -> AsyncIterator[Finding]:
    """What stands before an ``or`` and has values, none of which is a node's."""
    if len(rule.expression.alternatives) == 1:
        return
    before: list[tuple[str, str]] = []
    for part in rule.expression.alternatives:
        found = match_samples(rule.rule, await rule.queries.samples(part), rule.context.lookup)
        if found.readings:
            break
        if found.unmatched:
            before.append((part, f"{found.unmatched[0].value}: {found.unmatched[0].reason}"))
    else:
        return  # N1 says that no node has a value
    for other, why in before:
        yield warning(
            "one part of an `or` gives all values of nodes, because those before it name no node",
            f"{one_line(other, _SHOWN)}: {why}",
            f"make {rule.rule.node_labels[0]} the name or an address of the node in this part",
        )
