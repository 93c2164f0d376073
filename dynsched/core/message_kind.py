"""When two messages are about the same trouble, so that it is logged once."""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\")(?!\w)")
_NUMBERED: Final = re.compile(r"\S*\d\S*")
_LIST: Final = re.compile(r"#(?:\W*#)+")
"""A list of such words counts as one, however long it is."""


def kind_of(trouble: str) -> str:
    """What stays the same of a message while the trouble is the same: all but what it quotes, and
    the words that have a number in them (counts, addresses, times, sizes).
    """
    return _LIST.sub("#", _NUMBERED.sub("#", _QUOTED.sub("#", trouble)))
