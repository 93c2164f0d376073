"""The parser of Prometheus's answers, against whatever bytes there are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from misbehaving_server import GOOD

from dynsched.core.model import Sample, Series
from dynsched.sources.prometheus.failures import QueryFailedError
from dynsched.sources.prometheus.ranges import parse_matrix
from dynsched.sources.prometheus.vectors import SeriesKeys, read_vector
from dynsched.sources.prometheus.wire import Clocks

_T = TypeVar("_T")
CLOCKS = Clocks(received=2000.0, date=2000.0)
KEYS = SeriesKeys()  # one for all: what it remembers must not change what it reads

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr)
values = numbers | st.sampled_from(["NaN", "+Inf", "-Inf", "0", "", "-", "1_0", "0x1", " 1", "٣"])
times = st.floats(0, 4000) | st.integers(0, 4000)
points = st.tuples(times, values).map(list)
labels = st.dictionaries(st.sampled_from(["instance", "node", "job"]), st.text(max_size=5))
series = st.fixed_dictionaries(
    {"metric": labels | anything},
    optional={
        "value": points | anything,
        "values": st.lists(points, max_size=3) | anything,
        "histogram": anything,
    },
)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """Prometheus's answers, with any part of them replaced by something else."""
    kinds = st.sampled_from(["vector", "vector", "matrix", "scalar", "string", "x"])
    data = {
        "resultType": draw(kinds),
        "result": draw(st.lists(series | anything, max_size=4) | anything),
    }
    body = {"status": draw(st.sampled_from(["success", "success", "error", ""])), "data": data}
    return body | draw(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("data", "warnings", "error", "isPartial"), anything)
        )
    )


def told(body: bytes) -> list[Any]:
    """The series of a body, by another parser."""
    whole = json.loads(body)
    assert whole["status"] == "success"
    result: list[Any] = whole["data"]["result"]
    return result


def parsed(
    parse: Callable[[bytes, Clocks], tuple[tuple[_T, ...], Any]], body: bytes
) -> tuple[_T, ...]:
    try:
        return parse(body, CLOCKS)[0]
    except QueryFailedError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return ()


def check(body: bytes) -> tuple[tuple[Sample, ...], tuple[Series, ...]]:
    """Parse both ways; every sample must be one that another parser sees in the body too."""
    samples, spans = parsed(partial(read_vector, KEYS), body), parsed(parse_matrix, body)
    if samples:
        seen = [pair for each in told(body) if (pair := _labels_and_value(each)) is not None]
        for sample in samples:
            assert _contains(seen, sample)
            assert math.isfinite(sample.timestamp)
            assert sample.timestamp <= CLOCKS.received
    return samples, spans


def _labels_and_value(each: Any) -> tuple[Any, float] | None:
    match each:
        case {"metric": dict() as metric, "value": [_, str() as text]}:
            try:
                return metric, float(text)
            except ValueError:
                return None
    return None


def _contains(seen: list[tuple[Any, float]], sample: Sample) -> bool:
    return any(
        metric == sample.labels
        and (value == sample.value or (math.isnan(value) and math.isnan(sample.value)))
        for metric, value in seen
    )


@given(st.binary(max_size=200))
def test_bytes_never_raise_and_never_become_samples(body: bytes) -> None:
    assert check(body) == ((), ())


@given(anything)
@example([[[[]]]])
def test_any_json_never_becomes_samples(body: Any) -> None:
    assert check(json.dumps(body).encode()) == ((), ())


@settings(max_examples=400)
@given(answers())
def test_every_sample_stands_in_the_answer(body: dict[str, Any]) -> None:
    check(json.dumps(body).encode())


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_good_answer(at: int, patch: bytes, cut: int) -> None:
    raw = GOOD.encode()
    check(raw[:at] + patch + raw[at + cut :])


@given(st.lists(st.tuples(labels, numbers, times), max_size=5))
def test_a_good_answer_is_kept_whole(wanted: list[tuple[dict[str, str], str, float]]) -> None:
    result = [{"metric": labels, "value": [at, value]} for labels, value, at in wanted]
    data = {"resultType": "vector", "result": result}
    body = json.dumps({"status": "success", "data": data}).encode()
    samples, warnings = read_vector(KEYS, body, CLOCKS)
    assert warnings == ()
    assert [(sample.labels, sample.value) for sample in samples] == [
        (labels, float(value)) for labels, value, _ in wanted
    ]


def test_nesting_without_end() -> None:
    for depth in (10, 5_000, 200_000):
        assert check(b'{"status":' + b"[" * depth) == ((), ())
        body = b'{"status":"success","data":{"resultType":"vector","result":%b}}'
        assert check(body % (b"[" * depth + b"]" * depth)) == ((), ())
        assert check(body % (b'[{"metric":' * depth)) == ((), ())


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_sample_is_never_from_the_future(timestamp: float, date: float, cached: float) -> None:
    assert Clocks(1e9, date, cached).local(timestamp) <= 1e9
    assert Clocks(1e9, None, cached).local(timestamp) <= 1e9


def test_warnings_are_few_even_when_all_is_odd() -> None:
    odd = [{"metric": {}, "value": [n, {str(n): n}]} for n in range(50)]
    odd.append({"metric": {}, "value": [1, "1"]})
    warnings = [f"store {n} is down" for n in range(50)]
    data = {"resultType": "vector", "result": odd}
    body = json.dumps({"status": "success", "data": data, "warnings": warnings}).encode()
    samples, told_warnings = read_vector(KEYS, body, CLOCKS)
    assert len(samples) == 1
    assert told_warnings[0] == "store 0 is down"
    assert told_warnings[-1] == "and 41 more warnings"
    assert len(told_warnings) == 11
