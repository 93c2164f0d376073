"""When two messages are about the same trouble, so that it is logged once."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

MAX_KINDS: Final = 20
"""Kinds per trouble that are logged; further ones are not logged until the trouble is over."""

_QUOTED: Final = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\")(?!\w)")
_NUMBERED: Final = re.compile(r"\S*\d\S*")
_LIST: Final = re.compile(r"#(?:\W*#)+")
"""A list of such words counts as one, however long it is."""


def kind_of(trouble: str) -> str:
    """What stays the same of a message while the trouble is the same: all but what it quotes, and
    the words that have a number in them (counts, addresses, times, sizes).
    """
    return _LIST.sub("#", _NUMBERED.sub("#", _QUOTED.sub("#", trouble)))


class LoggedKinds:
    """Which kinds of trouble were logged, by the ``key`` of the part in trouble, until it has
    recovered: the numbers in a message may change each time, or two kinds may alternate.
    """

    def __init__(self) -> None:
        self._told: dict[Hashable, frozenset[str]] = {}

    def is_new(self, key: Hashable, trouble: str) -> bool:
        """Whether to log this trouble now; it counts as logged from then on."""
        told, kind = self._told.get(key, frozenset()), kind_of(trouble)
        if kind in told or len(told) >= MAX_KINDS:
            return False
        self._told[key] = told | {kind}
        return True

    def forget(self, key: Hashable) -> bool:
        """``key`` has recovered; whether any trouble of it was logged."""
        return self._told.pop(key, None) is not None
