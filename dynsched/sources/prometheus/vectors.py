"""Instant and range vectors, from bytes to columns. QueryFailedError, and no other. A series that
cannot be used is left out, with a warning; when there is no other series, that is an error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

import msgspec
import numpy as np

from dynsched.engine.columns import Floats, Ints, Spans, Vector
from dynsched.engine.model import Sample, Series
from dynsched.sources.prometheus.decode import (
    UNFIT,
    Clocks,
    limited,
    numbers_of,
    open_result,
    sift,
)

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


@dataclass(frozen=True)
class RangeResult:
    """Points are in Unix seconds by the *server's* clock."""

    series: Sequence[Series] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


class SeriesKeys:
    """The series of one server, each known by the bytes of its labels, which stay the same. Used by
    several threads; the worst of a race is a series that is read twice.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self._largest = 0

    def parts(self, raw: msgspec.Raw) -> Iterator[bytes]:
        """Lists of some series each: objects of the whole answer never exist at the same time. Each
        is JSON if the result is: within a string there would be a backslash before each quote.
        """
        result = bytes(raw)
        self._largest = max(self._largest, result.count(_METRIC))
        if len(self._known) > _SPARE * self._largest:  # series come and go
            self._known = {}
        start = result.find(b"[") + 1
        while (end := result.find(_NEXT, start + _PART)) > 0:
            yield b"[%b]" % result[start:end]
            start = end + 1
        yield b"[" + result[start:]

    def of(self, metrics: Iterable[msgspec.Raw]) -> Sequence[bytes]:
        """The same objects for the same labels. msgspec's errors for what is none."""
        texts = [bytes(metric) for metric in metrics]
        known = self._known
        found = [known.get(text) or _checked(text) for text in texts]
        known.update(zip(found, found, strict=True))
        return found


def read_vector(
    keys: SeriesKeys, body: _Bytes, clocks: Clocks
) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """An instant query's samples and warnings."""
    (series, times, values, _), warnings = _read(keys, body, "vector")
    if not series:
        return (), warnings
    return Vector(series, labels_of, values, clocks.local_of(times)), warnings


def read_spans(
    keys: SeriesKeys, body: _Bytes, _: Clocks
) -> tuple[Sequence[Series], tuple[str, ...]]:
    (series, times, values, counts), warnings = _read(keys, body, "matrix")
    return Spans(series, labels_of, times, values, counts) if series else (), warnings


def _read(keys: SeriesKeys, body: _Bytes, wanted: str) -> tuple[_Columns, tuple[str, ...]]:
    raw, warnings = open_result(body, wanted)
    many, single = _FORMS[wanted]
    try:
        columns = _columns(keys, keys.parts(raw), many)
    except (*UNFIT, ValueError, TypeError):  # what `_why_not` has words for
        good, left_out = sift(raw, single, _why_not)
        columns = _columns(keys, (good,), many)
        warnings += left_out
    return columns, limited(warnings)


def _columns(keys: SeriesKeys, parts: Iterable[bytes], many: msgspec.json.Decoder[Any]) -> _Columns:
    series: list[bytes] = []
    counts: list[int] = []
    values, times = [], []
    for part in parts:
        decoded = many.decode(part)
        is_range = many is _FORMS["matrix"][0]
        if is_range:
            if any(bytes(span.histogram) for span in decoded):
                raise ValueError(_HISTOGRAM)
            decoded = [span for span in decoded if span.points]
        series += keys.of(each.metric for each in decoded)
        points = [each.points for each in decoded]
        if is_range:
            counts += map(len, points)
            points = list(chain.from_iterable(points))
        values.append(numbers_of([text for _, text in points]))
        times.append(np.array([at for at, _ in points], np.float64))
    return series, np.concatenate(times), np.concatenate(values), np.array(counts, np.int64)


def _why_not(one: _Sample | _Span) -> str | None:
    _checked(bytes(one.metric))
    if bytes(one.histogram) and (isinstance(one, _Span) or one.points is None):
        return _HISTOGRAM
    if one.points is None:
        return "no value"
    points = one.points if isinstance(one, _Span) else [one.points]
    try:
        numbers_of([text for _, text in points])
    except ValueError:
        return "a value is not a number"
    return None


def _checked(text: bytes) -> bytes:
    _LABELS.decode(text)
    return text


def labels_of(key: Hashable) -> Mapping[str, str]:
    return _LABELS.decode(cast("bytes", key))
