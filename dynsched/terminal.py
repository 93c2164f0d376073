"""Tables for people: the answers of `/nodes` and `/nodes/NAME`, and planned patches.

On a terminal with colours and folded to its width; into a file or a pipe plain, one line a row,
nothing cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dynsched.core import keys
from dynsched.core.durations import format_duration
from dynsched.core.model import NodePatch
from dynsched.core.numbers import format_threshold, format_value

_STYLES: Final[Mapping[str, str]] = {
    "firing": "bold red",
    "pending": "yellow",
    "mark": "bold red",
    "release": "green",
    "repair": "yellow",
}
_CLEAR_OP: Final[Mapping[str, str]] = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_UNLIMITED: Final = 100_000
"""Columns of a file or a pipe."""


def render_nodes(payload: Mapping[str, Any], console: Console) -> None:
    """The answer of `/nodes`: how many are marked, and ``nodes_table``."""
    count, marked = len(payload["nodes"]), payload["num"]
    # Where marked nodes only were asked for, it is not known of how many.
    nodes = counted(marked, "node") if marked == count else f"{marked} of {counted(count, 'node')}"
    kind, _, mark = payload["type"].removesuffix(" Nodes").partition(" ")
    head = f"{nodes} marked ({kind.lower()} {mark}), at {payload['taken_at']}"
    _print(console, _text(f"{head}, dry run" if payload["dry_run"] else head))
    if count:
        _print(console, nodes_table(payload))


def nodes_table(payload: Mapping[str, Any]) -> Table:
    """The nodes of `/nodes`: marked ones first, then those under pressure, then by name."""
    nodes = sorted(
        payload["nodes"],
        key=lambda node: (not node["marked"], not node["pressured"], node["name"]),
    )
    table = _table("NODE", "MARKED", "SINCE", "RULES", "NOTE")
    for node in nodes:
        table.add_row(
            _text(node["name"]),
            _text("yes", "bold red") if node["marked"] else _text("-"),
            _text(_ago(node["since"], payload["taken_at"])),
            _rules_in_short(node["rules"]),
            _text(_note(node, dry_run=payload["dry_run"])),
        )
    return table


def render_why(payload: Mapping[str, Any], console: Console) -> None:
    """The answer of `/nodes/NAME`: why it is marked or not, each rule, and what would clear it."""
    _print(console, _text(_verdict(payload)))
    if payload["conflict"] and payload["marked"]:
        _print(console, _text(f"In conflict: {payload['conflict']}."))
    table = _table("RULE", "STATE", "VALUE", "THRESHOLD", "CLEARS AT", "SINCE", "SAMPLE")
    for rule in payload["rules"]:
        state = f"{rule['state']}, held" if rule["keep_firing_since"] else rule["state"]
        table.add_row(
            _text(rule["rule"]),
            _text(state, _STYLES.get(rule["state"], "")),
            _text(format_value(rule["value"])),
            _text(f"{rule['op']} {format_threshold(rule['threshold'])}"),
            _text(f"{_CLEAR_OP[rule['op']]} {format_threshold(rule['clear_threshold'])}"),
            _text(_ago(rule["since"], payload["taken_at"])),
            _text(_sample(rule), "" if rule["quality"] == "ok" else "yellow"),
        )
    if payload["rules"]:
        _print(console, table)
    if payload["clears"]:
        _print(console, _text("To clear:"))
        for sentence in payload["clears"]:
            _print(console, _text(f"- {sentence}"))


def render_patches(patches: Sequence[NodePatch], console: Console) -> None:
    """Patches that are due or done: what changes on which node, and why."""
    if not patches:
        _print(console, _text("Nothing to change."))
        return
    table = _table("ACTION", "NODE", "CHANGE", "REASON")
    for patch in sorted(patches, key=lambda patch: (patch.action, patch.node)):
        table.add_row(
            _text(patch.action.value, _STYLES[patch.action.value]),
            _text(patch.node),
            _text(", ".join(_changes(patch.body))),
            _text(patch.reason),
        )
    _print(console, table)


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print(console: Console, renderable: Text | Table) -> None:
    """Print within the terminal's width, unless that would break words; else as wide as it is."""
    # A file has no width; rich assumes 80 columns, and would fold or cut names of nodes. Of a
    # terminal too narrow for the words of a table the lines run over, as kubectl's do.
    wide = Console(file=console.file, width=_UNLIMITED)
    fits = console.is_terminal and wide.measure(renderable).minimum <= console.width
    (console if fits else wide).print(renderable)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        # Where there is no room for all, the names give way last.
        table.add_column(title, overflow="fold", no_wrap=title in ("NODE", "RULE"))
    return table


def _text(text: str, style: str = "") -> Text:
    # Text, not markup: brackets in a message are brackets. Control characters could move the
    # cursor, and some of what is shown was written by others.
    return Text("".join(c if c.isprintable() else "?" for c in text), style=style)


def _ago(since: str | None, now: str) -> str:
    if since is None:
        return "-"
    elapsed = datetime.fromisoformat(now) - datetime.fromisoformat(since)
    return format_duration(max(0.0, elapsed.total_seconds()))


def _rules_in_short(rules: Iterable[Mapping[str, Any]]) -> Text:
    parts = []
    for rule in rules:
        words = [rule["rule"], format_value(rule["value"])]
        if rule["state"] != "inactive":
            words.append(rule["state"])
        if rule["quality"] != "ok":
            words.append(f"({rule['quality']})")
        parts.append(_text(" ".join(words), _STYLES.get(rule["state"], "")))
    return Text(", ").join(parts)


def _note(node: Mapping[str, Any], *, dry_run: bool) -> str:
    notes = [f"conflict: {node['conflict']}" if node["conflict"] else None, node["withheld"]]
    if not node["eligible"]:
        notes.append("not eligible")
    if dry_run and not any(notes) and node["marked"] is not node["pressured"]:
        notes.append("would be released" if node["marked"] else "would be marked")
    return "; ".join(note for note in notes if note)


def _sample(rule: Mapping[str, Any]) -> str:
    age = rule["sample_age_seconds"]
    if age is None:
        return f"{rule['quality']}; never seen"
    last = f"{format_duration(round(age))} ago"
    return last if rule["quality"] == "ok" else f"{rule['quality']}; last {last}"


def _verdict(node: Mapping[str, Any]) -> str:
    """The headline of ``why``, in one or two sentences."""
    firing = [rule["rule"] for rule in node["rules"] if rule["state"] == "firing"]
    pending = [rule["rule"] for rule in node["rules"] if rule["state"] == "pending"]
    name = node["name"]
    have = "has" if len(firing) == 1 else "have"
    fires = f"{_listed(firing)} {have} been firing since {node['since']}"
    if node["marked"] and node["pressured"]:
        return f"{name} is marked ({node['mark']}): {fires}."
    if node["marked"]:
        reason = _why_not_yet(node, "goes")
        return f"{name} is marked ({node['mark']}), though no rule fires any more: {reason}."
    if node["pressured"]:
        return f"{name} is not marked: {_why_not_yet(node, 'comes')}. {fires}."
    also = f", pending: {_listed(pending)}" if pending else ""
    also += "" if node["eligible"] else "; it is not eligible"
    return f"{name} is not marked: no rule fires{also}."


def _why_not_yet(node: Mapping[str, Any], moves: str) -> str:
    """Why the mark is not what the rules say."""
    if node["withheld"]:
        return str(node["withheld"]).removeprefix("not marked: ")
    if moves == "comes" and not node["eligible"]:
        return "it is not eligible"
    if moves == "comes" and node["conflict"]:
        return str(node["conflict"])
    if node["dry_run"]:
        return "nothing is written in a dry run"
    return f"the mark {moves} with the next tick"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _changes(body: Mapping[str, Any]) -> Iterable[str]:
    """A merge patch in kubectl's words: ``status=presure`` is put, ``status-`` is removed."""
    metadata = body["metadata"]
    for key, value in metadata.get("labels", {}).items():
        yield f"label {key}-" if value is None else f"label {key}={value}"
    if "spec" in body:
        # The list holds the taints of others too; only ours are told by their key.
        ours = [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in body["spec"]["taints"] or ()
            if taint["key"].startswith(keys.ANNOTATION_PREFIX)
        ]
        yield f"taint {', '.join(ours)}" if ours else "taint removed"
    for key, value in metadata.get("annotations", {}).items():
        yield f"annotation {key}{'-' if value is None else ''}"
