"""The answers to queries, from bytes to columns: instant vectors and range vectors. As in `decode`,
nothing else is raised than QueryFailedError.

A series that cannot be used is left out, with a warning; when there is no other series, that is an
error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import msgspec
import numpy as np

from dynsched.engine.columns import Floats, Ints, Spans, Vector
from dynsched.engine.model import Sample, Series
from dynsched.sources.prometheus.decode import (
    UNFIT,
    Clocks,
    Oddities,
    Reason,
    are_numbers,
    numbers_of,
    open_result,
    sift,
    warnings_of,
)

_T = TypeVar("_T")
_Bytes = bytes | bytearray
_SPARE: Final = 4
"""So many times the series of the largest answer are remembered: most rules have the same ones."""
_METRIC: Final = b'"metric"'
_NEXT: Final = b',{"metric":'
_PART: Final = 256 * 1024  # bytes of an answer that are decoded in one go


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    histogram: msgspec.Raw = msgspec.Raw(b"")


class _Span(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: msgspec.Raw = msgspec.Raw(b"")


class _KeyedSample(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, str]


class _KeyedSpan(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[tuple[float, str]] = []
    histograms: msgspec.Raw = msgspec.Raw(b"")


_SAMPLE: Final = msgspec.json.Decoder(_Sample)
_SPAN: Final = msgspec.json.Decoder(_Span)
_KEYED_SAMPLES: Final = msgspec.json.Decoder(list[_KeyedSample])
_KEYED_SPANS: Final = msgspec.json.Decoder(list[_KeyedSpan])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_HISTOGRAM: Final = "a native histogram, not a number"


@dataclass(frozen=True, slots=True)
class LongSeries:
    """One series of a long range, at a tenth of a ``Series``'s memory: two arrays of doubles."""

    labels: Mapping[str, str]
    times: array[float]
    """Unix seconds by the server's clock, rising."""
    values: array[float]
    """One for each time; may be NaN or infinite."""


@dataclass(frozen=True)
class SeriesResult(Generic[_T]):
    """What a range query came to; as ``QueryResult``, with spans of time instead of samples.

    The points' times are Unix seconds by the *server's* clock.
    """

    series: Sequence[_T] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


RangeResult = SeriesResult[Series]
LongResult = SeriesResult[LongSeries]


class SeriesKeys:
    """The series of one server, each known by the bytes in which its labels came. They are the same
    from one answer to the next, so that their labels are read once.

    Used by several threads: what is remembered is one dict, and the worst of a race is a series
    that is read twice.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self._largest = 0

    def parts(self, raw: msgspec.Raw) -> Iterator[bytes]:
        """A result as lists of some series each, so that the objects of the whole answer never
        exist at the same time. Each is JSON if the result is: in a string there would be a
        backslash before each quote, and what was cut within a series has a brace without its other.
        """
        result = bytes(raw)
        self._make_room(result)
        start = result.find(b"[") + 1
        while (end := result.find(_NEXT, start + _PART)) > 0:
            yield b"[%b]" % result[start:end]
            start = end + 1
        yield b"[" + result[start:]

    def _make_room(self, result: bytes) -> None:
        """For the series of this result: so many are remembered at least."""
        self._largest = max(self._largest, result.count(_METRIC))
        if len(self._known) > _SPARE * self._largest:  # series come and go
            self._known = {}

    def of(self, metrics: Iterable[msgspec.Raw]) -> Sequence[bytes]:
        """The same objects for the same labels. Raises what msgspec does for other than labels."""
        texts = [bytes(metric) for metric in metrics]
        known = self._known
        found = [known.get(text) or _checked(text) for text in texts]
        known.update(zip(found, found, strict=True))
        return found


def read_vector(
    keys: SeriesKeys, body: _Bytes, clocks: Clocks
) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """The samples of an instant query's answer, and the warnings that make it a partial one."""
    raw, said = open_result(body, "vector")
    odd = Oddities()

    def columns(parts: Iterable[bytes]) -> tuple[list[bytes], Floats, Floats]:
        series: list[bytes] = []
        values, taken = [], []
        for part in parts:
            decoded = _KEYED_SAMPLES.decode(part)
            series += keys.of(each.metric for each in decoded)
            values.append(numbers_of([each.value[1] for each in decoded]))
            taken.append(np.array([each.value[0] for each in decoded], np.float64))
        return series, np.concatenate(values), np.concatenate(taken)

    def why_not(sample: _Sample) -> Reason | None:
        if sample.value is None:
            return (_HISTOGRAM if bytes(sample.histogram) else "no value"), None
        text = sample.value[1]
        return None if are_numbers([text]) else ("the value is not a number", text)

    series, values, taken = _read(columns, keys, raw, lambda: sift(raw, _SAMPLE, why_not, odd))
    warnings = warnings_of(said, odd, kept=bool(series))
    if not series:
        return (), warnings
    return Vector(series, labels_of, values, clocks.local_of(taken)), warnings


def read_spans(
    keys: SeriesKeys, body: _Bytes, _: Clocks
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """The series of a range query's answer, and its warnings."""
    series, times, values, counts, warnings = _spans(keys, body)
    return Spans(series, labels_of, times, values, counts) if series else (), warnings


def read_long(
    keys: SeriesKeys, body: _Bytes, _: Clocks
) -> tuple[tuple[LongSeries, ...], tuple[str, ...]]:
    """As ``read_spans``, into arrays."""
    series, times, values, counts, warnings = _spans(keys, body)
    ends = np.cumsum(counts)[:-1]
    parts = zip(series, np.split(times, ends), np.split(values, ends), strict=False)
    return tuple(
        LongSeries(labels_of(key), array("d", at.tobytes()), array("d", found.tobytes()))
        for key, at, found in parts
        if len(at)
    ), warnings


def _spans(
    keys: SeriesKeys, body: _Bytes
) -> tuple[list[bytes], Floats, Floats, Ints, tuple[str, ...]]:
    """The series, times and values of all, how many each has, and the warnings."""
    raw, said = open_result(body, "matrix")
    odd = Oddities()

    def columns(parts: Iterable[bytes]) -> tuple[list[bytes], Floats, Floats, Ints]:
        series: list[bytes] = []
        values, times, counts = [], [], []
        for part in parts:
            decoded = _KEYED_SPANS.decode(part)
            if any(bytes(span.histograms) for span in decoded):
                raise ValueError(_HISTOGRAM)
            series += keys.of(span.metric for span in decoded)
            values.append(numbers_of([text for span in decoded for _, text in span.values]))
            times.append(np.array([at for span in decoded for at, _ in span.values], np.float64))
            counts.append(np.array([len(span.values) for span in decoded], np.int64))
        return series, np.concatenate(times), np.concatenate(values), np.concatenate(counts)

    def why_not(span: _Span) -> Reason | None:
        if bytes(span.histograms):
            return _HISTOGRAM, None
        are_good = are_numbers([text for _, text in span.values])
        return None if are_good else ("some values are not numbers", None)

    found = _read(columns, keys, raw, lambda: sift(raw, _SPAN, why_not, odd))
    return *found, warnings_of(said, odd, kept=bool(found[0]))


def _read(
    columns: Callable[[Iterable[bytes]], _T],
    keys: SeriesKeys,
    raw: msgspec.Raw,
    sound: Callable[[], bytes],
) -> _T:
    """The columns of a result; where some of its series are odd, those of the others."""
    try:
        return columns(keys.parts(raw))
    except (*UNFIT, ValueError):
        return columns((sound(),))


def _checked(text: bytes) -> bytes:
    _LABELS.decode(text)
    return text


def labels_of(key: Hashable) -> Mapping[str, str]:
    return _LABELS.decode(cast("bytes", key))
