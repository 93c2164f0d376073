"""The candidates of a question, by the names that the scheduler writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dynsched.api.extender import wire
from dynsched.engine.columns import Bools
from dynsched.engine.placing.score import BEST, Scores

Numbers = NDArray[np.intp]
"""Positions in `NodeNumbers.names`."""

_TENS: Final = np.frombuffer(b" " * BEST + b"1", np.uint8)
_ONES: Final = np.frombuffer(b"0123456789" + b"0", np.uint8)


class NodeNumbers:
    """``names``: the nodes, each known by its position. ``number``: the position by the name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names: Final = list(names)
        self.number: Final = {name: number for number, name in enumerate(self.names)}
        heads = [b'{"Host":%b,"Score":' % msgspec.json.encode(name) for name in self.names]
        width = max(map(len, heads), default=0) + len("10")
        text = b"".join(head.ljust(width) + b"}," for head in heads)
        self.rows: Final = np.frombuffer(text, np.uint8).reshape(len(heads), width + len("},"))
        """Of each node a HostPriority, with blanks where its score is to stand."""

    def flags(self, names: Iterable[str]) -> Bools:
        """Which of the nodes are among ``names``; False for the number beyond all of them."""
        flags = np.zeros(len(self.names) + 1, np.bool_)
        flags[[self.number[name] for name in names if name in self.number]] = True
        return flags


class Candidates:
    """``names`` in the scheduler's order; ``raw``: the same in JSON, where it came so. ``numbers``:
    the position of each in ``nodes``; beyond all of them for one that is not known.
    """

    def __init__(self, names: Sequence[str], nodes: NodeNumbers, raw: bytes = b"") -> None:
        self.names, self.nodes, self.raw = names, nodes, raw
        number, unknown = nodes.number, len(nodes.names)
        self.numbers = np.array([number.get(name, unknown) for name in names], np.intp)

    def __len__(self) -> int:
        return len(self.names)

    def scored(self, scores: Scores) -> bytes | bytearray:
        if not self.names or (self.numbers == len(self.nodes.names)).any():
            return msgspec.json.encode(list(map(wire.HostPriority, self.names, scores.tolist())))
        # Copied together, 5,000 of them take a tenth of the time that encoding them takes. The
        # bytes are those that are sent: each further copy of them takes as long again.
        rows = self.nodes.rows
        answer = bytearray(len("[") + len(self) * rows.shape[1])
        answer[0] = ord("[")
        own = np.frombuffer(answer, np.uint8, offset=1).reshape(len(self), -1)
        rows.take(self.numbers, axis=0, out=own, mode="clip")
        own[:, -4], own[:, -3] = _TENS[scores], _ONES[scores]
        answer[-1] = ord("]")  # in place of the last comma
        return answer

    def without(self, dropped: Bools) -> bytes:
        kept = zip(self.names, dropped.tolist(), strict=True)
        return msgspec.json.encode([name for name, is_dropped in kept if not is_dropped])
