"""Tables for people: the answers of `/nodes`, `/nodes/NAME` and `/order`, the order of a pod, and
patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from dynsched.core.marks import NodePatch
from dynsched.core.samples import Quality
from dynsched.core.wording import by_reason, changes, counted, listed, named_rules
from dynsched.rules.rule_set import CLEAR_OP
from dynsched.util.formatting import format_threshold, format_value
from dynsched.util.tables import STYLES, ago, make_table, named, plain, sample_age, show

_DONE: Final = {"mark": "marked", "release": "released", "repair": "brought up to date"}
_LEAST: Final = 0.05
"""A smaller load of pods is not shown, because it rounds to 0.0."""

Part = Mapping[str, Any]
"""A JSON object in an answer: for example a node, or a rule of a node."""


def render_nodes(payload: Part, console: Console, most: int | None = None) -> None:
    """Print the answer of `/nodes`: how many nodes are marked, then the worst ``most`` nodes (None:
    all).
    """
    nodes = sorted(payload["nodes"], key=_rank)
    shown = nodes[:most]
    rows = (
        (
            node["name"],
            plain("yes", "bold red") if node["marked"] else plain("-"),
            ago(node["since"], payload["taken_at"]),
            Text(", ").join(map(_in_short, node["rules"])),
            "; ".join(_notes(node, payload["mark"])),
        )
        for node in shown
    )
    show(console, *_head(payload))
    if len(shown) < len(nodes):
        show(console, f"The worst {len(shown)} of {len(nodes)} (--all shows every one):")
    show(console, make_table(("NODE", "MARKED", "SINCE", "RULES", "NOTE"), rows))


def _rank(node: Part) -> tuple[bool, bool, float, str]:
    """Sort key: marked nodes first, then hot ones, then by the highest `_excess`."""
    known = [rule for rule in node["rules"] if rule["value"] is not None and not rule["shadow"]]
    return (
        not node["marked"],
        not node["pressured"],
        -max(map(_excess, known), default=-inf),
        node["name"],
    )


def _excess(rule: Part) -> float:
    """How far the value is past the threshold, as a share of it; negative before it."""
    over: float = (rule["value"] - rule["threshold"]) / (abs(rule["threshold"]) or 1)
    return over if rule["op"] in (">", ">=") else -over


def _head(payload: Part) -> Iterator[str]:
    count, without_marks = len(payload["nodes"]), payload["counts"] == "hot"
    marked = [node for node in payload["nodes"] if node["marked"]]
    partly = sum(not _carries(node, payload["mark"]) for node in marked)
    number = payload["num"] if without_marks else len(marked) - partly
    nodes = f"{number} of {counted(count, 'node')}"
    carry = "would be marked" if payload["dry_run"] else "marked"
    head = f"{nodes} hot (mark: none)" if without_marks else f"{nodes} {carry} ({payload['mark']})"
    if partly:
        head += f", {partly} only in part or by an older configuration"
    yield f"{head}, at {payload['taken_at']}"
    if refused := payload["rules_error"]:
        stay = "what was in force before stays in force"
        yield from f"The rules file is refused; {stay}: {refused}".splitlines()
    yield from _failed_rules(payload)
    if failed := payload["order_error"]:
        yield f"The order for new pods cannot be kept: {failed}"


def _failed_rules(payload: Part) -> Iterator[str]:
    for why, names in by_reason(payload["failed_rules"]).items():
        yield f"The query of {named_rules(names)} failed: {why}"


def _carries(node: Part, mark: str) -> bool:
    """Whether a node has the whole mark."""
    return {*mark.split(" and ")} <= {*node["carries"]}


def _in_short(rule: Part) -> Text:
    words = [named(rule), _value(rule)]
    if rule["state"] != "inactive":
        words += [rule["state"], f"({_limit(rule)})"]
    if rule["quality"] != "ok":
        words.append(f"({rule['quality']})")
    return plain(" ".join(words), STYLES.get(rule["state"], ""))


def _limit(rule: Part) -> str:
    return f"{rule['op']} {format_threshold(rule['threshold'])}"


def _value(rule: Part) -> str:
    """The measured value, and the expected one if the rule compares it."""
    measured, expected = format_value(rule["value"]), rule["expected_value"]
    if expected is None or format_value(expected) == measured:
        return measured
    return f"{measured}, expected {format_value(expected)}"


def _notes(node: Part, mark: str) -> Iterator[str]:
    """Why a node is marked or not, apart from its rules. ``mark``: the configured mark."""
    if node["conflict"]:
        yield f"conflict: {node['conflict']}"
    if node["withheld"]:
        yield node["withheld"]
    if node["ineligible"]:
        yield f"not eligible: {node['ineligible']}"
    if node["marked"] and not _carries(node, mark):
        yield f"carries {listed(node['carries'])}"
    if due := node["due"]:
        yield f"is to be {_DONE[due['action']]}: {due['waits']}"
    if _is_unknown(node):
        yield "nothing is known"


def _is_unknown(node: Part) -> bool:
    """Whether no rule has a good sample."""
    found = [rule["quality"] for rule in node["rules"]]
    return bool(found) and Quality.OK not in found


def render_why(node: Part, console: Console) -> None:
    """Print the answer of `/nodes/NAME`: the node's state, its rules, and what would clear them."""
    heat = "not known to be hot" if _is_unknown(node) else "not hot"
    if node["pressured"]:
        heat = f"hot since {node['since']}"
    marked = f"marked ({listed(node['carries'])})" if node["marked"] else "not marked"
    notes = (f"- {note}" for note in _notes(node, node["mark"]))
    show(console, f"{node['name']} is {marked} and {heat}.", *notes, *_failed_rules(node))
    titles = ("RULE", "STATE", "VALUE", "THRESHOLD", "CLEARS AT", "SINCE", "SAMPLE")
    show(console, make_table(titles, (_cells(rule, node["taken_at"]) for rule in node["rules"])))
    for title, sentences in (
        ("Expected load, in points (100 is full):", list(_expected(node))),
        ("To clear:", node["clears"]),
    ):
        show(console, *([title] if sentences else []), *(f"- {each}" for each in sentences))


def _cells(rule: Part, now: str) -> Iterator[str | Text]:
    is_unknown = rule["state"] == "inactive" and rule["sample_age_seconds"] is None
    state = f"{rule['state']}{' (keep_firing_for)' if rule['keep_firing_since'] else ''}"
    yield named(rule)
    yield plain("unknown" if is_unknown else state, STYLES.get(rule["state"], ""))
    yield _value(rule)
    yield _limit(rule)
    yield f"{CLEAR_OP[rule['op']]} {format_threshold(rule['clear_threshold'])}"
    yield "-" if is_unknown else ago(rule["since"], now)
    yield plain(sample_age(rule), "" if rule["quality"] == "ok" else "yellow")


def _expected(node: Part) -> Iterator[str]:
    """One sentence for each rule whose expected load is adjusted for pods."""
    for rule in node["rules"]:
        load = rule["expected"]
        if load is not None and max(load["bound"], load["ended"]) >= _LEAST:
            yield (
                f"{rule['rule']}: {load['measured']:.1f} measured, +{load['bound']:.1f} by pods "
                f"that were bound, -{load['ended']:.1f} by pods that ended, "
                f"{load['load']:.1f} expected"
            )


def render_order(answer: Part, console: Console) -> None:
    """Print the answer of `/order`: whether it is in force, the counts, and the nodes by rank."""
    if answer["until"]:
        head = f"The order was written at {answer['written_at']}, in force until {answer['until']}."
    elif not answer["leading"]:
        head = f"This replica does not write the order; {answer['leader'] or 'none'} does."
    else:
        head = f"No order is in force{': this is a dry run' if answer['dry_run'] else ''}."
    show(console, head)
    if answer["error"]:
        show(console, f"It cannot be kept: {answer['error']}")
    if answer["counts"] is None:
        show(console, "There is none: no node is known to be cool, or ticks are overdue.")
        return
    counts = [f"{number} {kind}" for kind, number in answer["counts"].items() if number]
    rows = []
    for pool in answer["pools"]:
        for node in pool["nodes"]:
            load = "-" if node["load"] is None else f"{node['load']:.1f}"
            place = (pool["pool"] or "-", node["rank"], node["node"])
            load += " =" if node["equal"] else ""
            rows.append(map(str, (*place, load, node["weight"], node["list"])))
    titles = ("POOL", "RANK", "NODE", "LOAD", "WEIGHT", "LIST")
    table = make_table(titles, rows)
    show(console, f"Nodes: {', '.join(counts)}. Those with = are equally good.", table)


def render_pod_order(found: Part, console: Console) -> None:
    """Print the order that a pod got, and the node that the pod went to."""
    name, node = f"{found['namespace']}/{found['pod']}", found["node"]
    if found["why_not"]:
        show(console, f"{name} did not get the order: {found['why_not']}")
        return
    went = f"it went to {node}, which is in no level" if node else "it has no node yet"
    if found["level"]:
        went = f"it went to {node}, of level {found['level']}"
    show(console, f"{name} got the order that was in force until {found['until']}; {went}.")
    rows = (
        (
            str(number),
            str(level["weight"]),
            ("all but " if level["all_but"] else "") + ", ".join(level["nodes"]),
        )
        for number, level in enumerate(found["levels"], 1)
    )
    show(console, make_table(("LEVEL", "WEIGHT", "NODE"), rows))


def render_patches(patches: Iterable[NodePatch], console: Console) -> None:
    """Print patches that are due or were applied: what changes on which node, and why."""
    rows: Sequence[tuple[str | Text, ...]] = [
        (
            plain(each.action, STYLES[each.action]),
            each.node,
            ", ".join(changes(each.body)),
            each.reason,
        )
        for each in sorted(patches, key=lambda patch: (patch.action, patch.node))
    ]
    show(console, make_table(("ACTION", "NODE", "CHANGE", "REASON"), rows))
    if not rows:
        show(console, "Nothing to change.")
