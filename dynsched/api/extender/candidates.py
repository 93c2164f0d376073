"""The nodes that a question names, as they stand in it.

A scheduler sends the same bytes to `/filter` and then to `/prioritize`, so the last list is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from dynsched.api.extender import wire
from dynsched.api.extender.numbers import UNKNOWN, Flags, NodeNumbers, Numbers, in_json
from dynsched.api.transport.answering import Buffer
from dynsched.engine.score import Scores

_QUOTE: Final = ord('"')
_COMMA: Final = ord(",")


class Names(NamedTuple):
    """Names as they stand in JSON: ``text`` is a list of them, with nothing between two but
    ``","``, and with padding after its ``size`` bytes. One for each of ``starts`` and ``lengths``.
    """

    text: bytes
    size: int
    starts: Numbers
    lengths: Numbers


class Candidates:
    """One list of names. ``raw``: its JSON as it came. ``numbers``: the position of each name in
    ``nodes``; beyond all of them for one that is not known.
    """

    def __init__(self, names: Names, nodes: NodeNumbers, raw: bytes | None = None) -> None:
        self.raw = memoryview(names.text)[: names.size] if raw is None else memoryview(raw)
        self.nodes = nodes
        self._names = names
        self.numbers = nodes.find(names.text, names.starts, names.lengths)
        self.unknown = np.flatnonzero(self.numbers == UNKNOWN).tolist()
        self.numbers[self.unknown] = len(nodes.names)

    def __len__(self) -> int:
        return len(self.numbers)

    def is_list(self, raw: memoryview) -> bool:
        """Whether this is its JSON, byte for byte."""
        kept = self.raw.obj  # to compare two memoryviews takes a hundred times as long
        return len(raw) == len(self.raw) and isinstance(kept, bytes) and kept.startswith(raw)

    def written(self, index: int) -> bytes:
        """The name of one of them, as it stands in JSON."""
        start, length = int(self._names.starts[index]), int(self._names.lengths[index])
        return self._names.text[start : start + length]

    def scored(self, scores: Scores) -> bytes:
        """The answer to `/prioritize`, with a score for each."""
        unknown = [(index, self.written(index)) for index in self.unknown]
        return self.nodes.scored(self.numbers, unknown, scores)

    def names(self) -> list[str]:
        """All names, decoded."""
        known = [*self.nodes.names, ""]
        found = [known[number] for number in self.numbers.tolist()]
        for index in self.unknown:
            found[index] = self.name(index)
        return found

    def name(self, index: int) -> str:
        """One name, decoded."""
        number = self.numbers[index]
        if number < len(self.nodes.names):
            return self.nodes.names[int(number)]
        return msgspec.json.decode(b'"%b"' % self.written(index), type=str)

    def without(self, dropped: Flags) -> bytes:
        """The names as a list in JSON, without those that are flagged."""
        at = np.flatnonzero(dropped)
        firsts, ends = np.append(0, at + 1), np.append(at, len(self))  # of what is in between
        firsts, lasts = firsts[firsts < ends], ends[firsts < ends] - 1
        begins = self._names.starts[firsts] - 1
        closes = self._names.starts[lasts] + self._names.lengths[lasts] + 1
        text = memoryview(self._names.text)
        kept = zip(begins.tolist(), closes.tolist(), strict=True)
        return b"[%b]" % b",".join([text[begin:close] for begin, close in kept])


class CandidateLists:
    """Reads lists, and keeps the last one."""

    def __init__(self) -> None:
        self._last: Candidates | None = None

    def of(self, value: Buffer, most: int, nodes: NodeNumbers) -> Candidates:
        """The list of this value, which is JSON. WireError unless it is one of ``most`` names at
        most.
        """
        wire.names_fit(value, most)
        raw, last = memoryview(value), self._last
        if last is not None and last.nodes is nodes and last.is_list(raw):
            return last
        names = _between_quotes(raw, most, nodes.padding)
        if names is not None:
            self._last = Candidates(names, nodes)
        else:
            self._last = of_names(wire.read_names(raw, most), nodes, bytes(raw))
        return self._last


def of_names(names: Iterable[str], nodes: NodeNumbers, raw: bytes | None = None) -> Candidates:
    """A list of these names. ``raw``: as of Candidates, where it came as JSON."""
    written = list(map(in_json, names))
    lengths = np.fromiter(map(len, written), np.intp, len(written))
    between = len(b'","')
    starts = np.cumsum(lengths + between) - lengths - between + len(b'["')
    text = b'["%b"]' % b'","'.join(written) if written else b"[]"
    return Candidates(Names(text + bytes(nodes.padding), len(text), starts, lengths), nodes, raw)


def _between_quotes(raw: memoryview, most: int, padding: int) -> Names | None:
    """Without decoding them. None where a name may be written in more than one way, or there is
    something else between two names than ``","``.
    """
    text = b"".join((raw, bytes(padding)))
    size = len(raw)
    characters = np.frombuffer(text, np.uint8, size)
    is_quote = characters == _QUOTE
    if np.count_nonzero(is_quote) > 2 * most:
        raise wire.too_many("NodeNames", most)
    quotes = np.flatnonzero(is_quote)
    opening, closing = quotes[0::2], quotes[1::2]
    if (
        not text.isascii()
        or b"\\" in text
        or not text.startswith(b'["')
        or not text.endswith(b'"]', 0, size)
        or len(opening) != len(closing)
        or (opening[1:] - closing[:-1] != len(b'",')).any()
        or (characters[closing[:-1] + 1] != _COMMA).any()
    ):
        return None
    return Names(text, size, opening + 1, closing - opening - 1)
