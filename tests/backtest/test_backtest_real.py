"""The backtest on a real Prometheus with a past of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from backtest_support import Call
from blocks_support import Points, prometheus_of
from builders import rule
from prometheus_support import RealPrometheus

pytestmark = pytest.mark.slow

STEP = 60
COUNT = 12 * 60
NOW = int(time.time()) // STEP * STEP


def points(*values: tuple[int, float]) -> Points:
    """From minute to minute, each value from its minute on; NaN-like gaps are minutes of None."""
    changes = dict(values)
    value = changes[0]
    for minute in range(COUNT + 1):
        value = changes.get(minute, value)
        if value >= 0:
            yield NOW - (COUNT - minute) * STEP, value


def busy(reset_at: int) -> Points:
    """A counter of seconds that is 0.5 s/s, and begins at 0 once more."""
    for minute in range(COUNT + 1):
        yield (
            NOW - (COUNT - minute) * STEP,
            30.0 * (minute if minute < reset_at else minute - reset_at),
        )


GAP = -1.0
PAST = {
    "load": [
        ('node="a"', points((0, 10), (300, 90), (360, 10))),
        ('node="b"', points((0, 10), (200, GAP), (320, 10))),
        ('node="c",zone="x"', points((0, 90), (100, GAP))),
        ('node="c",zone="y"', points((0, GAP), (100, 90), (200, 10))),
    ],
    "busy_seconds_total": [('node="a"', busy(333)), ('node="b"', busy(5))],
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    folder = tmp_path_factory.mktemp("past")
    # A part of this window has more samples than the server allows a query.
    with prometheus_of(PAST, folder, ["--query.max-samples=900"]) as running:
        yield running


MORE = ("--nodes-from-series", "--since", "12h", "--step", "60s", "--until", str(NOW), "-o", "json")


async def test_gaps_changed_labels_and_a_limit_of_samples(
    call: Call, prometheus: RealPrometheus
) -> None:
    told = {"guard": {"max_marked": "100%"}, "rules": [rule("load", expr="load")]}
    code, out, _ = await call(prometheus.url, told, *MORE)
    assert code == 0
    report = json.loads(out)
    (load,) = report["rules"]
    nodes = {node["node"]: node for node in report["nodes"]}
    # Prometheus looks back 5 minutes: the series ends, and its successor begins at once.
    assert nodes["c"]["marks"] == 1
    assert nodes["a"]["marks"] == 1
    assert nodes["b"]["coverage"] == pytest.approx(1 - 116 / 721, abs=0.01)
    assert nodes["b"]["strip"].count(None) >= 8
    assert nodes["c"]["coverage"] == 1.0
    assert load["marks"] == 2
    assert load["longest_mark_seconds"] >= 100 * STEP
    assert not report["notes"]
    # It did not come in one piece.
    assert report["queries"] > 1


async def test_a_counter_that_begins_anew_is_no_load(
    call: Call, prometheus: RealPrometheus, tmp_path: Path
) -> None:
    expr = "rate(busy_seconds_total[4m]) * 100"
    told = {"rules": [rule("busy", expr=expr, threshold=60)]}
    code, out, _ = await call(prometheus.url, told, *MORE)
    assert code == 0
    (found,) = json.loads(out)["rules"]
    assert found["marks"] == 0
    assert found["coverage"] > 0.99


async def test_an_expression_that_is_none_is_the_servers_own_words(
    call: Call, prometheus: RealPrometheus
) -> None:
    told = {"rules": [rule("bad", expr="sum by (")]}
    code, _, err = await call(prometheus.url, told, *MORE)
    assert code == 1
    assert "parse error" in err
