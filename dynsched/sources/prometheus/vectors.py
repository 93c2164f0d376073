"""The answers to queries, from bytes to columns: instant vectors and range vectors. As in `decode`,
nothing else is raised than QueryFailedError.

A series that cannot be used is left out, with a warning; when there is no other series, that is an
error.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, TypeVar, cast

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
_Columns = tuple[list[bytes], Floats, Floats, Ints]
"""The series; the times and values of all, one after the other; of spans, how many each has."""
_SPARE: Final = 4
"""So many times the series of the largest answer are remembered: most rules have the same ones."""
_METRIC: Final = b'"metric"'
_NEXT: Final = b',{"metric":'
_PART: Final = 256 * 1024  # bytes of an answer that are decoded in one go


class _Sample(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    points: tuple[float, str] | None = msgspec.field(name="value", default=None)
    histogram: msgspec.Raw = msgspec.Raw(b"")


class _Span(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    points: list[tuple[float, str]] = msgspec.field(name="values", default_factory=list)
    histogram: msgspec.Raw = msgspec.field(name="histograms", default=msgspec.Raw(b""))


_FORMS: Final[Mapping[str, tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]]] = {
    "vector": (msgspec.json.Decoder(list[_Sample]), msgspec.json.Decoder(_Sample)),
    "matrix": (msgspec.json.Decoder(list[_Span]), msgspec.json.Decoder(_Span)),
}
"""By type of result, what reads many series and what reads one."""
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
    (series, times, values, _), warnings = _read(keys, body, "vector")
    if not series:
        return (), warnings
    return Vector(series, labels_of, values, clocks.local_of(times)), warnings


def read_spans(
    keys: SeriesKeys, body: _Bytes, _: Clocks
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """The series of a range query's answer, and its warnings."""
    (series, times, values, counts), warnings = _read(keys, body, "matrix")
    return Spans(series, labels_of, times, values, counts) if series else (), warnings


def read_long(
    keys: SeriesKeys, body: _Bytes, _: Clocks
) -> tuple[tuple[LongSeries, ...], tuple[str, ...]]:
    """As ``read_spans``, into arrays."""
    (series, times, values, counts), warnings = _read(keys, body, "matrix")
    ends = np.cumsum(counts)[:-1]
    parts = zip(series, np.split(times, ends), np.split(values, ends), strict=False)
    return tuple(
        LongSeries(labels_of(key), array("d", at.tobytes()), array("d", found.tobytes()))
        for key, at, found in parts
        if len(at)
    ), warnings


def _read(keys: SeriesKeys, body: _Bytes, wanted: str) -> tuple[_Columns, tuple[str, ...]]:
    raw, said = open_result(body, wanted)
    many, single = _FORMS[wanted]
    odd = Oddities()
    try:
        columns = _columns(keys, keys.parts(raw), many)
    except (*UNFIT, ValueError, TypeError):  # what `why_not` has words for
        columns = _columns(keys, (sift(raw, single, _why_not, odd),), many)
    return columns, warnings_of(said, odd, kept=bool(columns[0]))


def _columns(keys: SeriesKeys, parts: Iterable[bytes], many: msgspec.json.Decoder[Any]) -> _Columns:
    series: list[bytes] = []
    counts: list[int] = []
    values, times = [], []
    for part in parts:
        decoded = many.decode(part)
        series += keys.of(each.metric for each in decoded)
        points = [each.points for each in decoded]
        if decoded and isinstance(decoded[0], _Span):
            if any(bytes(span.histogram) for span in decoded):
                raise ValueError(_HISTOGRAM)
            counts += map(len, points)
            points = list(chain.from_iterable(points))
        values.append(numbers_of([text for _, text in points]))
        times.append(np.array([at for at, _ in points], np.float64))
    return series, np.concatenate(times), np.concatenate(values), np.array(counts, np.int64)


def _why_not(one: _Sample | _Span) -> Reason | None:
    _checked(bytes(one.metric))
    if isinstance(one, _Span):
        if bytes(one.histogram):
            return _HISTOGRAM, None
        are_good = are_numbers([text for _, text in one.points])
        return None if are_good else ("some values are not numbers", None)
    if one.points is None:
        return (_HISTOGRAM if bytes(one.histogram) else "no value"), None
    text = one.points[1]
    return None if are_numbers([text]) else ("the value is not a number", text)


def _checked(text: bytes) -> bytes:
    _LABELS.decode(text)
    return text


def labels_of(key: Hashable) -> Mapping[str, str]:
    return _LABELS.decode(cast("bytes", key))
