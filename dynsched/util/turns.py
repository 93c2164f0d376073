"""How the threads of this process take turns."""

from __future__ import annotations

import sys
from typing import Final

_TURN: Final = 0.001
"""Seconds for which a thread may go on while another one waits; Python's own figure is 0.005."""


def take_shorter_turns() -> None:
    """Let no thread hold up the event loop for long.

    The loop gives its turn away with each read, write and wait for the network, and gets it back
    when each thread that runs has had its own; a request to us needs several of them. Decision 0020
    has what was measured.
    """
    sys.setswitchinterval(_TURN)
