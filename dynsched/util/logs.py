"""Logging for the whole process: one line per event, as text or JSON."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import sys
import time
from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Final

from pythonjsonlogger.json import JsonFormatter

MAX_WAITING: Final = 8_000
EACH_SECONDS: Final = 60.0
"""A `quiet_logger` logs at most one line of each kind in this time."""
_MAX_CHARACTERS: Final = 200
_MAX_LIMITED: Final = 100

MAX_KINDS: Final = 20
"""Maximum kinds of trouble logged per key. Further ones are not logged until it recovers."""
_QUOTED: Final = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\")(?!\w)")
_NUMBERED: Final = re.compile(r"\S*\d\S*")
_LIST: Final = re.compile(r"#(?:\W*#)+")
"""A list of replaced words counts as one word, however long it is."""


def configure_logging(log_format: str, level: str) -> None:
    """Send every log record to standard error. ``log_format`` is ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)  # Python's warnings become log lines too


@contextlib.contextmanager
def last_words(expected: tuple[type[Exception], ...]) -> Iterator[None]:
    """If the format is ``json``, log the error that ends the process, and exit. Errors of the types
    in ``expected`` are logged without a traceback.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(logging.getLogger().handlers[0].formatter, _Json):
            raise
        cause = None if isinstance(error, expected) else error
        logging.getLogger("dynsched").critical("%s", error, exc_info=cause)
        sys.exit(getattr(error, "exit_code", 1))


@contextlib.contextmanager
def logging_aside() -> Iterator[None]:
    """Write log lines on a separate thread, so that the event loop does not block if the reader of
    standard error stops reading. Up to MAX_WAITING lines are queued; more are dropped.
    """
    root = logging.getLogger()
    before, waiting = root.handlers, queue.SimpleQueue[logging.LogRecord]()
    listener = QueueListener(waiting, *before)
    root.handlers = [_Queued(waiting)]
    root.handlers[0].addFilter(lambda _: waiting.qsize() < MAX_WAITING)
    listener.start()
    try:
        yield
    finally:
        root.handlers = before
        listener.stop()


class _Utc(logging.Formatter):
    """Times in RFC 3339, in UTC, to the millisecond."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's own signature)
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(_Utc):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")


class _Json(_Utc, JsonFormatter):
    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )


class _Queued(QueueHandler):
    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # unchanged: it stays in this process and need not be pickled


def trouble_kind(trouble: str) -> str:
    """The message without its variable parts: quoted text, and words with a number in them (counts,
    addresses, times, sizes).
    """
    return _LIST.sub("#", _NUMBERED.sub("#", _QUOTED.sub("#", trouble)))


class LoggedKinds:
    """Remembers which kinds of trouble were logged for each ``key``, until it recovers. Comparing
    with the last message is not enough: its numbers may change, or two kinds may alternate.
    """

    def __init__(self) -> None:
        self._logged: dict[Hashable, frozenset[str]] = {}

    def is_new(self, key: Hashable, trouble: str) -> bool:
        """Whether to log this trouble now; it counts as logged from then on."""
        logged, kind = self._logged.get(key, frozenset()), trouble_kind(trouble)
        if kind in logged or len(logged) >= MAX_KINDS:
            return False
        self._logged[key] = logged | {kind}
        return True

    def forget(self, key: Hashable) -> bool:
        """Mark ``key`` as recovered; returns whether any trouble of it was logged."""
        return self._logged.pop(key, None) is not None


class _RateLimitFilter(logging.Filter):
    """Passes one record of each kind per EACH_SECONDS. A kind is the message before its arguments
    are filled in, and the type of the error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (str(record.msg)[:_MAX_CHARACTERS], record.exc_info and record.exc_info[0])
        now = time.monotonic()
        if now - self._logged.get(kind, -EACH_SECONDS) < EACH_SECONDS:
            return False
        if len(self._logged) >= _MAX_LIMITED:
            self._logged.clear()
        self._logged[kind] = now
        return True


def quiet_logger(name: str) -> logging.Logger:
    """A logger for lines that callers can cause: it logs one line of each kind per minute, however
    many requests there are.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(each, _RateLimitFilter) for each in logger.filters):
        logger.addFilter(_RateLimitFilter())
    return logger
