"""Whether a pod prefers nodes without the mark, as the admission policy decides it.

The policy itself is text for the API server (`dynsched.tools.inject.policy`). What is said here of
its exceptions and of a pod's own preferences is the same in Python, for pods that exist already; a
test compares the two on a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dynsched.rules import keys
from dynsched.rules.labels import LabelMark


@dataclass(frozen=True, slots=True)
class Term:
    """One expression of a preference: ``key NotIn (a, b)``."""

    key: str
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    """The kinds of its owners."""
    preferred: tuple[Term, ...] = ()
    """The label expressions in its soft node affinity."""


class Standing(StrEnum):
    AVOIDS = "avoids"
    """It prefers other nodes."""
    EXEMPT = "exempt"
    """It is not to have the preference: it opted out, belongs to a DaemonSet, or has a preference
    of its own about the label."""
    LACKS = "lacks"
    """It would get the preference if it were created now."""


def standing(pod: PodFacts, mark: LabelMark) -> Standing:
    own = [term for term in pod.preferred if term.key == mark.key]
    if any(term.operator == "NotIn" and mark.value in term.values for term in own):
        return Standing.AVOIDS
    if own or _opted_out(pod) or "DaemonSet" in pod.owners:
        return Standing.EXEMPT
    return Standing.LACKS


def _opted_out(pod: PodFacts) -> bool:
    given: Sequence[Mapping[str, str]] = (pod.labels, pod.annotations)
    return any(each.get(keys.AVOID_LABEL) == "false" for each in given)
