"""The nodes' names as a scheduler writes them, found and answered many at a time.

A scheduler that asks about all nodes puts their names into another order for each pod: it looks at
nodes in 16 goroutines, and lists those that fit as they are found. So an answer can seldom be kept
from pod to pod. As Python strings, each looked up in a dict, 15,000 names would take longer than
all the rest. Here they stay bytes of the question, and numpy finds the nodes of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dynsched.engine.score import BEST, Scores

Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]
"""Positions: in `NodeNumbers.names`, or in a text."""
Words = NDArray[np.uint64]
"""Names, one in each row, eight bytes in a word, with zeros after the end."""

_WORD: Final = 8
UNKNOWN: Final = -1
"""Instead of a number."""
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
_encode: Final = msgspec.json.Encoder().encode


class NodeNumbers:
    """``names``: the nodes, each known by its position. ``number``: the position by the name.

    Names are found in a hash table with one name in a slot; a dict has those whose slot was taken.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.number = {name: number for number, name in enumerate(self.names)}
        written = [in_json(name) for name in self.names]
        lengths = np.fromiter(map(len, written), np.intp, len(written))
        self._room = max(map(len, written), default=0)
        self._width = self._room // _WORD + 1
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
        self._slots = np.full(1 << bits, UNKNOWN, np.int32)
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

    @property
    def padding(self) -> int:
        """Bytes that must follow the names in a text in which they are looked up."""
        return self._width * _WORD

    def find(self, text: bytes, starts: Numbers, lengths: Numbers) -> Numbers:
        """The number of each name that begins at ``starts`` of ``text``, as it stands in JSON; -1
        for one that is not known.
        """
        words = self._words_of(text, starts, lengths)
        found = self._slots[self._slots_of(words)].astype(np.intp)
        known = self._words.take(found, axis=0)
        same = (found != UNKNOWN) & (self._lengths[found] == lengths)
        for column in range(self._width):
            same &= known[:, column] == words[:, column]
        for index in np.flatnonzero(~same).tolist():
            start = int(starts[index])
            name = text[start : start + int(lengths[index])]
            found[index] = self._others.get(name, UNKNOWN)
        return found

    def flags(self, names: Iterable[str]) -> Flags:
        """Which of the nodes are among ``names``; False for the number beyond all of them."""
        flags = np.zeros(len(self.names) + 1, np.bool_)
        flags[[self.number[name] for name in names if name in self.number]] = True
        return flags

    def scored(
        self, numbers: Numbers, unknown: Iterable[tuple[int, bytes]], scores: Scores
    ) -> bytes:
        """The answer to `/prioritize`: a HostPriority for each candidate. ``unknown``: the index of
        each that is no node, and its name as it stands in JSON.

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
        for index, name in unknown:
            host = b'{"Host":"%b","Score":%d},' % (name, int(scores[index]))
            parts += whole[end : index * width], host
            end = (index + 1) * width
        last = parts.pop() if end == len(whole) else whole[end:]
        return b"".join([*parts, last[:-1], b"]"])

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


def in_json(name: str) -> bytes:
    """A name as it stands in JSON, between the quotes."""
    return _encode(name)[1:-1]
