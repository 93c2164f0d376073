"""Prometheus's JSON, from bytes to samples. Nothing here raises but QueryFailedError.

An answer: ``{"status", "data": {"resultType", "result"}, "warnings", "errorType", "error"}``.
``infos`` (hints on the expression, since Prometheus 3) say nothing about completeness: not read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np

from dynsched.core.answers import AnswerLimit
from dynsched.core.columns import Floats, Vector
from dynsched.core.formatting import one_line
from dynsched.core.model import Sample
from dynsched.sources.prometheus.failures import QueryFailedError, excerpt

_T = TypeVar("_T")
_Bytes = bytes | bytearray
_MAX_WARNINGS: Final = 10
_MAX_WORDS: Final = 64 * 1024  # bytes of what the server says about its answer
_MAX_ODD: Final = 1000  # each costs some 10 microseconds, in which no other thread runs
_NUMERIC: Final = b"0123456789+-.eEinfINFaA"
"""What a number is made of, as strconv.FormatFloat writes it. `float` alone would take "1_0"."""
_SPARE: Final = 4
"""So many times the series of the largest answer are remembered: most rules have the same ones."""
_METRIC: Final = b'"metric"'
_NEXT: Final = b',{"metric":'
_PART: Final = 256 * 1024  # bytes of an answer that are decoded in one go
_NULL: Final = msgspec.Raw(b"null")
_BY_NODE: Final = "give a vector with a sample for each node, as in `sum by (instance) (...)`"
_WRONG_TYPE: Final = {
    "scalar": f"the expression gives a scalar, which belongs to no node; {_BY_NODE}",
    "string": f"the expression gives a string; {_BY_NODE}",
    "matrix": "the expression gives a range of samples for each series; "
    "put rate(...), avg_over_time(...) or the like around it",
    "vector": "the answer to a range query is an instant vector; is this Prometheus's query API?",
}


class _Envelope(msgspec.Struct, gc=False):
    status: str
    data: msgspec.Raw = _NULL
    # Undecoded, for they may be anything, of any size.
    error: msgspec.Raw = _NULL
    error_type: msgspec.Raw = msgspec.field(name="errorType", default=_NULL)
    warnings: msgspec.Raw = _NULL
    is_partial: Any = msgspec.field(name="isPartial", default=None)  # VictoriaMetrics' cluster


class _Data(msgspec.Struct, gc=False):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Series(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    histogram: msgspec.Raw = msgspec.Raw(b"")


class _Keyed(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, str]


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_DATA: Final = msgspec.json.Decoder(_Data)
_ANYTHING: Final = msgspec.json.Decoder()
_PIECES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_VECTOR: Final = msgspec.json.Decoder(list[_Series])
_SERIES: Final = msgspec.json.Decoder(_Series)
_KEYED: Final = msgspec.json.Decoder(list[_Keyed])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
# What msgspec raises for bytes that are not what was expected, however odd.
UNFIT: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the server's time maps to ours.

    ``received`` is our clock when the answer came, ``date`` the server's (its Date header, whole
    seconds; None without one), ``cached`` for how many seconds a cache in between had held it.
    """

    received: float
    date: float | None = None
    cached: float = 0.0

    def local(self, timestamp: float) -> float:
        """A sample's time by our clock, never later than now.

        The age is taken between two readings of the server's own clock, so that a server whose
        clock is minutes off has neither only stale samples nor samples from the future.
        """
        return self.local_of(np.array([timestamp], np.float64)).item()

    def local_of(self, timestamps: Floats) -> Floats:
        """`local` of many."""
        now = self.received if self.date is None else self.date
        return self.received - np.maximum(0.0, now - timestamps) - self.cached


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much may come back; ``label`` names the node in the rule's series."""

    limit: AnswerLimit
    label: str

    def check(self, series: int, size: int, parts: int = 0) -> None:
        """QueryFailedError for more series, bytes or JSON values than the limit allows."""
        if series > self.limit.series:
            found = f"has more than {self.limit.series:,} series"
        elif size > self.limit.size:
            found = f"is larger than {self.limit.size / (1 << 20):.3g} MiB"
        elif parts > self.limit.parts:
            found = f"is made of more than {self.limit.parts:,} parts"
        else:
            return
        raise QueryFailedError(
            f"the answer {found}, in a cluster of {self.limit.nodes:,} nodes; aggregate it by the "
            f"node, as in `sum by ({self.label}) (...)`, or select only this cluster's series"
        )


@dataclass(slots=True)
class Oddities:
    """Series that could not be used: each reason with one example and how many there were."""

    seen: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, reason: str, labels: Mapping[str, str] | None, value: object = None) -> None:
        """Count a series that was left out."""
        example, count = self.seen.get(reason, ("", 0))
        if not count:
            example = _show(labels) + ("" if value is None else f" {one_line(repr(value), 40)}")
        self.seen[reason] = (example, count + 1)

    def lines(self) -> list[str]:
        """A line for each reason."""
        return [
            f"{count} series left out: {reason}, as in {example}"
            for reason, (example, count) in self.seen.items()
        ]


def _show(labels: Mapping[str, str] | None) -> str:
    if labels is None:
        return "one whose labels cannot be read"
    return one_line("{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}")


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

    def make_room(self, result: bytes) -> None:
        """Before the series of this result are read: so many are remembered at least."""
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
    text = bytes(raw)
    keys.make_room(text)
    try:
        for part in parts_of(text):
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


def parts_of(result: bytes) -> Iterator[bytes]:
    """A result as lists of some series each, so that the objects of the whole answer never exist at
    the same time. Each is JSON if the result is: in a string there would be a backslash before each
    quote, and what was cut within a series has a brace without its other.
    """
    start = result.find(b"[") + 1
    while (end := result.find(_NEXT, start + _PART)) > 0:
        yield b"[%b]" % result[start:end]
        start = end + 1
    yield b"[" + result[start:]


def _checked(text: bytes) -> bytes:
    _LABELS.decode(text)
    return text


def labels_of(key: Hashable) -> Mapping[str, str]:
    """The labels of one of `SeriesKeys`."""
    return _LABELS.decode(cast("bytes", key))


def numbers_of(texts: Sequence[str]) -> Floats:
    """The values as they were sent. ValueError where one is no number."""
    if "".join(texts).encode().translate(None, _NUMERIC):
        raise ValueError("not a number")
    return np.array([float(text) for text in texts], np.float64)


def parse_data(body: _Bytes, _: Clocks) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Whatever stands in ``data`` of a good answer, as the only item, and its warnings."""
    envelope, warnings = _envelope(body)
    return (_fit(_ANYTHING, envelope.data, body),), tuple(warnings)


def server_error(body: _Bytes) -> str | None:
    """``errorType: error`` of a body that is Prometheus's own error answer, else None."""
    try:
        envelope = _ENVELOPE.decode(body)
    except UNFIT:
        return None
    if envelope.status != "error":
        return None
    parts = (_words(envelope.error_type), _words(envelope.error))
    said = [one_line(str(each)) for each in parts if each]
    return ": ".join(said) or "an error without a text"


def _words(said: msgspec.Raw) -> Any:
    """What the server says beside the data: decoded, or how much it is where that is too much."""
    size = len(memoryview(said))
    if size > _MAX_WORDS:
        return f"{size:,} bytes of text, which are not shown"
    try:
        return msgspec.json.decode(said)
    except UNFIT:
        return "a text that is damaged"


def _envelope(body: _Bytes) -> tuple[_Envelope, list[str]]:
    """A good answer, and the server's warnings."""
    if not body or body.isspace():
        raise QueryFailedError("the answer is empty; is this Prometheus's query API?")
    if error := server_error(body):
        raise QueryFailedError(error)
    envelope = _fit(_ENVELOPE, body, body)
    if envelope.status != "success":
        raise QueryFailedError(f"the answer's status is {one_line(envelope.status)!r}")
    warnings = _words(envelope.warnings) or []
    if not isinstance(warnings, list):
        warnings = [warnings]
    if envelope.is_partial is True:
        warnings = [*warnings, "the server says that its answer is partial (isPartial)"]
    return envelope, [one_line(str(each)) for each in warnings]


def open_result(body: _Bytes, wanted: str) -> tuple[msgspec.Raw, list[str]]:
    """The result of a good answer of type ``wanted``, undecoded, and the server's warnings."""
    envelope, warnings = _envelope(body)
    data = _fit(_DATA, envelope.data, body)
    if data.result_type != wanted:
        kind = f"the result has the unknown type {one_line(data.result_type, 40)!r}"
        raise QueryFailedError(_WRONG_TYPE.get(data.result_type, kind))
    return data.result, warnings


def _fit(decoder: msgspec.json.Decoder[_T], part: _Bytes | msgspec.Raw, body: _Bytes) -> _T:
    """Decode, or say what the body is instead."""
    try:
        return decoder.decode(part)
    except msgspec.ValidationError as error:
        raise QueryFailedError(
            f"the answer is JSON, but not Prometheus's ({one_line(str(error))}); check the URL"
        ) from None
    except UNFIT as error:
        if body.lstrip()[:1] not in (b"{", b"["):
            raise QueryFailedError(
                f"the answer is no JSON but {excerpt(body) or 'binary data'}; "
                "is the URL right, or is this a login page?"
            ) from None
        why = one_line(str(error)) or type(error).__name__
        raise QueryFailedError(
            f"the answer of {len(body)} bytes is damaged JSON ({why}); was it cut short?"
        ) from None


def each_series(
    raw: msgspec.Raw,
    whole: msgspec.json.Decoder[list[_T]],
    single: msgspec.json.Decoder[_T],
    odd: Oddities,
) -> Iterator[_T]:
    """The series: all decoded at once where they are as they should be (in half the time), else one
    by one without the odd ones. Each is let go in turn: what is made of it needs as much memory.
    """
    try:
        decoded = whole.decode(raw)
    except UNFIT:
        unfit = 0
        for piece in _fit(_PIECES, raw, bytes(raw)):
            try:
                yield single.decode(piece)
            except UNFIT as error:
                unfit += 1
                if unfit > _MAX_ODD:
                    raise QueryFailedError(
                        f"more than {_MAX_ODD:,} series of the answer are not in Prometheus's "
                        f"form ({one_line(str(error), 80)}); check the URL"
                    ) from None
                odd.add(f"not Prometheus's form ({one_line(str(error), 80)})", _labels(piece))
        return
    decoded.reverse()
    while decoded:
        yield decoded.pop()


class _Labelled(msgspec.Struct):
    metric: dict[str, str]


def _labels(piece: msgspec.Raw) -> Mapping[str, str] | None:
    try:
        return msgspec.json.decode(piece, type=_Labelled).metric
    except UNFIT:
        return None


def number_of(text: str) -> float | None:
    """A value as it was sent, NaN and infinities too; None when it is no number."""
    if text.encode().translate(None, _NUMERIC):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def warnings_of(said: list[str], odd: Oddities, *, kept: bool) -> tuple[str, ...]:
    """What the server ``said``, and what was left out. QueryFailedError when nothing was kept."""
    lines = odd.lines()
    if lines and not kept:
        raise QueryFailedError(f"no series of the answer can be used: {'; '.join(lines[:3])}")
    lines = [*said, *lines]
    if len(lines) > _MAX_WARNINGS:
        lines = [*lines[:_MAX_WARNINGS], f"and {len(lines) - _MAX_WARNINGS} more warnings"]
    return tuple(lines)
