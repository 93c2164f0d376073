"""Tables for people: the answers of `/nodes` and `/nodes/NAME`, and planned patches.

On a terminal with colours and folded to its width; into a file or a pipe plain, one line a row,
nothing cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dynsched.cli import node_words
from dynsched.engine.model import NodePatch
from dynsched.engine.wording import changes, counted, listed
from dynsched.rules.rule_set import beside_refusal
from dynsched.util.formatting import format_threshold, format_value
from dynsched.util.tables import STYLES, ago, make_table, named, plain, sample_age, show

_CLEAR_OP: Final[Mapping[str, str]] = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


def render_nodes(payload: Mapping[str, Any], console: Console) -> None:
    """The answer of `/nodes`: how many are marked, and the table of them."""
    show(console, *_nodes_head(payload), _nodes_table(payload))


def _nodes_head(payload: Mapping[str, Any]) -> list[str]:
    count, mark, without_marks = len(payload["nodes"]), _mark(payload), payload["counts"] == "hot"
    marked = [node for node in payload["nodes"] if node["marked"]]
    otherwise = sum(not _carries(node, mark) for node in marked)
    number = payload["num"] if without_marks else len(marked) - otherwise
    # Where marked nodes only were asked for, it is not known of how many.
    nodes = counted(number, "node") if number == count else f"{number} of {counted(count, 'node')}"
    head = f"{nodes} hot (mark: none)" if without_marks else f"{nodes} marked ({mark})"
    if otherwise > 0:
        head += f", {otherwise} only in part or by an older configuration"
    head += f", at {payload['taken_at']}"
    lines = [f"{head}, dry run" if payload["dry_run"] else head]
    if refused := payload["rules_error"]:
        lines += f"The rules file is refused{beside_refusal(refused)}: {refused}".splitlines()
    if failed := payload.get("order_error"):  # an older dynsched has no such key
        lines.append(f"The order for new pods cannot be kept: {failed}")
    return lines


def _mark(payload: Mapping[str, Any]) -> str:
    """The whole mark; an older dynsched tells a part of it."""
    return str(payload.get("mark", payload["counts"]))


def _carries(node: Mapping[str, Any], mark: str) -> bool:
    return {*mark.split(" and ")} <= {*node["carries"]}


_NODE_TITLES: Final = ("NODE", "MARKED", "SINCE", "RULES", "NOTE")


def _nodes_table(payload: Mapping[str, Any]) -> Table:
    """The nodes of `/nodes`: marked ones, then hot ones, then by name."""
    nodes = sorted(
        payload["nodes"],
        key=lambda node: (not node["marked"], not node["pressured"], node["name"]),
    )
    return make_table(_NODE_TITLES, (_node_row(node, payload) for node in nodes))


def _node_row(node: Mapping[str, Any], payload: Mapping[str, Any]) -> tuple[str | Text, ...]:
    return (
        node["name"],
        _marked(node),
        ago(node["since"], payload["taken_at"]),
        _rules_in_short(node["rules"]),
        _note(node, _mark(payload), dry_run=payload["dry_run"]),
    )


def render_why(payload: Mapping[str, Any], console: Console) -> None:
    """The answer of `/nodes/NAME`: why it is marked or not, each rule, and what would clear it."""
    show(console, node_words.verdict(payload))
    if payload["conflict"] and payload["marked"]:
        show(console, f"In conflict: {payload['conflict']}.")
    if payload["due"] and payload["marked"] and payload["pressured"]:
        show(console, node_words.due_in_full(payload["due"]))
    rows = []
    for rule in payload["rules"]:
        state, value, limit, sample = rule_cells(rule, "unknown" if _never_seen(rule) else None)
        clears = f"{_CLEAR_OP[rule['op']]} {format_threshold(rule['clear_threshold'])}"
        since = "-" if _never_seen(rule) else ago(rule["since"], payload["taken_at"])
        rows.append((named(rule), state, value, limit, clears, since, sample))
    titles = ("RULE", "STATE", "VALUE", "THRESHOLD", "CLEARS AT", "SINCE", "SAMPLE")
    show(console, make_table(titles, rows))
    for title, sentences in (
        ("Expected load, in points (100 is full):", node_words.expected_parts(payload)),
        ("To clear:", payload["clears"]),
    ):
        show(console, *([title] if sentences else []), *(f"- {each}" for each in sentences))


def rule_cells(rule: Mapping[str, Any], state: str | None = None) -> tuple[str | Text, ...]:
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


def render_left(payload: Mapping[str, Any], console: Console, node: str | None = None) -> None:
    """What `tools.left_marks` found, of ``node`` or of all."""
    nodes = payload["nodes"]
    kept = "no dynsched is ready that would mark or release nodes"
    count = counted(len(nodes), "node") if node is None else f"{node} is{'' if nodes else ' not'}"
    show(console, f"{count} marked, at {payload['at']}; {kept}")
    rows = []
    for each in nodes:
        since = f"{each['since']} ({ago(each['since'], payload['at'])} ago)"
        by = each["by"] or "not known: there is no evidence beside the mark"
        rows.append(
            (
                each["name"],
                by,
                "-" if each["since"] is None else since,
                ", ".join(map(_fired, each["rules"])) or "-",
                listed(each["carries"]) or "the evidence alone",
            )
        )
    if nodes:
        show(console, make_table(("NODE", "MARKED BY", "SINCE", "RULES", "CARRIES"), rows))
        show(console, "`dynsched prune` removes marks; a dynsched that starts takes them over.")


def _fired(rule: Mapping[str, Any]) -> str:
    value, threshold = rule["value"], rule["threshold"]
    limit = "" if threshold is None else f" (threshold {format_threshold(threshold)})"
    return f"{rule['rule']} {format_value(value)}{limit}"


def render_patches(patches: Sequence[NodePatch], console: Console) -> None:
    """Patches that are due or done: what changes on which node, and why."""
    if not patches:
        show(console, "Nothing to change.")
    rows = (
        (
            plain(each.action, STYLES[each.action]),
            each.node,
            ", ".join(changes(each.body)),
            each.reason,
        )
        for each in sorted(patches, key=lambda patch: (patch.action, patch.node))
    )
    show(console, make_table(("ACTION", "NODE", "CHANGE", "REASON"), rows))


def _rules_in_short(rules: Iterable[Mapping[str, Any]]) -> Text:
    parts = []
    for rule in rules:
        words = [named(rule), _value(rule)]
        if rule["state"] != "inactive":
            words.append(rule["state"])
        if rule["quality"] != "ok":
            words.append(f"({rule['quality']})")
        if rule.get("expected_value") is None and node_words.is_changed_by_pods(rule):
            words.append(f"(expected {rule['expected']['load']:.1f} points)")
        parts.append(plain(" ".join(words), STYLES.get(rule["state"], "")))
    return Text(", ").join(parts)


def _value(rule: Mapping[str, Any]) -> str:
    """The measured value, and the expected one where the rule compares that."""
    measured, expected = format_value(rule["value"]), rule.get("expected_value")
    if expected is None or format_value(expected) == measured:
        return measured
    return f"{measured}, expected {format_value(expected)}"


def _marked(node: Mapping[str, Any]) -> Text:
    return plain("yes", "bold red") if node["marked"] else plain("-")


def _never_seen(rule: Mapping[str, Any]) -> bool:
    """Whether a rule is inactive on a node only because it never had a sample of it."""
    return rule["state"] == "inactive" and rule["sample_age_seconds"] is None


def _note(node: Mapping[str, Any], mark: str, *, dry_run: bool) -> str:
    notes = [f"conflict: {node['conflict']}" if node["conflict"] else None, node["withheld"]]
    if node["ineligible"]:
        notes.append(f"not eligible: {node['ineligible']}")
    if node["marked"] and not _carries(node, mark):
        notes.append(f"carries {listed(node['carries'])}")
    if node["due"]:
        notes.append(node_words.due_in_short(node["due"], dry_run=dry_run))
    if node_words.is_unknown(node):
        notes.append("nothing is known")
    return "; ".join(note for note in notes if note)
