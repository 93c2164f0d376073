"""How large an answer of Prometheus may be.

A rule that forgot to aggregate (a series for each core and mode, where one for each node is meant)
fails by this alone, and does not take the process with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dynsched.sources.prometheus.query_errors import QueryFailedError

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
    """The most that one answer may hold, and for how many nodes. ``size`` in bytes of JSON;
    ``label`` names the node in the series.
    """

    nodes: int
    series: int
    size: int
    label: str = "instance"

    def check(self, series: int, size: int, parts: int = 0) -> None:
        """QueryFailedError for more than the limit allows. ``parts``: the values that the JSON is
        made of, by its commas. Each becomes an object of some 60 to 150 bytes; a label with its
        value has hardly fewer than PART_BYTES.
        """
        if series > self.series:
            found = f"has more than {self.series:,} series"
        elif size > self.size:
            found = f"is larger than {self.size / (1 << 20):.3g} MiB"
        elif parts > self.size // PART_BYTES:
            found = f"is made of more than {self.size // PART_BYTES:,} parts"
        else:
            return
        raise QueryFailedError(
            f"the answer {found}, in a cluster of {self.nodes:,} nodes; aggregate it by the "
            f"node, as in `sum by ({self.label}) (...)`, or select only this cluster's series"
        )


def answer_limit(nodes: int, rules: int) -> AnswerLimit:
    """The limit for each of ``rules`` that are asked side by side, in a cluster of ``nodes``."""
    share = max(1, rules)
    return AnswerLimit(
        nodes,
        max(NODE_SERIES * nodes, ROOM_SERIES // share),
        max(NODE_BYTES * nodes, ROOM_BYTES // share),
    )
