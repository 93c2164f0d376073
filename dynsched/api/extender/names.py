"""The nodes' names as a scheduler writes them, found and answered many at a time.

Their order differs from pod to pod, so an answer can seldom be kept. Decoding 15,000 names would
take longer than all the rest: they stay bytes, whose nodes numpy finds. The same bytes come to
`/filter` and then to `/prioritize`, so the last list is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dynsched.api.extender import wire
from dynsched.api.transport.answering import Buffer
from dynsched.engine.columns import Bools
from dynsched.engine.score import BEST, Scores

Numbers = NDArray[np.intp]
"""Positions: in `NodeNumbers.names`, or in a text."""
Words = NDArray[np.uint64]
"""Names, one in each row, eight bytes in a word, with zeros after the end."""

_WORD: Final = 8
_UNKNOWN: Final = -1
_SLOTS: Final = 16
"""Slots of the hash table for each name, at least: of so many a few in a hundred are shared."""
_SEED: Final = np.uint64(0x2545F4914F6CDD1D)
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(32)

_START: Final = b'{"Host":"'
_MIDDLE: Final = b'","Score":'
_END: Final = b" 0},"
_TENS: Final = np.frombuffer(b" " * BEST + b"1", np.uint8)
_ONES: Final = np.frombuffer(b"0123456789" + b"0", np.uint8)


class NodeNumbers:
    """``names``: the nodes, each known by its position. ``number``: the position by the name.

    Names are found in a hash table with one name in a slot; a dict has those whose slot was taken.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.number = {name: number for number, name in enumerate(self.names)}
        written = list(map(_in_json, self.names))
        lengths = np.fromiter(map(len, written), np.intp, len(written))
        self._room = max(map(len, written), default=0)
        self._width = self._room // _WORD + 1
        self.padding = self._width * _WORD
        """Bytes that must follow the names in a text in which they are looked up."""
        inside = np.arange(self.padding) < np.arange(self._room + 1)[:, np.newaxis]
        # For each length, the bytes that belong to the name.
        masks = np.where(inside, np.uint8(0xFF), np.uint8(0))
        self._masks = masks.view(f"V{self.padding}").reshape(-1)
        text = b"".join([*written, bytes(self.padding)])
        words = self._words_of(text, np.cumsum(lengths) - lengths, lengths)
        self._words = np.vstack([words, np.zeros((1, self._width), np.uint64)])
        self._lengths = np.append(lengths, 0)
        self._varied = [
            column
            for column in range(self._width)
            if written and (words[:, column] != words[0, column]).any()
        ]
        bits = max(1, (_SLOTS * len(written)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, _UNKNOWN, np.int32)
        at = self._slots_of(words)
        self._slots[at] = np.arange(len(written))  # of several the last one gets it
        without = np.flatnonzero(self._slots[at] != np.arange(len(written)))
        self._others = {written[number]: number for number in without.tolist()}
        rows = b"".join(
            _START + name + _MIDDLE + b" " * (self._room - len(name)) + _END
            for name in [*written, b""]
        )
        self._rows = np.frombuffer(rows, np.uint8).reshape(len(written) + 1, -1)
        """For each node its part of an answer, with blanks before the score; a last one for all
        that are no nodes."""

    def find(self, text: bytes, starts: Numbers, lengths: Numbers) -> Numbers:
        """By the names' ``starts`` in ``text``, as they stand in JSON; -1 for what is not known."""
        words = self._words_of(text, starts, lengths)
        found = self._slots[self._slots_of(words)].astype(np.intp)
        known = self._words.take(found, axis=0)
        same = (found != _UNKNOWN) & (self._lengths[found] == lengths)
        for column in range(self._width):
            same &= known[:, column] == words[:, column]
        for index in np.flatnonzero(~same).tolist():
            start = int(starts[index])
            name = text[start : start + int(lengths[index])]
            found[index] = self._others.get(name, _UNKNOWN)
        return found

    def flags(self, names: Iterable[str]) -> Bools:
        """Which of the nodes are among ``names``; False for the number beyond all of them."""
        flags = np.zeros(len(self.names) + 1, np.bool_)
        flags[[self.number[name] for name in names if name in self.number]] = True
        return flags

    def rows(self, numbers: Numbers, scores: Scores) -> tuple[memoryview, int]:
        """A HostPriority for each candidate, with a comma, and how long each is. A score takes two
        characters, and blanks fill up shorter names: all rows are as long, and copied together.
        """
        rows = self._rows.take(numbers, axis=0, mode="clip")
        rows[:, -len(_END)] = _TENS[scores]
        rows[:, 1 - len(_END)] = _ONES[scores]
        return rows.reshape(-1).data, rows.shape[1]

    def _words_of(self, text: bytes, starts: Numbers, lengths: Numbers) -> Words:
        size = self.padding
        # One item for each byte of the text, of as many bytes as a name may have: to take items is
        # several times faster than to take rows of bytes.
        items = np.ndarray((len(text) - size + 1,), f"V{size}", text, strides=(1,))
        words: Words = items[starts].view(np.uint64)
        words &= self._masks[np.minimum(lengths, self._room)].view(np.uint64)
        return words.reshape(-1, self._width)

    def _slots_of(self, words: Words) -> Numbers:
        hashes = np.full(len(words), _SEED)
        for column in self._varied:
            hashes ^= words[:, column]
            hashes ^= hashes >> _FOLD
            hashes *= _ODD
        hashes ^= hashes >> _FOLD
        hashes *= _ODD
        return (hashes >> self._shift).astype(np.intp)


class _Names(NamedTuple):
    """``text`` is a JSON list with nothing between two names but ``","``, and with padding after
    its ``size`` bytes.
    """

    text: bytes
    size: int
    starts: Numbers
    lengths: Numbers


class Candidates:
    """One list of names. ``raw``: its JSON as it came. ``numbers``: the position of each name in
    ``nodes``; beyond all of them for one that is not known.
    """

    def __init__(self, names: _Names, nodes: NodeNumbers, raw: bytes | None = None) -> None:
        self.raw = memoryview(names.text)[: names.size] if raw is None else memoryview(raw)
        self.nodes = nodes
        self._names = names
        self.numbers = nodes.find(names.text, names.starts, names.lengths)
        self._unknown = np.flatnonzero(self.numbers == _UNKNOWN).tolist()
        self.numbers[self._unknown] = len(nodes.names)

    def __len__(self) -> int:
        return len(self.numbers)

    def is_list(self, raw: memoryview) -> bool:
        kept = self.raw.obj  # to compare two memoryviews takes a hundred times as long
        return len(raw) == len(self.raw) and isinstance(kept, bytes) and kept.startswith(raw)

    def scored(self, scores: Scores) -> bytes:
        if not len(self):
            return b"[]"
        whole, width = self.nodes.rows(self.numbers, scores)
        parts: list[bytes | memoryview] = [b"["]
        end = 0
        for index in self._unknown:
            host = b"%b%b%b%d}," % (_START, self._written(index), _MIDDLE, int(scores[index]))
            parts += whole[end : index * width], host
            end = (index + 1) * width
        last = parts.pop() if end == len(whole) else whole[end:]
        return b"".join([*parts, last[:-1], b"]"])

    def names(self) -> list[str]:
        known = [*self.nodes.names, ""]
        found = [known[number] for number in self.numbers.tolist()]
        for index in self._unknown:
            found[index] = self.name(index)
        return found

    def name(self, index: int) -> str:
        number = int(self.numbers[index])
        if number < len(self.nodes.names):
            return self.nodes.names[number]
        return msgspec.json.decode(b'"%b"' % self._written(index), type=str)

    def without(self, dropped: Bools) -> bytes:
        at = np.flatnonzero(dropped)
        firsts, ends = np.append(0, at + 1), np.append(at, len(self))  # of what is in between
        firsts, lasts = firsts[firsts < ends], ends[firsts < ends] - 1
        begins = self._names.starts[firsts] - 1
        closes = self._names.starts[lasts] + self._names.lengths[lasts] + 1
        text = memoryview(self._names.text)
        kept = zip(begins.tolist(), closes.tolist(), strict=True)
        return b"[%b]" % b",".join([text[begin:close] for begin, close in kept])

    def _written(self, index: int) -> bytes:
        start = int(self._names.starts[index])
        return self._names.text[start : start + int(self._names.lengths[index])]


class CandidateLists:
    def __init__(self) -> None:
        self._last: Candidates | None = None

    def of(self, value: Buffer, most: int, nodes: NodeNumbers) -> Candidates:
        """WireError unless the JSON is a list of ``most`` names at most."""
        raw, last = memoryview(value), self._last
        if len(raw) > most * wire.MOST_OF_A_NAME:
            raise wire.too_many("NodeNames", most)
        if last is None or last.nodes is not nodes or not last.is_list(raw):
            names = _between_quotes(raw, most, nodes.padding)
            if names is not None:
                last = Candidates(names, nodes)
            else:
                last = of_names(wire.read_names(raw, most), nodes, bytes(raw))
            self._last = last
        return last


def of_names(names: Iterable[str], nodes: NodeNumbers, raw: bytes | None = None) -> Candidates:
    """A list of these names. ``raw``: as of Candidates, where it came as JSON."""
    written = list(map(_in_json, names))
    lengths = np.fromiter(map(len, written), np.intp, len(written))
    between = len(b'","')
    starts = np.cumsum(lengths + between) - lengths - between + len(b'["')
    text = b'["%b"]' % b'","'.join(written) if written else b"[]"
    return Candidates(_Names(text + bytes(nodes.padding), len(text), starts, lengths), nodes, raw)


def _between_quotes(raw: memoryview, most: int, padding: int) -> _Names | None:
    """Without decoding them. None where a name may be written in more than one way, or there is
    something else between two names than ``","``.
    """
    text = b"".join((raw, bytes(padding)))
    size = len(raw)
    characters = np.frombuffer(text, np.uint8, size)
    is_quote = characters == ord('"')
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
        or (characters[closing[:-1] + 1] != ord(",")).any()
    ):
        return None
    return _Names(text, size, opening + 1, closing - opening - 1)


def _in_json(name: str) -> bytes:
    """A name as it stands in JSON, between the quotes."""
    return msgspec.json.encode(name)[1:-1]
