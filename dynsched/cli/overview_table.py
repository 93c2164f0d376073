"""The output of `dynsched top`: the JSON report, and a table of it for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins
from rich.console import Console
from rich.text import Text

from dynsched.controller.overview import Overview
from dynsched.core.nodes import Node
from dynsched.core.wording import counted, some
from dynsched.features.order.status import NodeInOrder
from dynsched.kube.inspection import PodTotals
from dynsched.rules.shipped import CPU, MEMORY
from dynsched.util.formatting import MAX_ROWS
from dynsched.util.tables import STYLES, make_table, plain, show

Part = Mapping[str, Any]
"""A part of the report."""
_RULES: Final = {"cpu": CPU, "memory": MEMORY}
"""By resource, the rule that measures it."""
_NAMES: Final = {"cpu": "CPU", "memory": "memory"}
_TITLES: Final = (
    *("NODE", "HOT", "CPU USED", "REQUESTS", "LIMITS", "MEMORY USED", "REQUESTS", "LIMITS"),
    *("PODS", "NEW PODS"),
)
_ROOM_FOR_BARS: Final = 130
"""Width of a terminal from which on the used percentages have bars."""
_COOLEST: Final = 3
"""Number of preferred nodes that are named."""


def report(overview: Overview) -> dict[str, Any]:
    """The JSON report: the nodes, worst first, and their totals. Unknown values are None."""
    places = overview.places()
    table = overview.tick.evaluation.table
    nodes = [_node(overview, node, places.get(name)) for name, node in table.nodes.items()]
    nodes.sort(key=lambda node: (not node["hot"], -_worst(node), node["name"]))
    rules, is_measured = overview.tick.rule_set.by_name, overview.source is not None
    totals = {each: _total([node[each] for node in nodes]) for each in (*_RULES, "pods")}
    hot = sum(bool(node["hot"]) for node in nodes) if is_measured else None
    return {
        "cluster": overview.cluster,
        "source": overview.source,
        "hot_above": {each: rules[rule].threshold for each, rule in _RULES.items()},
        "nodes": nodes,
        "totals": {"nodes": len(nodes), "hot": hot, **totals},
        "notes": overview.notes,
        "next": _next_step(overview, hot),
    }


def _node(overview: Overview, node: Node, place: NodeInOrder | str | None) -> dict[str, Any]:
    evaluation, name = overview.tick.evaluation, node.name
    used = {rule: alert.good_value for rule, alert in evaluation.alerts[name].items()}
    is_known = any(value is not None for value in used.values())
    pods = None if overview.pods is None else overview.pods.get(name, PodTotals())
    found: dict[str, Any] = {"name": name}
    found["hot"] = name in evaluation.hot if is_known else None
    firing = {rule.name for rule, _ in evaluation.pressures[name].firing} if is_known else ()
    found["hot_resources"] = [each for each, rule in _RULES.items() if rule in firing]
    found["new_pods"] = {"why_not": place} if isinstance(place, str) else to_builtins(place)
    found["pods"] = {"allocatable": node.allocatable.get("pods"), "count": pods and pods.pods}
    for resource, rule in _RULES.items():
        found[resource] = {
            "allocatable": node.allocatable.get(resource),
            "used_percent": used.get(rule),
            "requests": pods and getattr(pods, resource),
            "limits": pods and getattr(pods, f"{resource}_limits"),
        }
    return found


def _total(parts: Sequence[Part]) -> dict[str, float | None]:
    """Sums of known values. ``used_percent`` is the mean of measured nodes, weighted by size."""
    found: dict[str, float | None] = {}
    for key in parts[0] if parts else ():
        known = [part for part in parts if part[key] is not None and part["allocatable"]]
        if key == "used_percent":
            used = sum(part[key] * part["allocatable"] for part in known)
            found[key] = used / sum(part["allocatable"] for part in known) if known else None
        else:
            found[key] = sum(part[key] for part in known) if known else None
    return found


def _worst(node: Part) -> float:
    """The highest use of a resource, in percent; if no use is known, the highest request."""
    used = [node[resource]["used_percent"] for resource in _RULES]
    known: list[float] = [value for value in used if value is not None]
    return max(known or [_percent(node[resource], "requests") or 0.0 for resource in _RULES])


def _percent(part: Part, key: str) -> float | None:
    amount, most = part[key], part["allocatable"]
    return 100 * amount / most if amount is not None and most else None


def _next_step(overview: Overview, hot: int | None) -> str:
    if overview.source is None and any("you may not" in note for note in overview.notes):
        return "ask an administrator for the ClusterRole dynsched-kubectl (docs/look.md#roles)"
    if overview.source is None:
        return "install metrics-server, or name a Prometheus elsewhere: dynsched top --prom URL"
    if overview.tick.rule_set.rules[0].source == "metrics-server":
        rules = "docs/examples/metrics-server.yaml"
        return f"`dynsched plan -r {rules}` shows which nodes dynsched would mark"
    if hot:
        return "`dynsched plan` shows which nodes dynsched would mark, and why"
    return "no node is hot now; `dynsched backtest` shows how often some were in the last 7 days"


def render(found: Part, console: Console, *, every: bool = False) -> None:
    """Print the worst MAX_ROWS nodes (``every``: all) and their totals, notes, and a next step."""
    nodes, totals = found["nodes"], found["totals"]
    head = [f"{counted(totals['nodes'], 'node')}: what they use is not known"]
    if found["source"]:
        above = " or ".join(
            f"{most:g} % {_NAMES[name]}" for name, most in found["hot_above"].items()
        )
        count = f"{counted(totals['nodes'], 'node')}, {totals['hot']} hot"
        head = [f"{count} (above {above})", found["source"]]
    shown = nodes if every else nodes[:MAX_ROWS]
    if len(shown) < len(nodes):
        head.append(f"The worst {len(shown)} (--all shows every one):")
    last = {**totals, "name": f"all {len(nodes)}", "hot": None, "hot_resources": []}
    ranked = [node for node in nodes if "rank" in (node["new_pods"] or {})]
    ranked.sort(key=lambda node: node["new_pods"]["rank"])
    shares_first = sum(node["new_pods"]["equal"] for node in ranked) > 1
    bars = console.is_terminal and console.width >= _ROOM_FOR_BARS
    rows = [
        _row(node, found["hot_above"], shares_first=shares_first, bars=bars)
        for node in (*shown, last)
        if nodes
    ]
    show(console, *head, make_table(_TITLES, rows), *found["notes"])
    if ranked:
        show(console, f"New pods would prefer {_preferred(ranked)}.")
    show(console, f"Next: {found['next']}.")


def _preferred(ranked: Sequence[Part]) -> str:
    """Names of the most preferred nodes: those that are equally good, then the next by rank."""
    equal = [node["name"] for node in ranked if node["new_pods"]["equal"]]
    others = [node["name"] for node in ranked if not node["new_pods"]["equal"]]
    first = [f"{some(equal, _COOLEST)} (=: equally good)"] if len(equal) > 1 else equal
    return ", then ".join([*first, *others[: max(0, _COOLEST - len(equal))]])


def _row(node: Part, hot_above: Part, *, shares_first: bool, bars: bool) -> list[str | Text]:
    hot = ", ".join(_NAMES[each] for each in node["hot_resources"])
    not_hot = "" if node["hot"] is None else "-"
    cells: list[str | Text] = [node["name"], plain(hot, STYLES["firing"]) if hot else not_hot]
    for part, most in ((node[each], hot_above[each]) for each in _RULES):
        used = part["used_percent"]
        style = STYLES["firing"] if used is not None and used > most else ""
        bar = f" {'█' * round(min(used, 100.0) / 10)}" if bars and used is not None else ""
        cells.append(plain(f"{_whole(used):<4}{bar}".rstrip(), style))
        cells += [_whole(_percent(part, key)) for key in ("requests", "limits")]
    pods, place = node["pods"], node.get("new_pods") or {}
    most = pods["allocatable"] or 0
    cells.append("-" if pods["count"] is None else f"{pods['count']}/{most:.0f}")
    # Equally good nodes share the first place, as in a results list.
    rank = "1 =" if shares_first and place.get("equal") else str(place.get("rank", ""))
    return [*cells, place.get("why_not", rank)]


def _whole(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.0f}%"
