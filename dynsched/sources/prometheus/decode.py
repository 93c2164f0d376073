"""Decodes Prometheus's JSON to samples and series, or to the data of other pages of its API. The
only exception raised here is QueryFailedError.

A response: ``{"status", "data": {"resultType", "result"}, "warnings", "errorType", "error"}``.
``infos`` (hints on the expression, since Prometheus 3) are not read, because they do not tell
whether the response is complete. Native histograms and malformed series are left out with a
warning, and a value that is not a number becomes NaN. Any other malformed response fails as a
whole.
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
"""Result types without a sample for each node."""
# Shared by all rules of a small cluster, in a container of 256 MiB. A series of nine labels takes
# up to 2 kB while it is decoded, so all take 100 MB. A point of a range takes ten times its JSON.
_ALL_SERIES: Final = 50_000
_ALL_BYTES: Final = 8 << 20
# Per rule and node, for any number of nodes. A node that was just replaced has two series for a
# while. If the labels of a node are copied to its series, they take 2 kB.
_NODE_SERIES: Final = 2
_NODE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The maximum size of a response; ``size`` in bytes of JSON. A rule that does not aggregate
    (one series for each core and mode) exceeds it.
    """

    nodes: int
    series: int
    size: int

    def check(self, *, series: int = 0, size: int = 0) -> None:
        """QueryFailedError if the response is larger."""
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
    """The limit for each of this number of ``rules``, which are queried concurrently."""
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
_ROWS: Final = msgspec.json.Decoder(list[_Row] | None)  # Go encodes an empty list as null
_ROW: Final = msgspec.json.Decoder(_Row)
_RAW_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANYTHING: Final = msgspec.json.Decoder()
# All that msgspec raises for malformed bytes.
_MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Clocks:
    """``received``: our clock when the response arrived. ``date``: the server's clock (its Date
    header, whole seconds). ``behind``: as in `ServerClock`.
    """

    received: float
    date: float | None = None
    behind: float = 0.0

    def local_of(self, timestamp: float) -> float:
        """The timestamp on our clock, from the sample's age on the server's; no age is negative."""
        now = self.received if self.date is None else self.date
        return self.received - max(0.0, now - timestamp) - self.behind


def parse_data(
    body: bytearray, _: Clocks, __: AnswerLimit
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """``data`` of a successful response, as the only item, and the warnings."""
    data, warnings = _open(body)
    return (_fit(_ANYTHING, data, body),), tuple(warnings)


def server_error(body: bytearray) -> str | None:
    """``errorType: error`` if the body is Prometheus's own error response, else None."""
    try:
        return _error_in(_ENVELOPE.decode(body))
    except _MALFORMED:
        return None


def _error_in(envelope: _Envelope) -> str | None:
    if envelope.status != "error":
        return None
    texts = [one_line(each) for each in (envelope.error_type, envelope.error) if each]
    return ": ".join(texts) or "an error without a text"


def _open(body: bytearray) -> tuple[msgspec.Raw, list[str]]:
    """The undecoded data of a successful response, and the server's warnings."""
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
    except _MALFORMED as error:
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
    body: bytearray, clocks: Clocks, limit: AnswerLimit
) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """An instant query's samples and warnings."""
    rows, warnings = _read(body, "vector", limit)
    samples = [
        Sample(row.metric, _number(row.value[1]), clocks.local_of(_seconds(row.value[0])))
        for row in rows
        if row.value
    ]
    if not samples and rows:
        raise QueryFailedError(f"every series of the answer is a native histogram; {_BY_NODE}")
    return samples, _all_warnings(warnings, len(rows) - len(samples))


def read_spans(
    body: bytearray, _: Clocks, limit: AnswerLimit
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """A range query's series and warnings."""
    rows, warnings = _read(body, "matrix", limit)
    series = [
        Series(row.metric, tuple([(_seconds(at), _number(text)) for at, text in row.values]))
        for row in rows
        if row.values
    ]
    return series, _all_warnings(warnings, len(rows) - len(series))


def _read(body: bytearray, wanted: str, limit: AnswerLimit) -> tuple[list[_Row], list[str]]:
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
    except _MALFORMED:
        rows, left_out = _valid_rows(found.result, body)
        warnings.append(f"{left_out} series left out: malformed")
    limit.check(series=len(rows), size=len(body))
    return rows, warnings


def _valid_rows(result: msgspec.Raw, body: bytearray) -> tuple[list[_Row], int]:
    """The valid rows, and the number of others. QueryFailedError if no row is valid."""
    rows, raw_rows = [], _fit(_RAW_ROWS, result, body)
    for raw in raw_rows:
        with contextlib.suppress(*_MALFORMED):
            rows.append(_ROW.decode(raw))
    return rows or _fit(_ROWS, result, body) or [], len(raw_rows) - len(rows)


def _number(text: str) -> float:
    """NaN if ``text`` is not a number: this sample is INVALID, and the other series still count."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _seconds(timestamp: float) -> float:
    """The timestamp in seconds. Some servers send milliseconds, microseconds or nanoseconds; as
    seconds these would lie in the future, and so every sample would count as fresh.
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
