"""Lists of candidates: the nodes that a question names, and those that were asked about before.

A scheduler sends the same bytes to `/filter` and then to `/prioritize`. For the next pod the order
differs, unless it asks about very few nodes.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from dynsched.api.extender import wire
from dynsched.api.extender.numbers import UNKNOWN, Flags, NodeNumbers, Numbers, Single, in_json
from dynsched.api.extender.wire import Buffer

MAX_LISTS: Final = 16
"""Lists that are remembered."""

MEMORY: Final = 12 << 20
"""Bytes that they may take together, in any case: some fifteen lists of 5,000 names, with their
answers."""
MEMORY_OF_A_NODE: Final = 400
"""Bytes for each node, where that is more: two lists of all nodes, with their answers."""

_OF_A_LIST: Final = 1000
_OF_A_NAME: Final = 24
"""Bytes that a list and a name in it take besides the text: three numbers."""
_SAMPLES: Final = 256
_FEW: Final = 1000
"""Unknown names that are looked at one by one."""
_QUOTE: Final = ord('"')
_COMMA: Final = ord(",")


class Filtered(NamedTuple):
    """The answer to `/filter`, in parts, and the ``version`` of the readings it was made of."""

    version: int
    parts: Sequence[Buffer]


class Scored(NamedTuple):
    """The answer to `/prioritize`, and the ``version`` of the readings it was made of. ``best``:
    the node that a pod is assumed to get by it; "" where there are many as good.
    """

    version: int
    body: bytes
    best: str


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
        self.unknown = np.flatnonzero(self.numbers == UNKNOWN)
        self.numbers[self.unknown] = len(nodes.names)
        self.filtered: Filtered | None = None
        self.scored: Scored | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def memory(self) -> int:
        """Bytes that it takes, with its answers."""
        copied = 0 if self.raw.obj is self._names.text else len(self.raw)
        own = _OF_A_LIST + len(self._names.text) + copied + _OF_A_NAME * len(self)
        filtered = self.filtered.parts if self.filtered else ()
        scored = len(self.scored.body) if self.scored else 0
        return own + scored + sum(len(memoryview(part)) for part in filtered)

    def is_list(self, raw: memoryview) -> bool:
        """Whether this is its JSON, byte for byte."""
        kept = self.raw.obj  # to compare two memoryviews takes a hundred times as long
        return len(raw) == len(self.raw) and isinstance(kept, bytes) and kept.startswith(raw)

    def written(self, index: int) -> bytes:
        """The name of one of them, as it stands in JSON."""
        start, length = int(self._names.starts[index]), int(self._names.lengths[index])
        return self._names.text[start : start + length]

    def singles(self) -> list[Single]:
        """Those for which ``nodes`` has no row."""
        long = np.flatnonzero(self._names.lengths > self.nodes.room)
        return [(index, self.written(index)) for index in np.union1d(long, self.unknown).tolist()]

    def names(self) -> list[str]:
        """All names, decoded."""
        named = list(map([*self.nodes.names, ""].__getitem__, self.numbers.tolist()))
        for index in self.unknown.tolist():
            named[index] = self.name(index)
        return named

    def name(self, index: int) -> str:
        """One name, decoded."""
        number = self.numbers[index]
        if number < len(self.nodes.names):
            return self.nodes.names[int(number)]
        return wire.read_name(self.written(index))

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
    """The lists that were used last."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[int, bytes], Candidates] = OrderedDict()
        self._nodes: NodeNumbers | None = None

    def of(self, value: Buffer, most: int, nodes: NodeNumbers) -> Candidates:
        """The list of this JSON. WireError when it is not one of ``most`` names at most."""
        found = self.of_plain(value, most, nodes)
        if found is None:
            raw = bytes(value)
            found = of_names(wire.read_names(raw, most), nodes, raw)
            self._keep(_key(memoryview(raw)), found)
        return found

    def of_plain(self, value: Buffer, most: int, nodes: NodeNumbers) -> Candidates | None:
        """As `of`, without decoding the names; None where that cannot be, as where this is no JSON.

        A text that begins with ``["``, ends with ``"]``, and has ``","`` from each second quote to
        the next, is a list of what is between the other quotes, if each of that is a string in
        JSON. A node's name is, as it is written in ``nodes``; the other ones are looked at.
        """
        wire.names_fit(value, most)
        if self._nodes is not nodes:
            self._nodes = nodes
            self._lists.clear()
        raw = memoryview(value)
        key = _key(raw)
        known = self._lists.get(key)
        if known is not None and known.is_list(raw):
            self._lists.move_to_end(key)
            return known
        names = _between_quotes(raw, most, nodes.padding)
        found = None if names is None else Candidates(names, nodes)
        if found is None or not _are_strings(found):
            return None
        self._keep(key, found)
        return found

    def _keep(self, key: tuple[int, bytes], found: Candidates) -> None:
        self._lists[key] = found
        self._lists.move_to_end(key)
        self.trim()

    def trim(self) -> None:
        """Forget the lists that were not used for the longest time, where they are too many or take
        too much. To be called when an answer was kept, which counts.
        """
        most = max(MEMORY, MEMORY_OF_A_NODE * (len(self._nodes.names) if self._nodes else 0))
        memory = 0
        for number, (key, each) in enumerate(reversed(list(self._lists.items()))):
            memory += each.memory
            if number >= MAX_LISTS or memory > most:
                del self._lists[key]


def of_names(names: Iterable[str], nodes: NodeNumbers, raw: bytes | None = None) -> Candidates:
    """A list of these names. ``raw``: as of Candidates, where it came as JSON."""
    written = list(map(in_json, names))
    lengths = np.fromiter(map(len, written), np.intp, len(written))
    between = len(b'","')
    starts = np.cumsum(lengths + between) - lengths - between + len(b'["')
    text = b'["%b"]' % b'","'.join(written) if written else b"[]"
    return Candidates(Names(text + bytes(nodes.padding), len(text), starts, lengths), nodes, raw)


def _key(raw: memoryview) -> tuple[int, bytes]:
    """To hash all of 3 MB takes ten times as long as to compare them with one list that is kept."""
    return len(raw), bytes(raw[:: len(raw) // _SAMPLES + 1])


def _between_quotes(raw: memoryview, most: int, padding: int) -> Names | None:
    """None where there is something else between two names than ``","``."""
    text = b"".join((raw, bytes(padding)))
    size = len(raw)
    characters = np.frombuffer(text, np.uint8, size)
    is_quote = characters == _QUOTE
    if np.count_nonzero(is_quote) > 2 * most:
        raise wire.too_many("NodeNames", most)
    quotes = np.flatnonzero(is_quote)
    opening, closing = quotes[0::2], quotes[1::2]
    if (
        not text.startswith(b'["')
        or not text.endswith(b'"]', 0, size)
        or len(opening) != len(closing)
        or (opening[1:] - closing[:-1] != len(b'",')).any()
        or (characters[closing[:-1] + 1] != _COMMA).any()
    ):
        return None
    return Names(text, size, opening + 1, closing - opening - 1)


def _are_strings(found: Candidates) -> bool:
    """Whether the names that are not known are strings in JSON, in the form in which nodes' names
    are looked up: an escaped one may be that of a node.
    """
    if len(found.unknown) > _FEW:
        return False
    with contextlib.suppress(wire.WireError):
        for index in found.unknown.tolist():
            written = found.written(index)
            if b"\\" in written:
                return False
            wire.read_name(written)
        return True
    return False
