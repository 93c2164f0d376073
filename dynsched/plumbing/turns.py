"""How the threads of this process take turns."""

from __future__ import annotations

import sys
from typing import Final

_TURN: Final = 0.001
"""Seconds for which a thread may go on while another one waits; Python's own figure is 0.005."""


def take_shorter_turns() -> None:
    """Let no thread hold up the event loop for long.

    The loop gives its turn away with each read, write and wait for the network. While the answers
    to three queries are decoded in three threads, it got it back up to 15 ms later each time; a
    request to us needs several of them.
    """
    sys.setswitchinterval(_TURN)
