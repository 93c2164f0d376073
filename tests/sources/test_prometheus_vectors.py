"""An answer whose series were all seen before is read in columns, with the same result."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.columns import Vector
from dynsched.sources.prometheus import vectors
from dynsched.sources.prometheus.failures import QueryFailedError
from dynsched.sources.prometheus.ranges import parse_matrix, read_spans
from dynsched.sources.prometheus.vectors import SeriesKeys, parse_vector, read_vector
from dynsched.sources.prometheus.wire import Clocks

CLOCKS = Clocks(received=2000.0, date=1990.0, cached=3.0)
METRICS = st.sampled_from(
    [
        *({}, {"instance": "a"}, {"instance": "b", "job": "x"}, {"instance": "ü\n"}),
        {"instance": '},{"metric":{}'},
        *({"a": 1}, [], None),
    ]
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


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Answers are read some bytes at a time, as those of megabytes are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_PART", 30)
        yield


def body_of(series: list[Any], *, kind: str = "vector", **more: Any) -> bytes:
    data = {"resultType": kind, "result": series}
    body = {"status": "success", "data": data, **more}
    return json.dumps(body, separators=(",", ":")).encode()  # as Go writes it


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
def test_both_ways_of_reading_say_the_same(answers: list[list[Any]], warned: bool) -> None:
    keys = SeriesKeys()
    for series in answers:
        body = body_of(series, **({"warnings": ["a store is down"]} if warned else {}))
        assert outcome(partial(read_vector, keys), body) == outcome(parse_vector, body)


POINTS = st.lists(st.tuples(st.floats(0, 3000), TEXTS), max_size=3)
SPANS = st.fixed_dictionaries(
    {"metric": METRICS}, optional={"values": POINTS, "histograms": st.just([[1, {}]])}
)


@given(st.lists(st.lists(SPANS, max_size=4), max_size=4), st.booleans())
def test_both_ways_of_reading_a_range_say_the_same(answers: list[list[Any]], warned: bool) -> None:
    def read(parse: Any, body: bytes) -> object:
        try:
            series, warnings = parse(body, CLOCKS)
        except QueryFailedError as error:
            return str(error)
        # In columns, a series without a point stays; nothing is made of it.
        return [
            (each.labels, [(at, "NaN" if math.isnan(v) else v) for at, v in each.points])
            for each in series
            if each.points
        ], warnings

    keys = SeriesKeys()
    for series in answers:
        more = {"warnings": ["a store is down"]} if warned else {}
        body = body_of(series, kind="matrix", **more)
        assert read(partial(read_spans, keys), body) == read(parse_matrix, body)


def good(instances: str) -> bytes:
    return body_of([{"metric": {"instance": name}, "value": [1980, "1"]} for name in instances])


def test_a_series_that_comes_again_takes_no_further_memory() -> None:
    keys = SeriesKeys()
    (first, _), (again, _) = (read_vector(keys, good("ab"), CLOCKS) for _ in range(2))
    assert isinstance(first, Vector)
    assert isinstance(again, Vector)
    assert [id(key) for key in first.series] == [id(key) for key in again.series]


@pytest.mark.parametrize("turns", [50])
def test_series_that_come_and_go_are_forgotten(turns: int) -> None:
    keys = SeriesKeys()
    for turn in range(turns):
        body = body_of([{"metric": {"pod": f"{turn}-{n}"}, "value": [1, "1"]} for n in range(10)])
        read_vector(keys, body, CLOCKS)
    assert len(keys._known) <= 5 * 10


def test_a_small_answer_does_not_make_a_large_one_be_read_anew() -> None:
    keys = SeriesKeys()
    large, _ = read_vector(keys, good("abcdefghijklm"), CLOCKS)
    read_vector(keys, good("z"), CLOCKS)
    again, _ = read_vector(keys, good("abcdefghijklm"), CLOCKS)
    assert isinstance(large, Vector)
    assert isinstance(again, Vector)
    assert all(one is other for one, other in zip(large.series, again.series, strict=True))


def test_an_answer_that_is_always_partial_takes_no_further_memory_either() -> None:
    """Thanos without one of its stores, for weeks."""
    keys = SeriesKeys()
    body = good("ab").replace(b'{"status"', b'{"warnings": ["no store"], "status"')
    (first, told), (again, _) = (read_vector(keys, body, CLOCKS) for _ in range(2))
    assert told == ("no store",)
    assert isinstance(first, Vector)
    assert isinstance(again, Vector)
    assert [id(key) for key in first.series] == [id(key) for key in again.series]
    nothing = body_of([], warnings=["no store"])
    assert read_vector(keys, nothing, CLOCKS) == ((), ("no store",))
