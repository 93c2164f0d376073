"""Prometheus's JSON, from bytes to columns: instant and range vectors, and the data of other pages.
Nothing here raises but QueryFailedError.

An answer: ``{"status", "data": {"resultType", "result"}, "warnings", "errorType", "error"}``.
``infos`` (hints on the expression, since Prometheus 3) say nothing about completeness: not read.
Native histograms are left out, with a warning; an answer with anything else that is not in
Prometheus's form fails as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np

from dynsched.engine.columns import Floats, Ints, RangeVector, Vector
from dynsched.engine.model import Sample, Series
from dynsched.sources.prometheus.query_errors import QueryFailedError, excerpt
from dynsched.util.formatting import one_line

_T = TypeVar("_T")
_Bytes = bytes | bytearray
_MAX_WARNINGS: Final = 10
_MAX_WORDS: Final = 64 * 1024  # bytes of what the server says about its answer
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

_ALL_SERIES: Final = 50_000
"""Series that all rules of a small cluster may have together. One with nine labels takes up to 2 kB
while its answer is read: 100 MB, beside some 90 of the process, in a container of 256 MiB."""
_ALL_BYTES: Final = 8 << 20
"""Bytes of JSON, likewise. A point of a range takes ten times its size there: 80 MB."""
_NODE_SERIES: Final = 2
_NODE_BYTES: Final = 2048
"""What a rule may have for each node, however many nodes and rules there are: a node that has just
been replaced has two series for a while; one that its labels are copied to has 2 kB of them."""
_PART_BYTES: Final = 8
"""Bytes of JSON for each part (a label, a value, a time). An answer of `{}` alone has a part
in three, and would take a hundred times its size."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The most that one answer may hold, ``size`` in bytes of JSON. A rule that forgot to aggregate
    (a series for each core and mode) fails by this. ``label`` names the node in the series.
    """

    nodes: int
    series: int
    size: int
    label: str = "instance"

    def check(self, series: int, size: int, parts: int = 0) -> None:
        """QueryFailedError for more. ``parts``: commas; each value takes some 60 to 150 bytes."""
        if series > self.series:
            found = f"has more than {self.series:,} series"
        elif size > self.size:
            found = f"is larger than {self.size / (1 << 20):.3g} MiB"
        elif parts > self.size // _PART_BYTES:
            found = f"is made of more than {self.size // _PART_BYTES:,} parts"
        else:
            return
        raise QueryFailedError(
            f"the answer {found}, in a cluster of {self.nodes:,} nodes; aggregate it by the "
            f"node, as in `sum by ({self.label}) (...)`, or select only this cluster's series"
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
    """Undecoded: its parts may be anything, of any size."""

    status: str
    data: msgspec.Raw = _NULL  # an error has none
    error: msgspec.Raw = _NULL
    error_type: msgspec.Raw = msgspec.field(name="errorType", default=_NULL)
    warnings: msgspec.Raw = _NULL
    is_partial: Any = msgspec.field(name="isPartial", default=None)  # VictoriaMetrics' cluster


class _Data(msgspec.Struct, gc=False):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw = _NULL


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_DATA: Final = msgspec.json.Decoder(_Data)
_ANYTHING: Final = msgspec.json.Decoder()
# What msgspec raises for bytes that are not what was expected, however odd.
_UNFIT: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Clocks:
    """``received``: our clock when the answer came. ``date``: the server's (its Date header, whole
    seconds). ``cached``: seconds for which a cache in between had held it. ``behind``: as of
    `ServerClock`.
    """

    received: float
    date: float | None = None
    cached: float = 0.0
    behind: float = 0.0

    @property
    def ahead(self) -> float:
        """By how many seconds the server's clock is ahead of ours; 0 where it does not say."""
        return 0.0 if self.date is None else self.date + self.cached - self.received

    def local_of(self, timestamps: Floats) -> Floats:
        """By our clock: now, less each sample's age by the server's, and no age is negative."""
        now = self.received if self.date is None else self.date
        return self.received - np.maximum(0.0, now - timestamps) - self.cached - self.behind


def parse_data(body: _Bytes, _: Clocks, __: AnswerLimit) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """``data`` of a good answer, as the only item, and its warnings."""
    data, warnings = _open(body)
    return (_fit(_ANYTHING, data, body),), tuple(warnings)


def server_error(body: _Bytes) -> str | None:
    """``errorType: error`` of a body that is Prometheus's own error answer, else None."""
    try:
        return _error_in(_ENVELOPE.decode(body))
    except _UNFIT:
        return None


def _error_in(envelope: _Envelope) -> str | None:
    if envelope.status != "error":
        return None
    parts = (_words(envelope.error_type), _words(envelope.error))
    said = [one_line(str(each)) for each in parts if each]
    return ": ".join(said) or "an error without a text"


def _words(said: msgspec.Raw) -> Any:
    """Decoded, or how much it is where that is too much."""
    size = len(memoryview(said))
    if size > _MAX_WORDS:
        return f"{size:,} bytes of text, which are not shown"
    try:
        return msgspec.json.decode(said)
    except _UNFIT:
        return "a text that is damaged"


def _open(body: _Bytes) -> tuple[msgspec.Raw, list[str]]:
    """The data of a good answer, undecoded, and the server's warnings."""
    if not body or body.isspace():
        raise QueryFailedError("the answer is empty; is this Prometheus's query API?")
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
    return envelope.data, [one_line(str(each)) for each in warnings]


def _fit(decoder: msgspec.json.Decoder[_T], part: _Bytes | msgspec.Raw, body: _Bytes) -> _T:
    with _explained(body):
        return decoder.decode(part)


@contextmanager
def _explained(body: _Bytes) -> Iterator[None]:
    """QueryFailedError for what cannot be decoded."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise QueryFailedError(
            f"the answer is JSON, but not Prometheus's ({one_line(str(error))}); check the URL"
        ) from None
    except _UNFIT as error:
        if body.lstrip()[:1] not in (b"{", b"["):
            raise QueryFailedError(
                f"the answer is no JSON but {excerpt(body) or 'binary data'}; "
                "is the URL right, or is this a login page?"
            ) from None
        why = one_line(str(error)) or type(error).__name__
        raise QueryFailedError(
            f"the answer of {len(body)} bytes is damaged JSON ({why}); was it cut short?"
        ) from None


def _numbers_of(texts: Sequence[str]) -> Floats:
    """Values as they were sent, NaN and infinities too. QueryFailedError for what is no number."""
    with suppress(ValueError):
        if not "".join(texts).encode().translate(None, _NUMERIC):
            return np.array([float(text) for text in texts], np.float64)
    raise QueryFailedError("a value of the answer is not a number; is this Prometheus's query API?")


_Columns = tuple[list[bytes], Floats, Floats, Ints]
"""The series; the times and values of all, one after the other; of spans, how many each has."""
_SPARE: Final = 4
"""So many times the series of the largest answer are remembered: most rules have the same ones."""
_METRIC: Final = b'"metric"'
_NEXT: Final = b',{"metric":'
_PART: Final = 256 * 1024  # bytes of an answer that are decoded in one go


class _VectorItem(msgspec.Struct, gc=False):
    """Without ``points`` it is a native histogram."""

    metric: msgspec.Raw
    points: tuple[float, str] | None = msgspec.field(name="value", default=None)


class _MatrixItem(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    points: list[tuple[float, str]] = msgspec.field(name="values", default_factory=list)


_FORMS: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "vector": msgspec.json.Decoder(list[_VectorItem]),
    "matrix": msgspec.json.Decoder(list[_MatrixItem]),
}
"""By type of result, what reads some of its series."""
_LABELS: Final = msgspec.json.Decoder(dict[str, str])


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
        if not result.startswith(b"["):  # what decodes it says what is wrong
            yield result
            return
        start = 1
        while (end := result.find(_NEXT, start + _PART)) > 0:
            yield b"[%b]" % result[start:end]
            start = end + 1
        yield b"[" + result[start:]

    def of(self, metrics: Iterable[msgspec.Raw]) -> Sequence[bytes]:
        """The same objects for the same labels. msgspec's errors for what is none."""
        texts = [bytes(metric) for metric in metrics]
        known = self._known
        for text in texts:
            if text not in known:
                _LABELS.decode(text)
                known[text] = text
        return [known[text] for text in texts]


def read_vector(
    keys: SeriesKeys, body: _Bytes, clocks: Clocks, most: AnswerLimit
) -> tuple[Sequence[Sample], tuple[str, ...]]:
    """An instant query's samples and warnings."""
    (series, times, values, _), warnings = _read(keys, body, "vector", most)
    if not series:
        return (), warnings
    return Vector(series, labels_of, values, clocks.local_of(times)), warnings


def read_spans(
    keys: SeriesKeys, body: _Bytes, _: Clocks, most: AnswerLimit
) -> tuple[Sequence[Series], tuple[str, ...]]:
    """A range's series and warnings; QueryFailedError."""
    (series, times, values, counts), warnings = _read(keys, body, "matrix", most)
    return RangeVector(series, labels_of, times, values, counts) if series else (), warnings


def _read(
    keys: SeriesKeys, body: _Bytes, wanted: str, most: AnswerLimit
) -> tuple[_Columns, tuple[str, ...]]:
    data, warnings = _open(body)
    found = _fit(_DATA, data, body)
    if found.result_type != wanted:
        kind = f"the result has the unknown type {one_line(found.result_type, 40)!r}"
        raise QueryFailedError(_WRONG_TYPE.get(found.result_type, kind))
    series: list[bytes] = []
    counts: list[int] = []
    values, times = [], []
    left_out = 0
    with _explained(body):
        for part in keys.parts(found.result):
            decoded = _FORMS[wanted].decode(part)
            usable = [each for each in decoded if each.points]
            left_out += len(decoded) - len(usable)
            series += keys.of(each.metric for each in usable)
            points = [each.points for each in usable]
            if wanted == "matrix":
                counts += map(len, points)
                points = list(chain.from_iterable(points))
            values.append(_numbers_of([text for _, text in points]))
            times.append(np.array([at for at, _ in points], np.float64))
    most.check(len(series), len(body))
    if left_out and not series and wanted == "vector":
        raise QueryFailedError(f"every series of the answer is a native histogram; {_BY_NODE}")
    if left_out:
        warnings += [f"{left_out} series left out: native histograms, not numbers"]
    columns = series, np.concatenate(times), np.concatenate(values), np.array(counts, np.int64)
    if (more := len(warnings) - _MAX_WARNINGS) > 0:
        warnings[_MAX_WARNINGS:] = [f"and {more} more warnings"]
    return columns, tuple(warnings)


def labels_of(key: Hashable) -> Mapping[str, str]:
    """Of a series' key, which is its labels' JSON."""
    return _LABELS.decode(cast("bytes", key))
