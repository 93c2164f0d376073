"""Text for people: counts, lists of names, the changes of a patch, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from dynsched.rules.labels import own_taints

REASONS: Final[Mapping[str, str]] = {
    "both": "{0}, {1}",
    # Why a rule has no current value for a node: the values of Quality.
    "missing": "the query's answer does not name this node",
    "stale": "the last sample is too old",
    "invalid": "the sample is no finite number, or no load that can be",
    "failed": "the query failed",
    # Why no sample of a rule matches a node.
    "selects_none": "its selector {0} matches no node",
    "no_series": "the query's result is empty; does the metric exist?",
    "no_metrics": "metrics-server lists no node; it needs some seconds after it has started",
    "no_label": "{0}; keep that label when aggregating, or set node_label",
    "no_node": "{0}: {1}",
    # Why a node must not be marked.
    "ignored": "it has the label {0}",
    "control_plane": "it is a control-plane node (label {0})",
    "virtual": "it is a virtual node (label {0})",
    "not_selected": "nodes.selector wants {0}",
    "conflict": "{0} was set by somebody else",
    # Why a node is not marked yet, or not released yet.
    "max_marked": "not marked: guard.max_marked is {0}",
    "max_releases": "release delayed: guard.max_releases is {0}",
    "max_writes": "not written yet: guard.max_writes_per_minute is {0}",
    "mark_none": "not marked: mark is none",
    "left": "an older mark stays: mark is none, so dynsched writes no node; "
    "`dynsched prune --rules rules.yaml` removes it",
    # Why a mark is put on a node, or removed.
    "fires": "{0} {1} {2}",
    "fired": "{0} was {1}, is {2}",
    "expected": "{0} {1} measured, {2} expected {3}",
    "expected_pod": "{0} {1} measured, {2} expected with 1 new pod {3}",
    "expected_pods": "{0} {1} measured, {2} expected with {4} new pods {3}",
    "no_rule": "no rule fires any more",
    "no_value": "no rule has a current value any more",
    "not_eligible": "the node is not eligible: {0}",
    "hotter": "another node is hotter and the number of marks is limited",
    # What would clear a firing rule.
    "clears": "{0} must be {1} (is {2})",
    "clears_for": "{0} must be {1} (is {2}), then stay there for {3}",
    "stays": "{0} must stay {1} (is {2}) for {3} more",
    "good_sample": "{0} needs a good sample {1} (no current value: {2}), "
    "or no good sample for {3} more",
    "good_sample_alone": "{0} needs a good sample {1} (no current value: {2}; on_stale: hold)",
}
"""Sentences, keyed by code. The page has its own sentence for each code (static/texts.js)."""


class Reason(str):
    """An English sentence, with the code and values from which the page makes its own."""

    __slots__ = ("code", "values")
    code: str
    values: tuple[str, ...]

    def __new__(cls, code: str, *values: str) -> Self:
        made = super().__new__(cls, REASONS[code].format(*values))
        made.code, made.values = code, values
        return made


def coded(reason: Any) -> list[str]:
    """The form of a reason on the page. msgspec does not encode subclasses of str: use this as its
    ``enc_hook``.
    """
    if not isinstance(reason, Reason):
        raise NotImplementedError(f"{type(reason)} is not encoded")
    return [reason.code, *reason.values]


MAX_NAMED: Final = 20
"""Maximum number of names that one line lists; the others are counted."""


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Like `listed`, but only the first of many: ``a, b, c and 97 more``."""
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def named_nodes(names: Sequence[str]) -> str:
    """``node a`` or ``nodes a and b``, with only the first of many."""
    return f"node{'' if len(names) == 1 else 's'} {some(names)}"


def named_rules(names: Sequence[str]) -> str:
    """``rule a`` or ``rules a and b``, with all of them."""
    return f"rule{'' if len(names) == 1 else 's'} {listed(names)}"


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Names keyed by their reason, so that a shared reason (such as a wrong URL) appears once."""
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason, []).append(name)
    return found


def changes(body: Mapping[str, Any]) -> Iterable[str]:
    """The changes of a merge patch, as kubectl writes them: ``label status=presure`` is set,
    ``label status-`` is removed.
    """
    metadata = body["metadata"]
    for key, value in metadata.get("labels", {}).items():
        yield f"label {key}-" if value is None else f"label {key}={value}"
    if "spec" in body:
        # The list holds the taints of others too.
        ours = [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in own_taints(body["spec"]["taints"] or ())
        ]
        yield f"taint {', '.join(ours)}" if ours else "taint removed"
    for key, value in metadata.get("annotations", {}).items():
        yield f"annotation {key}{'-' if value is None else ''}"
