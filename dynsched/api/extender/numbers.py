"""The nodes' names as a scheduler writes them, found and answered many at a time.

A scheduler that asks about all nodes puts their names into another order for each pod: it looks at
nodes in 16 goroutines, and lists those that fit as they are found. So an answer can seldom be kept
from pod to pod. As Python strings, each looked up in a dict, 65,000 names would take longer than
all the rest. Here they stay bytes of the question, and numpy finds the nodes of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dynsched.engine.score import BEST

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]
"""Positions: in `NodeNumbers.names`, or in a text."""
Words = NDArray[np.uint64]
"""Names, one in each row, eight bytes in a word, with zeros after the end."""
Single = tuple[int, bytes]
"""A candidate that is not among the rows: its index, and its name as it stands in JSON."""

_WORD: Final = 8
_AT_ONCE: Final = 8192
"""Names that are looked up in one step, so that temporary arrays stay in the processor's cache."""
UNKNOWN: Final = -1
"""Instead of a number."""
_SLOTS: Final = 8
"""Slots of the hash table for each name, at least."""
_FEW: Final = 200
"""So many names are looked up one by one: to use arrays takes longer."""
_SEED: Final = np.uint64(0x2545F4914F6CDD1D)
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(32)

_START: Final = b'{"Host":"'
_MIDDLE: Final = b'","Score":'
_END: Final = b" 0},"
_TENS: Final = np.frombuffer(b" " * BEST + b"1", np.uint8)
_ONES: Final = np.frombuffer(b"0123456789" + b"0", np.uint8)
_encode: Final = msgspec.json.Encoder().encode


class NodeNumbers:
    """``names``: the nodes, each known by its position. ``number``: the position by the name.

    Names are found in a hash table: a name is in the slot of its hash or, where that was taken, in
    the one beside it. Those that are not in the slot of their hash are in a dict too, as are those
    of more than twice the mean length: of a row for each name, all are as long as the longest, so
    these have none.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.number = {name: number for number, name in enumerate(self.names)}
        written = [in_json(name) for name in self.names]
        lengths = np.fromiter(map(len, written), np.intp, len(written))
        self.room = int(min(lengths.max(), 2 * lengths.mean())) if written else 0
        """Bytes of the longest name that has a row."""
        self._width = self.room // _WORD + 1
        self._masks = _masks(self.room, self._width * _WORD)
        text = b"".join([*written, bytes(self.padding)])
        words = self._words_of(text, np.cumsum(lengths) - lengths, lengths)
        self._words = np.vstack([words, np.zeros((1, self._width), np.uint64)])
        self._lengths = np.append(lengths, 0)
        self._varied = [
            column
            for column in range(self._width)
            if written and (words[:, column] != words[0, column]).any()
        ]
        bits = (_SLOTS * len(written)).bit_length() + 1
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, UNKNOWN, np.int32)
        at = self._slots_of(words)
        left = np.flatnonzero(lengths <= self.room)
        for beside in (0, 1):
            free = left[self._slots[at[left] ^ beside] == UNKNOWN]
            self._slots[at[free] ^ beside] = free  # of several the last one gets it
            left = left[self._slots[at[left] ^ beside] != left]
        without = np.flatnonzero(self._slots[at] != np.arange(len(written)))
        self._others = {written[number]: number for number in without.tolist()}
        self._rows = _rows(written, self.room)

    @property
    def padding(self) -> int:
        """Bytes that must follow the names in a text in which they are looked up."""
        return self._width * _WORD

    def find(self, text: bytes, starts: Numbers, lengths: Numbers) -> Numbers:
        """The number of each name that begins at ``starts`` of ``text``, as it stands in JSON; -1
        for one that is not known.
        """
        found = np.full(len(starts), UNKNOWN, np.intp)
        without: Numbers = np.arange(len(starts))
        for beside in (0, 1):
            if beside and len(without) < _FEW:
                break
            for begin in range(0, len(without), _AT_ONCE):
                part = without[begin : begin + _AT_ONCE]
                found[part] = self._in_slots(text, starts[part], lengths[part], beside)
            without = without[found[without] == UNKNOWN]
        ends = starts + lengths
        found[without] = [
            self._others.get(text[start:end], UNKNOWN)
            for start, end in zip(starts[without].tolist(), ends[without].tolist(), strict=True)
        ]
        return found

    def flags(self, names: Iterable[str]) -> Flags:
        """Which of the nodes are among ``names``; False for the number beyond all of them."""
        flags = np.zeros(len(self.names) + 1, np.bool_)
        flags[[self.number[name] for name in names if name in self.number]] = True
        return flags

    def scored(self, numbers: Numbers, singles: Iterable[Single], scores: Bytes) -> bytes:
        """The answer to `/prioritize`: a HostPriority for each candidate. One of the ``singles``
        may have any number.

        A score takes two characters, the first of them mostly a blank, and blanks fill up shorter
        names: so all rows are as long, and are copied together.
        """
        if not len(numbers):
            return b"[]"
        rows = self._rows.take(numbers, axis=0, mode="clip")
        rows[:, -len(_END)] = _TENS[scores]
        rows[:, 1 - len(_END)] = _ONES[scores]
        whole = rows.reshape(-1).data
        parts: list[bytes | memoryview] = [b"["]
        end, width = 0, rows.shape[1]
        for index, name in singles:
            parts += whole[end : index * width], _host(name, int(scores[index]))
            end = (index + 1) * width
        last = parts.pop() if end == len(whole) else whole[end:]
        return b"".join([*parts, last[:-1], b"]"])

    def _in_slots(self, text: bytes, starts: Numbers, lengths: Numbers, beside: int) -> Numbers:
        words = self._words_of(text, starts, lengths)
        number = self._slots[self._slots_of(words) ^ beside].astype(np.intp)
        known = self._words.view(f"V{self.padding}").reshape(-1)[number]
        known_words: Words = known.view(np.uint64).reshape(-1, self._width)
        same = (number != UNKNOWN) & (self._lengths[number] == lengths)
        for column in range(self._width):
            same &= known_words[:, column] == words[:, column]
        return np.where(same, number, UNKNOWN)

    def _words_of(self, text: bytes, starts: Numbers, lengths: Numbers) -> Words:
        size = self.padding
        # One item for each byte of the text, of as many bytes as a name may have: to take items is
        # several times faster than to take rows of bytes.
        items = np.ndarray((len(text) - size + 1,), f"V{size}", text, strides=(1,))
        words: Words = items[starts].view(np.uint64)
        words &= self._masks[np.minimum(lengths, self.room)].view(np.uint64)
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


def in_json(name: str) -> bytes:
    """A name as it stands in JSON, between the quotes."""
    return _encode(name)[1:-1]


def _masks(room: int, size: int) -> NDArray[np.void]:
    """For each length up to ``room``, the bytes out of ``size`` that belong to the name."""
    inside = np.arange(size) < np.arange(room + 1)[:, np.newaxis]
    return np.where(inside, np.uint8(0xFF), np.uint8(0)).view(f"V{size}").reshape(-1)


def _rows(written: Sequence[bytes], room: int) -> Bytes:
    """For each node its part of an answer, with blanks before the score; a last one is blank."""
    blank = b" " * (len(_START) + room + len(_MIDDLE) + len(_END))
    rows = b"".join(
        [
            blank
            if len(name) > room
            else _START + name + _MIDDLE + b" " * (room - len(name)) + _END
            for name in written
        ]
    )
    return np.frombuffer(rows + blank, np.uint8).reshape(-1, len(blank))


def _host(name: bytes, score: int) -> bytes:
    return b'{"Host":"%b","Score":%d},' % (name, score)
