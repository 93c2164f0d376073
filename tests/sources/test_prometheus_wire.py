"""The parser of Prometheus's answers, which remembers series, against whatever bytes there are."""

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from misbehaving_server import GOOD

from dynsched.engine.model import Sample
from dynsched.sources.prometheus import decode
from dynsched.sources.prometheus.decode import (
    Clocks,
    SeriesKeys,
    answer_limit,
    read_spans,
    read_vector,
)
from dynsched.sources.prometheus.query_errors import QueryFailedError

CLOCKS = Clocks(received=2000.0, date=1990.0, cached=3.0)
LIMIT = answer_limit(0, 1)
KEYS = SeriesKeys()  # one for all: what it remembers must not change what it reads

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr)
# Some are numbers for Python only.
ODD_TEXTS = "1 -2.5 1e3 +Inf -Inf NaN 1_0 ٣ e infinity 1e999 .5 +NaN INF 5. --1 1e - 0x1"
values = numbers | st.sampled_from([*ODD_TEXTS.split(), " 1", ""])
times = st.floats(0, 4000) | st.integers(0, 4000)
points = st.tuples(times, values).map(list)
named = st.dictionaries(st.sampled_from(["instance", "node", "job"]), st.text(max_size=5))
metrics = named | st.sampled_from([{}, {"instance": '},{"metric":{}'}, {"a": 1}, {"i": "ü\n"}])
series = st.fixed_dictionaries(
    {"metric": metrics | anything},
    optional={
        "value": points | anything,
        "values": st.lists(points, max_size=3) | anything,
        "histogram": anything,
    },
)
sound = st.fixed_dictionaries({"metric": metrics, "value": points, "values": st.lists(points)})
native = st.fixed_dictionaries(
    {"metric": named, "values": st.lists(points, max_size=1), "histograms": st.just([[1, {}]])}
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Prometheus's answers; of half of them any part is replaced by something else."""
    kinds, result = ["vector", "matrix"], st.lists(sound, max_size=4) | st.lists(sound | native)
    body: dict[str, Any] = {"status": "success"}
    others: dict[str, Any] = {"warnings": st.just(["a store is down"])}
    if draw(st.booleans()):
        kinds, result = [*kinds, "scalar", "x"], st.lists(series | anything, max_size=4) | anything
        body["status"] = draw(st.sampled_from(["success"] * 4 + ["error", ""]))
        others = dict.fromkeys(("data", "warnings", "error", "isPartial"), anything)
    body["data"] = {"resultType": draw(st.sampled_from(kinds)), "result": draw(result)}
    body |= draw(st.just({}) | st.fixed_dictionaries({}, optional=others))
    # As Go writes it, and as others may.
    return json.dumps(body, separators=draw(st.sampled_from([(",", ":"), None]))).encode()


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Answers are read some bytes at a time, as those of megabytes are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_PART", 30)
        yield


def outcome(parse: Any, body: bytes) -> tuple[list[Any], object]:
    """Labels and points with a NaN that equals itself, and the warnings; or the error."""
    try:
        found, warnings = parse(body, CLOCKS, LIMIT)
    except QueryFailedError as error:
        return [], str(error)

    def plain(each: Any) -> Any:
        match each:
            case Sample():
                pairs = [(each.timestamp, each.value)]
            case _:
                pairs = list(each.points)
        return each.labels, [(at, "NaN" if math.isnan(value) else value) for at, value in pairs]

    return [plain(each) for each in found], warnings


def check(body: bytes) -> list[Any]:
    """Read a body in all ways; the samples, each of which another parser sees in the body too. What
    is remembered of series makes no difference.
    """
    samples = outcome(partial(read_vector, KEYS), body)
    assert samples == outcome(partial(read_vector, SeriesKeys()), body)
    spans = outcome(partial(read_spans, KEYS), body)
    assert spans == outcome(partial(read_spans, SeriesKeys()), body)
    assert all(found for _, found in spans[0])
    for told in (samples[1], spans[1]):
        assert isinstance(told, tuple) or (told and "\n" not in told)
    if samples[0]:
        seen = [pair for each in json.loads(body)["data"]["result"] if (pair := _pair(each))]
        for labels, [(at, value)] in samples[0]:
            assert (labels, value) in seen
            assert math.isfinite(at)
            assert at <= CLOCKS.received
    for labels, found in spans[0]:
        assert (labels, len(found)) in [
            (each["metric"], len(each.get("values", ())))
            for each in json.loads(body)["data"]["result"]
            if isinstance(each, dict) and "metric" in each
        ]
    return samples[0] + spans[0]


def _pair(each: Any) -> tuple[Any, Any] | None:
    match each:
        case {"metric": dict() as metric, "value": [_, str() as text]}:
            try:
                return metric, "NaN" if math.isnan(float(text)) else float(text)
            except ValueError:
                return None
    return None


@given(st.binary(max_size=200) | anything.map(lambda body: json.dumps(body).encode()))
@example(b"[[[[]]]]")
def test_bytes_never_raise_and_never_become_samples(body: bytes) -> None:
    assert check(body) == []


@given(st.lists(answers(), min_size=1, max_size=2))
def test_every_sample_stands_in_the_answer(bodies: list[bytes]) -> None:
    for body in bodies:
        check(body)


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_good_answer(at: int, patch: bytes, cut: int) -> None:
    raw = GOOD.encode()
    check(raw[:at] + patch + raw[at + cut :])


def body_of(result: list[Any], **more: Any) -> bytes:
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data, **more}, separators=(",", ":")).encode()


@given(st.lists(st.tuples(named, numbers, times), max_size=5))
def test_a_good_answer_is_kept_whole(wanted: list[tuple[dict[str, str], str, float]]) -> None:
    body = body_of([{"metric": labels, "value": [at, value]} for labels, value, at in wanted])
    samples, warnings = read_vector(KEYS, body, CLOCKS, LIMIT)
    assert warnings == ()
    assert [(sample.labels, sample.value) for sample in samples] == [
        (labels, float(value)) for labels, value, _ in wanted
    ]


@pytest.mark.parametrize("depth", [10, 5_000, 200_000])
def test_nesting_without_end(depth: int) -> None:
    body = b'{"status":"success","data":{"resultType":"vector","result":%b}}'
    assert check(b'{"status":' + b"[" * depth) == []
    assert check(body % (b"[" * depth + b"]" * depth)) == []
    assert check(body % (b'[{"metric":' * depth)) == []


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_sample_is_never_from_the_future(timestamp: float, date: float, cached: float) -> None:
    for known in (date, None):
        assert Clocks(1e9, known, cached).local_of(np.array([timestamp])) <= 1e9
