"""An answer whose series were all seen before is read in columns, with the same result."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.columns import Vector
from dynsched.sources.prometheus.failures import QueryFailedError
from dynsched.sources.prometheus.wire import Clocks, VectorParser, parse_vector

CLOCKS = Clocks(received=2000.0, date=1990.0, cached=3.0)
METRICS = st.sampled_from(
    [{}, {"instance": "a"}, {"instance": "b", "job": "x"}, {"instance": "ü\n"}, {"a": 1}, [], None]
)
TEXTS = st.sampled_from(
    [
        *("1", "-2.5", "1e3", "+Inf", "-Inf", "NaN", "1_0", " 1", "", "x", "٣", "e", "infinity"),
        *("1e999", ".5", "+NaN", "INF", "5.", "--1", "1e"),
    ]
)
SERIES = st.fixed_dictionaries(
    {"metric": METRICS},
    optional={
        "value": st.tuples(st.floats(0, 3000), TEXTS) | st.just([1]) | st.none(),
        "histogram": st.just([1, {}]),
    },
)


def body_of(series: list[Any], **more: Any) -> bytes:
    data = {"resultType": "vector", "result": series}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def outcome(parse: Any, body: bytes) -> object:
    """The samples with a NaN that equals itself, and the warnings; or the error."""
    try:
        samples, warnings = parse(body, CLOCKS)
    except QueryFailedError as error:
        return str(error)
    return [
        (each.labels, "NaN" if math.isnan(each.value) else each.value, each.timestamp)
        for each in samples
    ], warnings


@given(st.lists(st.lists(SERIES, max_size=4), max_size=4), st.booleans())
def test_both_ways_of_reading_say_the_same(answers: list[list[Any]], partial: bool) -> None:
    parser = VectorParser()
    for series in answers:
        body = body_of(series, **({"warnings": ["a store is down"]} if partial else {}))
        assert outcome(parser.parse, body) == outcome(parse_vector, body)


def good(instances: str) -> bytes:
    return body_of([{"metric": {"instance": name}, "value": [1980, "1"]} for name in instances])


def test_a_series_that_comes_again_takes_no_further_memory() -> None:
    parser = VectorParser()
    (first, _), (again, _) = (parser.parse(good("ab"), CLOCKS) for _ in range(2))
    assert isinstance(first, Vector)
    assert isinstance(again, Vector)
    assert [id(key) for key in first.series] == [id(key) for key in again.series]


@pytest.mark.parametrize("turns", [50])
def test_series_that_come_and_go_are_forgotten(turns: int) -> None:
    parser = VectorParser()
    for turn in range(turns):
        body = body_of([{"metric": {"pod": f"{turn}-{n}"}, "value": [1, "1"]} for n in range(10)])
        parser.parse(body, CLOCKS)
    assert len(parser._known) <= 5 * 10


def test_a_small_answer_does_not_make_a_large_one_be_read_anew() -> None:
    parser = VectorParser()
    large, _ = parser.parse(good("abcdefghijklm"), CLOCKS)
    parser.parse(good("z"), CLOCKS)
    again, _ = parser.parse(good("abcdefghijklm"), CLOCKS)
    assert isinstance(large, Vector)
    assert isinstance(again, Vector)
    assert all(one is other for one, other in zip(large.series, again.series, strict=True))


def test_an_answer_that_is_always_partial_takes_no_further_memory_either() -> None:
    """Thanos without one of its stores, for weeks."""
    parser = VectorParser()
    body = good("ab").replace(b'{"status"', b'{"warnings": ["no store"], "status"')
    (first, told), (again, _) = (parser.parse(body, CLOCKS) for _ in range(2))
    assert told == ("no store",)
    assert isinstance(first, Vector)
    assert isinstance(again, Vector)
    assert [id(key) for key in first.series] == [id(key) for key in again.series]
    nothing = body_of([], warnings=["no store"])
    assert parser.parse(nothing, CLOCKS) == ((), ("no store",))
