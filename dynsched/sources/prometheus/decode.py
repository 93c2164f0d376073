"""Prometheus's JSON, from bytes to samples and series, or to the data of other pages of its API.
The only exception raised here is QueryFailedError.

An answer: ``{"status", "data": {"resultType", "result"}, "warnings", "errorType", "error"}``.
``infos`` (hints on the expression, since Prometheus 3) say nothing about completeness: not read.
Native histograms and series of another form are left out, with a warning; a value that is no number
is NaN. An answer that has any other form fails as a whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from dynsched.core.samples import Sample, Series
from dynsched.sources.prometheus.query_errors import QueryFailedError, excerpt
from dynsched.util.formatting import one_line

_T = TypeVar("_T")
_MAX_WARNINGS: Final = 10
_YEAR_5138: Final = 1e11
_BY_NODE: Final = "give a vector with a sample for each node, as in `sum by (instance) (...)`"
_WRONG_TYPES: Final = ("scalar", "string", "matrix")
"""Types of a result that has no sample for each node."""
# All rules of a small cluster may have this together, in a container of 256 MiB. A series of nine
# labels takes up to 2 kB while it is decoded: 100 MB. A point of a range takes ten times its JSON.
_ALL_SERIES: Final = 50_000
_ALL_BYTES: Final = 8 << 20
# Each rule may have this for each node, however many there are: a node that has just been replaced
# has two series for a while; one that its labels are copied to has 2 kB of them.
_NODE_SERIES: Final = 2
_NODE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The most that one answer may hold, ``size`` in bytes of JSON. A rule that forgot to aggregate
    (a series for each core and mode) exceeds it.
    """

    nodes: int
    series: int
    size: int

    def check(self, *, series: int = 0, size: int = 0) -> None:
        """QueryFailedError for more."""
        if series <= self.series and size <= self.size:
            return
        found = f"is larger than {self.size / (1 << 20):.3g} MiB"
        if series > self.series:
            found = f"has more than {self.series:,} series"
        raise QueryFailedError(
            f"the answer {found}, in a cluster of {self.nodes:,} nodes; aggregate it by the label "
            "that names the node, as in `sum by (instance) (...)`, or select only this cluster's "
            "series"
        )


def answer_limit(nodes: int, rules: int) -> AnswerLimit:
    """For each of so many ``rules`` that are asked side by side."""
    share = max(1, rules)
    return AnswerLimit(
        nodes,
        max(_NODE_SERIES * nodes, _ALL_SERIES // share),
        max(_NODE_BYTES * nodes, _ALL_BYTES // share),
    )


class _Envelope(msgspec.Struct, gc=False):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")  # an error has none
    error: str | None = None
    error_type: str | None = msgspec.field(name="errorType", default=None)
    warnings: list[str] | None = None
    is_partial: Any = msgspec.field(name="isPartial", default=None)  # VictoriaMetrics' cluster


class _Data(msgspec.Struct, gc=False):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw


class _Row(msgspec.Struct, gc=False):
    """A series. Without ``value`` and ``values`` it is a native histogram."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_DATA: Final = msgspec.json.Decoder(_Data)
_ROWS: Final = msgspec.json.Decoder(list[_Row] | None)  # null: an empty list of a Go program
_ROW: Final = msgspec.json.Decoder(_Row)
_RAW_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANYTHING: Final = msgspec.json.Decoder()
# msgspec raises these for bytes of another form, however odd.
_UNFIT: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Clocks:
    """``received``: our clock when the answer came. ``date``: the server's (its Date header, whole
    seconds). ``behind``: as of `ServerClock`.
    """

    received: float
    date: float | None = None
    behind: float = 0.0

    def local_of(self, timestamp: float) -> float:
        """By our clock: now, less the sample's age by the server's; no age is negative."""
        now = self.received if self.date is None else self.date
        return self.received - max(0.0, now - timestamp) - self.behind


def parse_data(
    body: bytearray, _: Clocks, __: AnswerLimit
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """``data`` of a good answer, as the only item, and its warnings."""
    data, warnings = _open(body)
    return (_fit(_ANYTHING, data, body),), tuple(warnings)


def server_error(body: bytearray) -> str | None:
    """``errorType: error`` of a body that is Prometheus's own error answer, else None."""
    try:
        return _error_in(_ENVELOPE.decode(body))
    except _UNFIT:
        return None


def _error_in(envelope: _Envelope) -> str | None:
    if envelope.status != "error":
        return None
    said = [one_line(each) for each in (envelope.error_type, envelope.error) if each]
    return ": ".join(said) or "an error without a text"


def _open(body: bytearray) -> tuple[msgspec.Raw, list[str]]:
    """The data of a good answer, not decoded, and the server's warnings."""
    envelope = _fit(_ENVELOPE, body, body)
    if error := _error_in(envelope):
        raise QueryFailedError(error)
    if envelope.status != "success":
        raise QueryFailedError(f"the answer's status is {one_line(envelope.status)!r}")
    warnings = list(map(one_line, envelope.warnings or ()))
    if envelope.is_partial is True:
        warnings.append("the server says that its answer is partial (isPartial)")
    return envelope.data, warnings


def _fit(decoder: msgspec.json.Decoder[_T], part: bytearray | msgspec.Raw, body: bytearray) -> _T:
    try:
        return decoder.decode(part)
    except msgspec.ValidationError as error:
        raise QueryFailedError(
            f"the answer is JSON, but not Prometheus's ({one_line(str(error))}); check the URL"
        ) from None
    except _UNFIT as error:
        if body.lstrip()[:1] not in b"{[":
            raise QueryFailedError(
                f"the answer is no JSON but {excerpt(body) or 'binary data'}; "
                "is the URL right, or is this a login page?"
            ) from None
        why = one_line(str(error)) or type(error).__name__
        raise QueryFailedError(
            f"the answer of {len(body)} bytes is damaged JSON ({why}); was it cut short?"
        ) from None


def read_vector(
    body: bytearray, clocks: Clocks, most: AnswerLimit
) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """An instant query's samples and warnings."""
    rows, warnings = _read(body, "vector", most)
    samples = [
        Sample(row.metric, _number(row.value[1]), clocks.local_of(_seconds(row.value[0])))
        for row in rows
        if row.value
    ]
    if not samples and rows:
        raise QueryFailedError(f"every series of the answer is a native histogram; {_BY_NODE}")
    return samples, _all_warnings(warnings, len(rows) - len(samples))


def read_spans(
    body: bytearray, _: Clocks, most: AnswerLimit
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """A range query's series and warnings."""
    rows, warnings = _read(body, "matrix", most)
    series = [
        Series(row.metric, tuple([(_seconds(at), _number(text)) for at, text in row.values]))
        for row in rows
        if row.values
    ]
    return series, _all_warnings(warnings, len(rows) - len(series))


def _read(body: bytearray, wanted: str, most: AnswerLimit) -> tuple[list[_Row], list[str]]:
    data, warnings = _open(body)
    found = _fit(_DATA, data, body)
    if found.result_type != wanted:
        remedy = f"; {_BY_NODE}" if wanted == "vector" else ""
        raise QueryFailedError(
            f"the result is of type {one_line(found.result_type, 40)!r}{remedy}",
            refused=wanted == "vector" and found.result_type in _WRONG_TYPES,
        )
    try:
        rows = _ROWS.decode(found.result) or []
    except _UNFIT:
        rows, left_out = _rows_that_fit(found.result, body)
        warnings.append(f"{left_out} series left out: not of Prometheus's form")
    most.check(series=len(rows), size=len(body))
    return rows, warnings


def _rows_that_fit(result: msgspec.Raw, body: bytearray) -> tuple[list[_Row], int]:
    """These, and how many others there are. QueryFailedError where none fits."""
    rows, raw_rows = [], _fit(_RAW_ROWS, result, body)
    for raw in raw_rows:
        with contextlib.suppress(*_UNFIT):
            rows.append(_ROW.decode(raw))
    return rows or _fit(_ROWS, result, body) or [], len(raw_rows) - len(rows)


def _number(text: str) -> float:
    """NaN for what is none, so that the other series count: such a sample is INVALID."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _seconds(timestamp: float) -> float:
    """Some servers send milliseconds, microseconds or nanoseconds, by which each sample would be of
    the future, and so fresh.
    """
    while timestamp > _YEAR_5138:
        timestamp /= 1000
    return timestamp


def _all_warnings(warnings: list[str], left_out: int) -> tuple[str, ...]:
    if left_out:
        warnings.append(f"{left_out} series left out: native histograms, not numbers")
    if (more := len(warnings) - _MAX_WARNINGS) > 0:
        warnings[_MAX_WARNINGS:] = [f"and {more} more warnings"]
    return tuple(warnings)
