"""Where the values of rules come from, and what follows from it for a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

SourceName = Literal["prometheus", "metrics-server", "bound-pods"]
FileSource = Literal["prometheus", "metrics-server"]
"""The sources that a rule in a file can name. ``bound-pods`` is that of ``guard.bind_burst``."""


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """In what a source differs from the others.

    ``needs``: the field of a rule that says what is asked; None where there is nothing to say.
    ``asked``: a service is asked over the network, so that an answer may fail to come, and one that
    comes is knowledge of a node. Else the process counts by itself: it always has a value, and a
    process of a single pass has counted nothing and is not expected to know any.
    ``scored``: without profiles, the extender scores by it.
    ``in_percent``: its values are percentages of what a node has, whatever the threshold.
    """

    needs: Literal["expr", "resource"] | None
    asked: bool = True
    scored: bool = True
    in_percent: bool = False


TRAITS: Final[Mapping[SourceName, SourceTraits]] = {
    "prometheus": SourceTraits(needs="expr"),
    "metrics-server": SourceTraits(needs="resource", in_percent=True),
    # Just-bound pods are added to every node's load: as a rule they would count twice.
    "bound-pods": SourceTraits(needs=None, asked=False, scored=False),
}
