"""The number of a node's verdict, by which other programs act."""

from __future__ import annotations

import pytest
from builders import NOON, rule, rule_set
from msgspec.structs import replace

from dynsched.core.model import Alert, AlertState, NodeView, Quality
from dynsched.core.verdict_value import COOL, HOT, UNDECIDED, verdict_value

RULES = rule_set(rule("cpu", early={"above_mean": 0}), rule("mem"), rule("trial", shadow=True))


def alert(name: str, state: AlertState = AlertState.INACTIVE, **more: object) -> Alert:
    made = Alert(*(name, "n", state, NOON, NOON, NOON), quality=Quality.OK, value=50.0)
    return replace(made, **more)  # type: ignore[arg-type]


def view(*alerts: Alert, marked: bool = False, **more: object) -> NodeView:
    firing = {each.rule for each in alerts if each.firing} - {"trial"}
    made = NodeView(
        *("n", None, ("label status=presure",) if marked else ()),
        pressured=bool(firing - {"cpu-early"}),
        since=None,
        alerts=alerts,
        early=firing == {"cpu-early"},
    )
    return replace(made, **more)  # type: ignore[arg-type]


CPU, MEM, TRIAL = alert("cpu"), alert("mem"), alert("trial")
FIRING = alert("cpu", AlertState.FIRING)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (view(CPU, MEM), COOL),
        (view(CPU, MEM, alert("trial", AlertState.FIRING)), COOL),
        (view(FIRING, MEM, marked=True), HOT),
        (view(FIRING, alert("mem", quality=Quality.MISSING), marked=True), HOT),
        (view(replace(FIRING, keep_firing_since=NOON), MEM, marked=True), UNDECIDED),
        (view(replace(FIRING, quality=Quality.STALE), MEM, marked=True), UNDECIDED),
        (view(CPU, MEM, marked=True), UNDECIDED),
        (view(FIRING, MEM, withheld="the cap"), UNDECIDED),
        (view(alert("cpu", AlertState.PENDING), MEM), UNDECIDED),
        (view(CPU, alert("mem", quality=Quality.MISSING)), UNDECIDED),
        (view(CPU, MEM, conflict="status=other"), UNDECIDED),
        (view(FIRING, MEM, marked=True, conflict="status=other"), UNDECIDED),
        (view(CPU, MEM, ineligible="control plane"), UNDECIDED),
        (view(CPU, MEM, alert("cpu-early", AlertState.FIRING)), UNDECIDED),
        (view(CPU, MEM, alert("cpu-early", AlertState.FIRING), marked=True), UNDECIDED),
        (view(TRIAL), UNDECIDED),
        (view(), UNDECIDED),
    ],
)
def test_the_value(node: NodeView, expected: float) -> None:
    assert verdict_value(node, RULES) == expected
