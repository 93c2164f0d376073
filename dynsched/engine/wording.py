"""In words for a person: numbers and lists of names, what a patch changes, why nothing is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dynsched.engine.model import Quality
from dynsched.rules import keys

UNKNOWN: Final[Mapping[Quality, str]] = {
    Quality.MISSING: "the query's answer does not name this node",
    Quality.STALE: "the last sample is too old",
    Quality.INVALID: "the sample is no finite number",
    Quality.FAILED: "the query failed",
}
"""Why a rule has no current value for a node, by quality; there is no entry for OK."""
MAX_NAMED: Final = 20
"""The most names that one line lists; the others are counted."""


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """As ``listed``, but of many only the first: ``a, b, c and 97 more``."""
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def named_nodes(names: Sequence[str]) -> str:
    """For a sentence: the first of them, and how many more there are."""
    return f"node{'' if len(names) == 1 else 's'} {some(names)}"


def named_rules(names: Sequence[str]) -> str:
    """For a sentence: all of them."""
    return f"rule{'' if len(names) == 1 else 's'} {listed(names)}"


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Names by what is said of them: what several share (a wrong URL, say) is said once."""
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason, []).append(name)
    return found


def changes(body: Mapping[str, Any]) -> Iterable[str]:
    """A merge patch in kubectl's words: ``label status=presure`` is put, ``label status-`` is
    removed.
    """
    metadata = body["metadata"]
    for key, value in metadata.get("labels", {}).items():
        yield f"label {key}-" if value is None else f"label {key}={value}"
    if "spec" in body:
        # The list holds the taints of others too; only ours are recognised by their key.
        ours = [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in body["spec"]["taints"] or ()
            if taint["key"].startswith(keys.ANNOTATION_PREFIX)
        ]
        yield f"taint {', '.join(ours)}" if ours else "taint removed"
    for key, value in metadata.get("annotations", {}).items():
        yield f"annotation {key}{'-' if value is None else ''}"
