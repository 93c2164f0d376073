"""The answers to instant queries, from bytes to samples: one by one, and in columns. As in `wire`,
nothing else is raised than QueryFailedError.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec
import numpy as np

from dynsched.engine.columns import Vector
from dynsched.engine.model import Sample
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

_Bytes = bytes | bytearray
_SPARE: Final = 4
"""So many times the series of the largest answer are remembered: most rules have the same ones."""
_METRIC: Final = b'"metric"'
_NEXT: Final = b',{"metric":'
_PART: Final = 256 * 1024  # bytes of an answer that are decoded in one go


class _Series(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    histogram: msgspec.Raw = msgspec.Raw(b"")


class _Keyed(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, str]


_VECTOR: Final = msgspec.json.Decoder(list[_Series])
_SERIES: Final = msgspec.json.Decoder(_Series)
_KEYED: Final = msgspec.json.Decoder(list[_Keyed])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])


def parse_vector(body: _Bytes, clocks: Clocks) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """The samples of an instant query's answer, and the warnings that make it a partial one.

    A series that cannot be used is ignored, with a warning; when there is no other
    series, that is an error. QueryFailedError for everything that is no instant vector.
    """
    raw, warnings = open_result(body, "vector")
    odd = Oddities()
    samples = []
    for series in each_series(raw, _VECTOR, _SERIES, odd):
        if series.value is None:
            bare = not bytes(series.histogram)
            odd.add("no value" if bare else "a native histogram, not a number", series.metric)
            continue
        timestamp, text = series.value
        value = number_of(text)
        if value is None:
            odd.add("the value is not a number", series.metric, text)
            continue
        samples.append(Sample(series.metric, value, clocks.local(timestamp)))
    return tuple(samples), warnings_of(warnings, odd, kept=bool(samples))


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
    """As `parse_vector`; in columns, where all series are as Prometheus writes them."""
    raw, said = open_result(body, "vector")
    series: list[bytes] = []
    values, taken = [], []
    try:
        for part in keys.parts(raw):
            decoded = _KEYED.decode(part)
            series += keys.of(each.metric for each in decoded)
            values.append(numbers_of([each.value[1] for each in decoded]))
            taken.append(np.array([each.value[0] for each in decoded], np.float64))
    except (*UNFIT, ValueError):
        return parse_vector(body, clocks)
    warnings = warnings_of(said, Oddities(), kept=bool(series))
    if not series:
        return (), warnings
    at = clocks.local_of(np.concatenate(taken))
    return Vector(series, labels_of, np.concatenate(values), at), warnings


def _checked(text: bytes) -> bytes:
    _LABELS.decode(text)
    return text


def labels_of(key: Hashable) -> Mapping[str, str]:
    """The labels of one of `SeriesKeys`."""
    return _LABELS.decode(cast("bytes", key))
