"""`dynsched experiment`, on a real Prometheus with the past of an experiment."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks_support import Past, Points, prometheus_of
from builders import rule
from command_line import Ended, call_of
from hypothesis import given
from hypothesis import strategies as st
from prometheus_support import Process

from dynsched.engine.experiment import is_on
from dynsched.rules.file import parse_rules
from dynsched.tools.experiment.analysis import Effect, effect_of
from dynsched.util.formatting import format_time

BLOCK, WASH_OUT, STEP = 600, 120, 20
PAIRS = 12
LAST = int(time.time()) // (2 * BLOCK) * 2 - 2
"""The number of the block after the last one of the past."""
FIRST = LAST - 2 * PAIRS
UNTIL = format_time(LAST * BLOCK)
SINCE = ("--since", str(FIRST * BLOCK))
CHANCE = random.Random(7)


def rules(**experiment: Any) -> dict[str, Any]:
    told = {"until": UNTIL, "block": "10m", "wash_out": "2m", "seed": 5, **experiment}
    return {"rules": [rule("cpu", expr="load # of all")], "experiment": told}


RULES = parse_rules(rules())
MOMENTS = range(FIRST * BLOCK, LAST * BLOCK + 1, STEP)


def arm(moment: float) -> bool:
    assert RULES.experiment is not None
    return is_on(RULES.experiment, int(moment // BLOCK))


def points(value: Any, moments: range = MOMENTS) -> Points:
    return [(moment, float(value(moment))) for moment in moments]


def counter(per_second: Any) -> Points:
    return zip(MOMENTS, accumulate(STEP * per_second(moment) for moment in MOMENTS), strict=True)


def load(moment: float) -> float:
    """Of node a: hot in all of a wash-out, and off for 3/4 of a block, on for 1/4 of it."""
    since = moment % BLOCK - WASH_OUT
    return 90.0 if since < (BLOCK - WASH_OUT) * (1 / 4 if arm(moment) else 3 / 4) else 20.0


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Two blocks of other rules come before the first one."""
    # Without the marker that a scrape leaves, Prometheus looks back five minutes.
    before = range((FIRST - 2) * BLOCK, FIRST * BLOCK - 300, STEP)
    some = {at: CHANCE.uniform(1, 3) for at in range(FIRST, LAST + 1)}
    told = f'rules="{RULES.fingerprint}",wash_out="false"'
    series: Past = {
        "load": [('node="a"', points(load)), ('node="b"', points(lambda _: 10))],
        "dynsched_experiment_arm": [
            (told, points(arm)),
            ('rules="other",wash_out="false"', points(lambda _: 1, before)),
        ],
        "dynsched_pods_median_life_seconds": [("", points(lambda _: 300))],
        "dynsched_pods_placed_total": [
            ('node_state="hot"', counter(lambda at: some[at // BLOCK] * (1 if arm(at) else 3))),
            ('node_state="clean"', counter(lambda at: some[at // BLOCK] * (9 if arm(at) else 7))),
        ],
        "dynsched_patches_total": [('action="mark"', counter(lambda at: 0.01 * arm(at)))],
    }
    with prometheus_of(series, tmp_path_factory.mktemp("past")) as running:
        yield running


@pytest.fixture
def call(past: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async def called(content: dict[str, Any], *more: str) -> Ended:
        path = tmp_path / "rules.yaml"
        path.write_text(json.dumps(content))  # JSON is YAML
        words = ["experiment", "--prom", past.url, "-r", path, *more]
        return await asyncio.to_thread(call_of, capsys, *words)

    return called


@pytest.mark.slow
async def test_both_arms_are_compared_without_the_beginning_of_their_blocks(call) -> None:
    code, out, err = await call(rules(), *SINCE, "-o", "json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["blocks"], report["since"]) == (2 * PAIRS, format_time(FIRST * BLOCK))
    assert (report["wash_out_seconds"], report["pods_median_life_seconds"]) == (120, 300)
    found = {each.pop("outcome"): each for each in report["outcomes"]}
    over = found["% of node-time over cpu"]
    assert (over["on"], over["off"]) == (pytest.approx(12.5, abs=1), pytest.approx(37.5, abs=1))
    assert over["low"] <= over["effect"] <= over["high"] < 0
    assert over["blocks_more"] == 0
    hot = found["% of pods placed on hot nodes"]
    assert (hot["on"], hot["off"]) == (pytest.approx(10, abs=1), pytest.approx(30, abs=1))
    assert found["writes to nodes an hour"]["on"] == pytest.approx(36, abs=2)
    throttled = found["CPU seconds throttled an hour"]
    assert {*throttled.values()} == {None}  # not scraped
    table = (await call(rules(), *SINCE))[1]
    assert "No difference is shown in: CPU seconds throttled an hour." in table
    assert "% of pods placed on hot nodes" in table
    page = (await call(rules(), *SINCE, "-o", "html"))[1]
    assert page.startswith("<!doctype html>")
    assert "24 blocks of 10m" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "more", "why"),
    [
        (rules(), (), f"at last in the block until {format_time(FIRST * BLOCK)}"),
        (rules(seed=6), SINCE, f"were in force too, at last in the block until {UNTIL}"),
        (rules(), ("--since", str((FIRST + 6) * BLOCK)), "there are 9 blocks an arm"),
        (rules(), ("--since", str((FIRST + 6) * BLOCK)), "wait for 2 blocks more"),
        (rules(block="4m", wash_out="1m"), (), "half of the pods live longer than 5m"),
        (rules(block="5m10s", wash_out=None), (), "the first 5m30s of a block are not measured"),
        ({"rules": [rule()]}, (), "no section `experiment`"),
    ],
)  # fmt: skip
async def test_it_says_why_nothing_can_be_compared(call, content, more, why) -> None:
    code, out, err = await call(content, *more)
    assert (code, out) == (1, "")
    assert why in err


@given(st.lists(st.floats(-5, 5), min_size=10, max_size=40), st.floats(-3, 3))
def test_the_interval_moves_with_the_effect(differences: list[float], effect: float) -> None:
    """And holds the mean of the differences."""
    off = np.array(range(len(differences)), float)
    one, other = (effect_of(off + np.array(differences) + by, off) for by in (0.0, effect))
    assert one is not None
    assert other is not None
    assert one.low - 1e-9 <= one.effect <= one.high + 1e-9
    assert np.allclose(np.array(other[3:]) - effect, one[3:], atol=1e-6)


def test_the_interval_holds_the_effect_as_often_as_it_says_and_names_what_is_wanting() -> None:
    chance = np.random.default_rng(3)
    held, pairs = 0, 20
    for _ in range(400):
        off = chance.normal(5, 3, pairs)
        found = effect_of(off - 1 + chance.standard_t(3, pairs), off)
        assert found is not None
        held += found.low <= -1 <= found.high
    assert 367 <= held <= 393  # 95 % of 400, and three standard deviations
    assert effect_of(off[:9], off[:9]) is None
    found = Effect(pairs=20, on=1, off=2, effect=-1, low=-1.5, high=-0.5)
    assert [found.blocks_more(precision) for precision in (1, 0.5, 0.25)] == [0, 0, 120]
