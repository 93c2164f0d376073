"""The backtest on a real Prometheus with a past that has gaps."""

import time
from pathlib import Path

import pytest
from backtest_support import Reported, rules
from blocks_support import Points, prometheus_of
from builders import rule

pytestmark = pytest.mark.slow

STEP = 60
COUNT = 12 * 60
NOW = int(time.time()) // STEP * STEP
GAP = -1.0


def points(*changes: tuple[int, float]) -> Points:
    """One a minute, each value from its minute on; none while it is GAP."""
    values, value = dict(changes), GAP
    for number in range(COUNT + 1):
        value = values.get(number, value)
        if value >= 0:
            yield NOW - (COUNT - number) * STEP, float(value)


PATCHY = [
    ('node="a"', points((0, 10), (300, 90), (360, 10))),
    ('node="b"', points((0, 10), (200, GAP), (320, 10))),
    ('node="c",zone="x"', points((0, 90), (100, GAP))),
    ('node="c",zone="y"', points((100, 90), (200, 10))),
]


async def test_gaps_new_labels_and_a_limit_of_samples(reported: Reported, tmp_path: Path) -> None:
    window = ("--since", "12h", "--step", "60s", "--until", str(NOW))
    given = rules(rule("load", expr="patchy"))
    # A part of this window has more samples than the server allows a query.
    with prometheus_of({"patchy": PATCHY}, tmp_path, ["--query.max-samples=900"]) as prometheus:
        report = await reported(prometheus.url, given, "--nodes-from-series", *window)
    (load,), nodes = report["rules"], {node["node"]: node for node in report["nodes"]}
    # Prometheus looks back 5 minutes: the series ends, and its successor begins at once.
    assert {name: node["marks"] for name, node in nodes.items()} == {"a": 1, "b": 0, "c": 1}
    assert nodes["b"]["coverage"] == pytest.approx(1 - 116 / 721, abs=0.01)
    assert nodes["b"]["strip"].count(None) >= 8
    assert nodes["c"]["coverage"] == 1.0
    assert load["marks"] == 2
    assert load["longest_mark_seconds"] >= 100 * STEP
    # It did not come in one piece, and nothing is amiss.
    assert (report["queries"] > 1, report["notes"]) == (True, [])
