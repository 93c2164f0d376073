"""The answers to range queries, from bytes to series. As in `wire`, nothing else is raised than
QueryFailedError.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from dynsched.core.model import Series
from dynsched.sources.prometheus.wire import (
    Clocks,
    Oddities,
    each_series,
    number_of,
    open_result,
    warnings_of,
)


class _Span(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: msgspec.Raw = msgspec.Raw(b"")


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
