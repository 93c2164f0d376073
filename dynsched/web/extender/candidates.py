"""Lists of candidates that were asked about before.

A scheduler sends the same names to `/filter` and then to `/prioritize`, and most often the same
again for the next pod. Decoding 5,000 names costs as much as scoring them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from msgspec import Raw

from dynsched.web.extender.wire import host_fragments, names_fit, read_names

MAX_LISTS: Final = 16
"""Lists that are remembered."""

MEMORY: Final = 12 << 20
"""Bytes that they may take together: about eight lists of 5,000 names, with their answers."""
A_CANDIDATE: Final = 400
"""In a larger cluster they may take as many bytes for each name that a question may have, of which
there are twice as many as nodes: room for two lists of all nodes."""

_A_NAME: Final = 200
"""Bytes that a name takes besides its own: as text, as a fragment, and in the answers."""
_COPIES: Final = 4


class Answer(NamedTuple):
    """An answer, and what it was made of: the ``version`` of the readings. ``best``: the node that
    a pod is assumed to get by it; "" where there are many as good.
    """

    version: int
    body: bytes
    best: str = ""


class Candidates:
    """One list of names, and the last answers about it: by what was asked, of which version."""

    __slots__ = ("_fragments", "answers", "memory", "names", "raw")

    def __init__(self, names: list[str], raw: bytes = b"") -> None:
        self.names = names
        self.raw = raw
        self.memory = _COPIES * len(raw) + _A_NAME * len(names)
        self.answers: dict[str, Answer] = {}
        self._fragments: list[bytes] | None = None

    @property
    def fragments(self) -> list[bytes]:
        """For each name its part of a `/prioritize` answer."""
        if self._fragments is None:
            self._fragments = host_fragments(self.names)
        return self._fragments


class CandidateLists:
    """The lists that were used last."""

    def __init__(self) -> None:
        self._lists: OrderedDict[bytes, Candidates] = OrderedDict()
        self._memory = 0

    def of(self, raw: Raw, most: int) -> Candidates:
        """The list of this JSON. WireError when it is not one of ``most`` names at most."""
        names_fit(raw, most)
        key = bytes(raw)
        known = self._lists.get(key)
        if known is not None:
            self._lists.move_to_end(key)
            return known
        found = Candidates(read_names(key, most), key)
        room = max(MEMORY, A_CANDIDATE * most)
        if found.memory <= room:
            self._lists[key] = found
            self._memory += found.memory
            while len(self._lists) > MAX_LISTS or self._memory > room:
                _, forgotten = self._lists.popitem(last=False)
                self._memory -= forgotten.memory
        return found
