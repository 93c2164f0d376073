"""Rules that load can be used: whatever stands in them, a tick and every answer made from it come
out.
"""

import json
from typing import Any

import msgspec
from hypothesis import given, reject
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from properties import steady
from scenes import NOON, Scene

from dynsched.core.nodes import Node
from dynsched.features.extender.scoring import Scoring, break_ties, scores_by_load
from dynsched.rules.file import parse_rules
from dynsched.rules.rule_errors import RulesInvalidError
from dynsched.web.metrics import Metrics
from dynsched.web.nodes import node_detail
from dynsched.web.status import rules_answer, status_answer

NUMBERS = st.one_of(
    st.sampled_from(
        [0, -0.0, 5e-324, 1e-300, -1e-300, 80, -80, 1.7e308, -1.7e308, 2**63 - 1, 1e15]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
)
DURATIONS = st.sampled_from(["0", "1ms", "1m", "292y"])
LIMITS = st.sampled_from([0, 1, 1_000_000, "0%", "0.0000000001%", "33.333333333333%", "100%"])
NAMES = st.sampled_from(["cpu", "é" * 100, '"\\{}', "a b", "%s %d", "{message}"])
RULES = st.fixed_dictionaries(
    {"expr": st.sampled_from(["load", "load > 80", "}{%s"]), "threshold": NUMBERS},
    optional={
        "op": st.sampled_from([">", ">=", "<", "<="]),
        "clear_threshold": NUMBERS,
        "full_at": NUMBERS,
        "for": DURATIONS,
        "keep_firing_for": DURATIONS,
        "stale_after": DURATIONS,
        "node_label": st.sampled_from(["instance", "l" * 317]),
    },
)
WEIGHTS = st.sampled_from([0, 0.001, 1, 1000]) | NUMBERS


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    score = draw(st.dictionaries(st.sampled_from(names), WEIGHTS))
    method = draw(st.sampled_from(["linear", "relative", "least"]))
    return {
        "rules": [{"name": name, **draw(RULES)} for name in names],
        "guard": {"max_marked": draw(LIMITS), "max_releases": draw(LIMITS)},
        "stale_after": draw(DURATIONS.filter(lambda text: text != "0")),
        "extender": {"profiles": {"default": {"score": score, "method": method}}},
    }


@steady(80)
@given(data=files(), values=st.lists(NUMBERS, min_size=3, max_size=3))
def test_what_loads_can_be_used(data: dict[str, Any], values: list[float]) -> None:
    try:
        parse_rules(data)
    except RulesInvalidError:
        reject()
    use(data, values)


def use(data: dict[str, Any], values: list[float]) -> None:
    """Two ticks, and every answer."""
    scene = Scene(data, [Node(f"n{number}") for number in range(4)])
    answer = {f"n{number}": float(value) for number, value in enumerate(values)}
    answers = dict.fromkeys((rule["name"] for rule in data["rules"]), answer)
    scene.tick(NOON - 60, **answers)
    tick = scene.tick(NOON, **answers)
    nodes = list(tick.evaluation.table.entries)
    for body in (
        rules_answer(tick),
        status_answer(tick, error=None, source="x", leader=None, rules_error=None),
        *(node_detail(tick, name) for name in nodes),
        tick.planned,
    ):
        assert json.loads(msgspec.json.encode(body, enc_hook=str)) is not None
    metrics = Metrics(CollectorRegistry())
    metrics.observe(tick)
    assert metrics.exposition()
    profile = Scoring(tick.evaluation, tick.pods, NOON).profile("default")
    loads = profile.of(nodes)
    scores = scores_by_load(loads, profile.method)
    break_ties(scores, loads)
    assert {scores[load] for load in loads} <= set(range(11))
