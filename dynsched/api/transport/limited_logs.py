"""Rate limit for log lines that callers can cause, independent of the number of requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

EACH_SECONDS: Final = 60.0
"""For at most one line of each kind; the others are counted."""
_MAX_CHARACTERS: Final = 200
_MAX_KINDS: Final = 100


class OneInAWhile(logging.Filter):
    """A kind is the message before its arguments, and the type of the error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (str(record.msg)[:_MAX_CHARACTERS], record.exc_info and record.exc_info[0])
        now = self._clock()
        written, kept_back = self._kinds.get(kind, (-EACH_SECONDS, 0))
        if now - written < EACH_SECONDS:
            self._kinds[kind] = (written, kept_back + 1)
            return False
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        if kept_back:
            record.msg = f"{record.getMessage()} (and {kept_back} more like it before)"
            record.args = ()
        return True


def quiet_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    if not any(isinstance(each, OneInAWhile) for each in logger.filters):
        logger.addFilter(OneInAWhile())
    return logger
