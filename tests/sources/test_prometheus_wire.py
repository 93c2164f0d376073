"""The parser of Prometheus's answers, given arbitrary bytes."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynsched.sources.prometheus.decode import Clocks, answer_limit, read_spans, read_vector
from dynsched.sources.prometheus.query_errors import QueryFailedError

CLOCKS = Clocks(received=2000.0, date=1990.0)
LIMIT = answer_limit(0, 1)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
numbers = st.floats(allow_nan=False).map(repr) | st.sampled_from(["+Inf", "1e+06", "-0"])
times = st.floats(0, 1990) | st.integers(0, 1990)
named = st.dictionaries(st.sampled_from(["instance", "node", "job"]), st.text(max_size=5))
vectors = st.lists(st.tuples(named, times, numbers), max_size=5)


def body_of(kind: str, result: Any, **more: Any) -> bytearray:
    body = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return bytearray(json.dumps(body).encode())


def read(body: bytes) -> list[Any]:
    """Parse the body as a vector and as a range; the only exceptions are one-line errors."""
    found: list[Any] = []
    errors: list[str] = []
    for parse in (read_vector, read_spans):
        try:
            found += parse(bytearray(body), CLOCKS, LIMIT)[0]
        except QueryFailedError as error:
            errors.append(str(error))
    assert "\n" not in "".join(errors)
    return found


@given(st.binary(max_size=200) | anything.map(lambda body: json.dumps(body).encode()))
@example(b"[[[[]]]]")
def test_arbitrary_bytes_give_an_error_and_no_samples(body: bytes) -> None:
    assert read(body) == []


@given(
    st.sampled_from(["vector", "matrix", "x"]),
    st.lists(anything | st.dictionaries(st.sampled_from(["metric", "value", "values"]), anything)),
    st.dictionaries(
        st.sampled_from(["status", "data", "warnings", "error", "isPartial"]), anything
    ),
)
def test_any_part_of_the_answer_may_be_of_another_type(
    kind: str, result: Any, more: dict[str, Any]
) -> None:
    assert all(isinstance(found.labels, dict) for found in read(body_of(kind, result, **more)))


@given(vectors)
def test_a_good_answer_is_read_completely(wanted: list[tuple[dict[str, str], float, str]]) -> None:
    body = body_of("vector", [{"metric": each, "value": [at, text]} for each, at, text in wanted])
    samples, warnings = read_vector(body, CLOCKS, LIMIT)
    assert warnings == ()
    assert [(sample.labels, sample.timestamp, sample.value) for sample in samples] == [
        (labels, pytest.approx(at + 10), float(text)) for labels, at, text in wanted
    ]


@pytest.mark.parametrize("depth", [10, 200_000])
def test_deep_nesting_gives_no_samples(depth: int) -> None:
    body = b'{"status":"success","data":{"resultType":"vector","result":%b}}'
    assert read(b'{"status":' + b"[" * depth) == []
    assert read(body % (b"[" * depth + b"]" * depth)) == []
    assert read(body % (b'[{"metric":' * depth)) == []


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e9))
def test_a_sample_is_never_from_the_future(timestamp: float, date: float) -> None:
    for known in (date, None):
        assert Clocks(1e9, known).local_of(timestamp) <= 1e9


def test_the_number_of_warnings_is_limited() -> None:
    odd: list[Any] = [{"metric": {}, "histogram": [n, {}]} for n in range(50)]
    odd.append({"metric": {}, "value": [1, "NaN"]})
    body = body_of("vector", odd, warnings=[f"store {n} is down" for n in range(50)])
    [sample], found = read_vector(body, CLOCKS, LIMIT)
    assert math.isnan(sample.value)
    assert (len(found), found[0], found[-1]) == (11, "store 0 is down", "and 41 more warnings")
