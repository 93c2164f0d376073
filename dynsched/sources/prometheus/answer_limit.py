"""How large an answer of Prometheus may be.

A rule that forgot to aggregate (a series for each core and mode, where one for each node is meant)
fails by this alone, and does not take the process with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ROOM_SERIES: Final = 50_000
"""Series that all rules of a small cluster may have together. One with nine labels takes up to 2 kB
while its answer is read: 100 MB, beside some 90 of the process, in a container of 256 MiB."""
ROOM_BYTES: Final = 8 << 20
"""Bytes of JSON, likewise. A point of a range takes ten times its size there: 80 MB."""
NODE_SERIES: Final = 2
NODE_BYTES: Final = 2048
"""What a rule may have for each node, however many nodes and rules there are: a node that has just
been replaced has two series for a while; one that its labels are copied to has 2 kB of them."""

PART_BYTES: Final = 8
"""Bytes of JSON for each part (a label, a value, a time). An answer of `{}` alone has a part
in three, and would take a hundred times its size."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The most that one answer may hold, and for how many nodes. ``size`` in bytes of JSON."""

    nodes: int
    series: int
    size: int
    parts: int = field(init=False)
    """The most values that the JSON may be made of, by its commas. Each becomes an object of some
    60 to 150 bytes; a label with its value has hardly fewer than PART_BYTES. Computed."""

    def __post_init__(self) -> None:
        """Compute ``parts`` once for an answer, whose chunks are all compared with it."""
        object.__setattr__(self, "parts", self.size // PART_BYTES)


def answer_limit(nodes: int, rules: int) -> AnswerLimit:
    """The limit for each of ``rules`` that are asked side by side, in a cluster of ``nodes``."""
    share = max(1, rules)
    return AnswerLimit(
        nodes,
        max(NODE_SERIES * nodes, ROOM_SERIES // share),
        max(NODE_BYTES * nodes, ROOM_BYTES // share),
    )
