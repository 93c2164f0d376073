"""Prometheus's JSON, from bytes to samples. Nothing here raises but QueryFailedError.

An answer: ``{"status", "data": {"resultType", "result"}, "warnings", "errorType", "error"}``.
``infos`` (hints on the expression, since Prometheus 3) say nothing about completeness: not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
import numpy as np

from dynsched.engine.columns import Floats
from dynsched.sources.prometheus.query_errors import QueryFailedError, excerpt
from dynsched.util.formatting import one_line

_T = TypeVar("_T")
_Bytes = bytes | bytearray
Reason = tuple[str, object]
"""Why a series cannot be used, and the value of it that shows it (None: nothing to show)."""
_MAX_WARNINGS: Final = 10
_MAX_WORDS: Final = 64 * 1024  # bytes of what the server says about its answer
_MAX_ODD: Final = 1000  # each costs some 10 microseconds, in which no other thread runs
_NUMERIC: Final = b"0123456789+-.eEinfINFaA"
"""What a number is made of, as strconv.FormatFloat writes it. `float` alone would take "1_0"."""
_NULL: Final = msgspec.Raw(b"null")
_BY_NODE: Final = "give a vector with a sample for each node, as in `sum by (instance) (...)`"
_WRONG_TYPE: Final = {
    "scalar": f"the expression gives a scalar, which belongs to no node; {_BY_NODE}",
    "string": f"the expression gives a string; {_BY_NODE}",
    "matrix": "the expression gives a range of samples for each series; "
    "put rate(...), avg_over_time(...) or the like around it",
    "vector": "the answer to a range query is an instant vector; is this Prometheus's query API?",
}


class _Envelope(msgspec.Struct, Generic[_T], gc=False):
    status: str
    data: _T = cast("Any", _NULL)  # an error has none
    # Undecoded, for they may be anything, of any size.
    error: msgspec.Raw = _NULL
    error_type: msgspec.Raw = msgspec.field(name="errorType", default=_NULL)
    warnings: msgspec.Raw = _NULL
    is_partial: Any = msgspec.field(name="isPartial", default=None)  # VictoriaMetrics' cluster


class _Data(msgspec.Struct, gc=False):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw = msgspec.Raw(b"null")


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope[msgspec.Raw])
_OPEN: Final = msgspec.json.Decoder(_Envelope[_Data])
_DATA: Final = msgspec.json.Decoder(_Data)
_ANYTHING: Final = msgspec.json.Decoder()
_PIECES: Final = msgspec.json.Decoder(list[msgspec.Raw])
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

    @property
    def ahead(self) -> float:
        """By how many seconds the server's clock is ahead of ours; 0 where it does not say."""
        return 0.0 if self.date is None else self.date + self.cached - self.received

    def local_of(self, timestamps: Floats) -> Floats:
        """The times of samples by our clock, never later than now.

        The age is taken between two readings of the server's own clock, so that a server whose
        clock is minutes off has neither only stale samples nor samples from the future.
        """
        now = self.received if self.date is None else self.date
        return self.received - np.maximum(0.0, now - timestamps) - self.cached


@dataclass(slots=True)
class Oddities:
    """Series that could not be used: each reason with one example and how many there were."""

    seen: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, reason: str, labels: Mapping[str, str] | None, value: object = None) -> None:
        example, count = self.seen.get(reason, ("", 0))
        if not count:
            example = _show(labels) + ("" if value is None else f" {one_line(repr(value), 40)}")
        self.seen[reason] = (example, count + 1)

    def lines(self) -> list[str]:
        return [
            f"{count} series left out: {reason}, as in {example}"
            for reason, (example, count) in self.seen.items()
        ]


def _show(labels: Mapping[str, str] | None) -> str:
    if labels is None:
        return "one whose labels cannot be read"
    return one_line("{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}")


def parse_data(body: _Bytes, _: Clocks) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Whatever stands in ``data`` of a good answer, as the only item, and its warnings."""
    envelope, warnings = _envelope(body)
    return (_fit(_ANYTHING, envelope.data, body),), tuple(warnings)


def server_error(body: _Bytes) -> str | None:
    """``errorType: error`` of a body that is Prometheus's own error answer, else None."""
    try:
        return _error_in(_ENVELOPE.decode(body))
    except UNFIT:
        return None


def _error_in(envelope: _Envelope[Any]) -> str | None:
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


def _envelope(
    body: _Bytes, decoder: msgspec.json.Decoder[_Envelope[Any]] = _ENVELOPE
) -> tuple[_Envelope[Any], list[str]]:
    """A good answer, and the server's warnings. The data is undecoded where ``decoder`` cannot."""
    if not body or body.isspace():
        raise QueryFailedError("the answer is empty; is this Prometheus's query API?")
    try:
        envelope = decoder.decode(body)
    except UNFIT:
        envelope = _fit(_ENVELOPE, body, body)
    if error := _error_in(envelope):
        raise QueryFailedError(error)
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
    # The whole answer is read once: while 10 MB are read, no other thread runs.
    envelope, warnings = _envelope(body, _OPEN)
    data = envelope.data
    if not isinstance(data, _Data):
        data = _fit(_DATA, data, body)
    if data.result_type != wanted:
        kind = f"the result has the unknown type {one_line(data.result_type, 40)!r}"
        raise QueryFailedError(_WRONG_TYPE.get(data.result_type, kind))
    return data.result, warnings


def _fit(decoder: msgspec.json.Decoder[_T], part: _Bytes | msgspec.Raw, body: _Bytes) -> _T:
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


def sift(
    raw: msgspec.Raw,
    form: msgspec.json.Decoder[_T],
    why_not: Callable[[_T], Reason | None],
    odd: Oddities,
) -> bytes:
    """The series of a result without those that cannot be used, as a result again."""
    kept, unfit = [], 0
    for piece in _fit(_PIECES, raw, bytes(raw)):
        try:
            reason = why_not(form.decode(piece))
        except UNFIT as error:
            unfit += 1
            what = f"Prometheus's form ({one_line(str(error), 80)})"
            if unfit > _MAX_ODD:
                raise QueryFailedError(
                    f"more than {_MAX_ODD:,} series of the answer are not in {what}; check the URL"
                ) from None
            reason = f"not {what}", None
        if reason is None:
            kept.append(bytes(piece))
        else:
            odd.add(reason[0], _labels(piece), reason[1])
    return b"[%b]" % b",".join(kept)


class _Labelled(msgspec.Struct):
    metric: dict[str, str]


def _labels(piece: msgspec.Raw) -> Mapping[str, str] | None:
    try:
        return msgspec.json.decode(piece, type=_Labelled).metric
    except UNFIT:
        return None


def numbers_of(texts: Sequence[str]) -> Floats:
    """Values as they were sent, NaN and infinities too. ValueError where one is no number."""
    if "".join(texts).encode().translate(None, _NUMERIC):
        raise ValueError("not a number")
    return np.array([float(text) for text in texts], np.float64)


def are_numbers(texts: Sequence[str]) -> bool:
    try:
        numbers_of(texts)
    except ValueError:
        return False
    return True


def warnings_of(said: list[str], odd: Oddities, *, kept: bool) -> tuple[str, ...]:
    """What the server ``said``, and what was left out. QueryFailedError when nothing was kept."""
    lines = odd.lines()
    if lines and not kept:
        raise QueryFailedError(f"no series of the answer can be used: {'; '.join(lines[:3])}")
    lines = [*said, *lines]
    if len(lines) > _MAX_WARNINGS:
        lines = [*lines[:_MAX_WARNINGS], f"and {len(lines) - _MAX_WARNINGS} more warnings"]
    return tuple(lines)
