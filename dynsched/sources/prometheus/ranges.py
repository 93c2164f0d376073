"""The answers to range queries, from bytes to series. As in `wire`, nothing else is raised than
QueryFailedError.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from dynsched.engine.columns import Spans
from dynsched.engine.model import Series
from dynsched.sources.prometheus.decode import (
    UNFIT,
    Clocks,
    Oddities,
    each_series,
    number_of,
    numbers_of,
    open_result,
    warnings_of,
)
from dynsched.sources.prometheus.vectors import SeriesKeys, labels_of


class _Span(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: msgspec.Raw = msgspec.Raw(b"")


class _KeyedSpan(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[tuple[float, str]]
    histograms: msgspec.Raw = msgspec.Raw(b"")


_KEYED: Final = msgspec.json.Decoder(list[_KeyedSpan])
_MATRIX: Final = msgspec.json.Decoder(list[_Span])
_SPAN: Final = msgspec.json.Decoder(_Span)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What a range query came to; as ``QueryResult``, with spans of time instead of samples.

    The points' times are Unix seconds by the *server's* clock.
    """

    series: tuple[Series, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class LongSeries:
    """One series of a long range, at a tenth of a ``Series``'s memory: two arrays of doubles."""

    labels: Mapping[str, str]
    times: array[float]
    """Unix seconds by the server's clock, rising."""
    values: array[float]
    """One for each time; may be NaN or infinite."""


@dataclass(frozen=True, slots=True)
class LongResult:
    """As ``RangeResult``, of long ranges."""

    series: tuple[LongSeries, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


def parse_matrix(body: bytes | bytearray, _: Clocks) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """The series of a range query's answer, and its warnings; otherwise as ``parse_vector``."""
    raw, warnings = open_result(body, "matrix")
    odd = Oddities()
    kept = []
    for span in each_series(raw, _MATRIX, _SPAN, odd):
        points = [(at, value) for at, text in span.values if (value := number_of(text)) is not None]
        if bytes(span.histograms):
            odd.add("a native histogram, not a number", span.metric)
        elif len(points) < len(span.values):
            odd.add("some values are not numbers", span.metric)
        if points:
            kept.append(Series(span.metric, tuple(points)))
    return tuple(kept), warnings_of(warnings, odd, kept=bool(kept))


def read_spans(
    keys: SeriesKeys, body: bytes | bytearray, clocks: Clocks
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """As ``parse_matrix``; in columns, where all series are as Prometheus writes them."""
    raw, said = open_result(body, "matrix")
    series: list[bytes] = []
    values, times, counts = [], [], []
    try:
        for part in keys.parts(raw):
            decoded = _KEYED.decode(part)
            if any(bytes(span.histograms) for span in decoded):
                return parse_matrix(body, clocks)
            series += keys.of(span.metric for span in decoded)
            values.append(numbers_of([text for span in decoded for _, text in span.values]))
            times.append(np.array([at for span in decoded for at, _ in span.values], np.float64))
            counts.append(np.array([len(span.values) for span in decoded], np.int64))
    except (*UNFIT, ValueError):
        return parse_matrix(body, clocks)
    warnings = warnings_of(said, Oddities(), kept=bool(series))
    if not series:
        return (), warnings
    points = np.concatenate(times), np.concatenate(values)
    return Spans(series, labels_of, *points, np.concatenate(counts)), warnings


def parse_long_matrix(
    body: bytes | bytearray, _: Clocks
) -> tuple[tuple[LongSeries, ...], tuple[str, ...]]:
    """As ``parse_matrix``, into arrays."""
    raw, warnings = open_result(body, "matrix")
    odd = Oddities()
    kept = []
    for span in each_series(raw, _MATRIX, _SPAN, odd):
        if bytes(span.histograms):
            odd.add("a native histogram, not a number", span.metric)
        try:
            # One pattern match for each of some million values would take longer than all else.
            values = array("d", [float(text) for _, text in span.values])
        except ValueError:
            odd.add("some values are not numbers", span.metric)
            continue
        if values:
            times = array("d", [at for at, _ in span.values])
            kept.append(LongSeries(span.metric, times, values))
    return tuple(kept), warnings_of(warnings, odd, kept=bool(kept))
