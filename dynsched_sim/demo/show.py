"""What the demo shows, all of it read from the operator's own `/nodes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dynsched.core.wording import counted
from dynsched.util.formatting import format_threshold, format_value
from dynsched.util.tables import ago
from dynsched_sim.load import HOT

_AROUND: Final = 7
"""Lines of the live picture that are not nodes: the titles, what is left out, the footer."""
_STYLES: Final[Mapping[str, str]] = {"firing": "bold red", "held": "red", "pending": "yellow"}


@dataclass(slots=True)
class Tally:
    """``marked``: by name, the node of `/nodes`."""

    hot: int = 0
    releases: int = 0
    marked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, payload: Mapping[str, Any], elapsed: float) -> list[str]:
        """Count what changed since the last `/nodes`; one line for a person for each change."""
        names, before = payload["node_names"], self.marked
        nodes = {node["name"]: node for node in payload["nodes"]}
        self.marked = {name: nodes[name] for name in sorted(names) if name in nodes}
        hot = [n for n in self.marked if _is_hot(self.marked[n]) and not _is_hot(before.get(n))]
        gone = [name for name in before if name not in self.marked]
        self.hot += len(hot)
        self.releases += len(gone)
        return [
            *(f"{elapsed:6.1f}s  {name} marked: {_why(nodes[name])}" for name in hot),
            *(f"{elapsed:6.1f}s  {name} released" for name in gone),
        ]

    def summary(self, elapsed: float, writes: int, hot: float, otherwise: float) -> str:
        return (
            f"After {elapsed:.0f}s: {counted(self.hot, 'mark')}, "
            f"{counted(self.releases, 'release')}, {len(self.marked)} marked now; "
            f"the API server saw {counted(writes, 'write')} to nodes. Over {HOT:g} % CPU: "
            f"{hot:.1%} of the nodes' time; with the same pods and no marks: {otherwise:.1%}."
        )


def _is_hot(node: Mapping[str, Any] | None) -> bool:
    return node is not None and bool(node["pressured"])


Show = Callable[[Mapping[str, Any], float], None]
"""Shows the operator's `/nodes`, with the seconds since the demo began."""


@contextmanager
def screen(console: Console, tally: Tally, summary: Callable[[], str]) -> Iterator[Show]:
    """On a terminal a table drawn anew each time; into a pipe a line for each change."""

    def lines(payload: Mapping[str, Any], elapsed: float) -> None:
        for line in tally.take(payload, elapsed):
            print_text(console, line)

    def picture(payload: Mapping[str, Any], elapsed: float) -> None:
        tally.take(payload, elapsed)
        table = nodes_table(payload, max(1, console.height - _AROUND))
        left_out = len(payload["nodes"]) - table.row_count
        notes = [f"... and {left_out} more: /nodes has them all"] if left_out else []
        notes.append(summary())
        live.update(Group(table, *(Text(note, "dim") for note in notes)), refresh=True)

    if not console.is_terminal:
        yield lines
        return
    with Live(console=console, auto_refresh=False) as live:
        yield picture


def print_text(console: Console, text: str = "") -> None:
    """Print a text as it is: not folded, no markup, no colours of numbers."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def nodes_table(payload: Mapping[str, Any], rows: int) -> Table:
    """The nodes by name; where there are more than ``rows``, the hottest of them."""
    nodes: Sequence[Mapping[str, Any]] = payload["nodes"]
    if len(nodes) > rows:
        nodes = sorted(nodes, key=_heat, reverse=True)[:rows]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("NODE", no_wrap=True)
    for rule in nodes[0]["rules"] if nodes else ():
        threshold = format_threshold(rule["threshold"])
        table.add_column(f"{rule['rule']} {rule['op']} {threshold}", no_wrap=True)
    table.add_column("MARK", no_wrap=True)
    for node in sorted(nodes, key=lambda node: node["name"]):
        readings = map(_reading, node["rules"])
        table.add_row(Text(node["name"]), *readings, _mark(node, payload))
    return table


def _reading(rule: Mapping[str, Any]) -> Text:
    state = rule["state"]
    style = _STYLES.get("held" if rule["keep_firing_since"] else state, "")
    value = rule["value"]
    shown = "    -" if value is None else f"{value:5.1f}"
    return Text(f"{shown} {'' if state == 'inactive' else state:7}", style)


def _mark(node: Mapping[str, Any], payload: Mapping[str, Any]) -> Text:
    if node["marked"]:
        age = f" {ago(node['since'], payload['taken_at'])}" if node["since"] else ""
        return Text(f"marked{age}", "bold red")
    return Text(node["conflict"] or node["withheld"] or "", "yellow")


def _heat(node: Mapping[str, Any]) -> tuple[bool, bool, float]:
    shares = ((rule["value"] or 0.0) / (rule["threshold"] or 1.0) for rule in node["rules"])
    return node["marked"], node["pressured"], max(shares, default=0.0)


def _why(node: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{rule['rule']} {format_value(rule['value'])} {rule['op']} "
        f"{format_threshold(rule['threshold'])}"
        for rule in node["rules"]
        if rule["state"] == "firing"
    )
