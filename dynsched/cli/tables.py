"""Tables for people: the answers of `/nodes`, `/nodes/NAME` and `/order`, patches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from dynsched.core.marks import NodePatch
from dynsched.core.samples import Quality
from dynsched.core.wording import Reason, by_reason, changes, counted, listed, named_rules
from dynsched.rules.rule_set import CLEAR_OP
from dynsched.util.formatting import format_threshold, format_value
from dynsched.util.tables import STYLES, ago, make_table, named, plain, sample_age, show

_DONE: Final = {"mark": "marked", "release": "released", "repair": "brought up to date"}
_LEAST: Final = 0.05
"""The least load by pods that is shown, which is rounded to 0.1."""

Part = Mapping[str, Any]
"""A part of an answer: a node, or one rule on it, as JSON."""


def render_nodes(payload: Part, console: Console) -> None:
    """The answer of `/nodes`: how many are marked; then the marked ones, the hot ones, others."""
    nodes = sorted(
        payload["nodes"],
        key=lambda node: (not node["marked"], not node["pressured"], node["name"]),
    )
    rows = (
        (
            node["name"],
            plain("yes", "bold red") if node["marked"] else plain("-"),
            ago(node["since"], payload["taken_at"]),
            Text(", ").join(map(_in_short, node["rules"])),
            "; ".join(_notes(node, payload)),
        )
        for node in nodes
    )
    table = make_table(("NODE", "MARKED", "SINCE", "RULES", "NOTE"), rows)
    show(console, *_head(payload), table)


def _head(payload: Part) -> Iterator[str]:
    count, without_marks = len(payload["nodes"]), payload["counts"] == "hot"
    marked = [node for node in payload["nodes"] if node["marked"]]
    partly = sum(not _carries(node, payload) for node in marked)
    number = payload["num"] if without_marks else len(marked) - partly
    # With ?marked=true, the number of all nodes is not known.
    nodes = counted(number, "node") if number == count else f"{number} of {counted(count, 'node')}"
    head = f"{nodes} hot (mark: none)" if without_marks else f"{nodes} marked ({payload['mark']})"
    if partly:
        head += f", {partly} only in part or by an older configuration"
    yield f"{head}, at {payload['taken_at']}{', dry run' if payload['dry_run'] else ''}"
    if refused := payload["rules_error"]:
        stay = "what was in force before stays in force"
        yield from f"The rules file is refused; {stay}: {refused}".splitlines()
    yield from _failed_rules(payload)
    if failed := payload["order_error"]:
        yield f"The order for new pods cannot be kept: {failed}"


def _failed_rules(payload: Part) -> Iterator[str]:
    for why, names in by_reason(payload["failed_rules"]).items():
        yield f"The query of {named_rules(names)} failed: {why}"


def _carries(node: Part, payload: Part) -> bool:
    """Whether a node has the whole mark."""
    return {*payload["mark"].split(" and ")} <= {*node["carries"]}


def _in_short(rule: Part) -> Text:
    words = [named(rule), _value(rule)]
    if rule["state"] != "inactive":
        words.append(rule["state"])
    if rule["quality"] != "ok":
        words.append(f"({rule['quality']})")
    return plain(" ".join(words), STYLES.get(rule["state"], ""))


def _value(rule: Part) -> str:
    """The measured value, and the expected one where the rule compares that."""
    measured, expected = format_value(rule["value"]), rule["expected_value"]
    if expected is None or format_value(expected) == measured:
        return measured
    return f"{measured}, expected {format_value(expected)}"


def _notes(node: Part, payload: Part) -> Iterator[str]:
    if node["conflict"]:
        yield f"conflict: {node['conflict']}"
    if node["withheld"]:
        yield node["withheld"]
    if node["ineligible"]:
        yield f"not eligible: {node['ineligible']}"
    if node["marked"] and not _carries(node, payload):
        yield f"carries {listed(node['carries'])}"
    if due := node["due"]:
        yield f"is to be {_DONE[due['action']]}: {due['waits']}"
    if _is_unknown(node):
        yield "nothing is known"


def render_why(node: Part, console: Console) -> None:
    """The answer of `/nodes/NAME`: why it is marked or not, each rule, and what would clear it."""
    show(console, _verdict(node), *_failed_rules(node))
    if node["conflict"] and node["marked"]:
        show(console, f"In conflict: {node['conflict']}.")
    if (due := node["due"]) and node["marked"] and node["pressured"]:
        why = f"({', '.join(due['changes'])}; {due['reason']})"
        show(console, f"It is to be {_DONE[due['action']]} {why}: {due['waits']}.")
    rows = []
    for rule in node["rules"]:
        never_seen = rule["state"] == "inactive" and rule["sample_age_seconds"] is None
        state, value, limit, sample = rule_cells(rule, "unknown" if never_seen else None)
        clears = f"{CLEAR_OP[rule['op']]} {format_threshold(rule['clear_threshold'])}"
        since = "-" if never_seen else ago(rule["since"], node["taken_at"])
        rows.append((named(rule), state, value, limit, clears, since, sample))
    titles = ("RULE", "STATE", "VALUE", "THRESHOLD", "CLEARS AT", "SINCE", "SAMPLE")
    show(console, make_table(titles, rows))
    for title, sentences in (
        ("Expected load, in points (100 is full):", list(_expected(node))),
        ("To clear:", node["clears"]),
    ):
        show(console, *([title] if sentences else []), *(f"- {each}" for each in sentences))


def _verdict(node: Part) -> str:
    name, firing = node["name"], _in_state(node, "firing")
    fires = f"{listed(firing)} {'has' if len(firing) == 1 else 'have'} been firing since "
    fires += f"{node['since']}."
    waits = node["due"]["waits"] if node["due"] else "the next tick decides"
    ineligible = node["ineligible"] and f"it is not eligible: {node['ineligible']}"
    if node["marked"]:
        marked = f"{name} is marked ({listed(node['carries'])})"
        if node["pressured"]:
            return f"{marked}: {fires}"
        return f"{marked}, but no rule fires any more: {node['withheld'] or waits}."
    if node["pressured"]:
        unmarked = f"not marked: {ineligible or node['conflict'] or waits}"
        return f"{name} is {node['withheld'] or unmarked}. {fires}"
    why = "; ".join(filter(None, (_why_cool(node), ineligible)))
    return f"{name} is not marked: {why}."


def _why_cool(node: Part) -> str:
    unknown: dict[str, list[str]] = {}
    for rule in node["rules"]:
        if rule["quality"] != Quality.OK:
            unknown.setdefault(Reason(rule["quality"]), []).append(rule["rule"])
    gaps = ", ".join(
        f"{listed(rules)} {'has' if len(rules) == 1 else 'have'} no value for it ({why})"
        for why, rules in unknown.items()
    )
    if _is_unknown(node):
        return f"nothing is known of it: {gaps}"
    pending = _in_state(node, "pending")
    also = f", pending: {listed(pending)}" if pending else ""
    return f"no rule fires{also}" + (f"; {gaps}" if gaps else "")


def _in_state(node: Part, state: str) -> list[str]:
    """The rules that are in it on the node and may mark it as hot."""
    return [rule["rule"] for rule in node["rules"] if rule["state"] == state and not rule["shadow"]]


def _is_unknown(node: Part) -> bool:
    """Whether no rule has a good sample."""
    found = [rule["quality"] for rule in node["rules"]]
    return bool(found) and Quality.OK not in found


def _expected(node: Part) -> Iterator[str]:
    """``node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, 64.9
    expected``, for each rule to which pods add something.
    """
    for rule in node["rules"]:
        load = rule["expected"]
        if load is None or max(load["bound"], load["ended"]) < _LEAST:
            continue
        parts = [f"{load['measured']:.1f} measured"]
        if load["bound"] >= _LEAST:
            parts.append(f"+{load['bound']:.1f} by pods that were bound")
        if load["ended"] >= _LEAST:
            parts.append(f"-{load['ended']:.1f} by pods that ended")
        yield f"{rule['rule']}: {', '.join(parts)}, {load['load']:.1f} expected"


def rule_cells(rule: Part, state: str | None = None) -> tuple[str | Text, ...]:
    """Four cells of a rule on a node: state, value, threshold, age of the sample. ``state``: a text
    to show in place of the rule's own.
    """
    kept = f"{rule['state']}{' (keep_firing_for)' if rule['keep_firing_since'] else ''}"
    return (
        plain(state or kept, STYLES.get(rule["state"], "")),
        _value(rule),
        f"{rule['op']} {format_threshold(rule['threshold'])}",
        plain(sample_age(rule), "" if rule["quality"] == "ok" else "yellow"),
    )


def render_order(answer: Part, console: Console) -> None:
    """The answer of `/order`: whether it is in force, how many nodes it has, and those by rank."""
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
    """The order that a pod got, and where the pod went."""
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
    """Patches that are due or done: what changes on which node, and why."""
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
