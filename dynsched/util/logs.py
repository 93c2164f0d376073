"""Logging of the whole process: one line an event, as text or as JSON."""

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
"""The time in which at most one line of each kind is logged."""
_MAX_CHARACTERS: Final = 200
_MAX_LIMITED: Final = 100

MAX_KINDS: Final = 20
"""Kinds of message per trouble that are logged; further ones not until the trouble is over."""
_QUOTED: Final = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\")(?!\w)")
_NUMBERED: Final = re.compile(r"\S*\d\S*")
_LIST: Final = re.compile(r"#(?:\W*#)+")
"""A list of such words counts as one, however long it is."""


def configure_logging(log_format: str, level: str) -> None:
    """Send every log record to standard error. ``log_format`` is ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)  # Python's own are lines of the log too


@contextlib.contextmanager
def last_words(expected: tuple[type[Exception], ...]) -> Iterator[None]:
    """With ``json`` what ends the process is a line of the log too; ``expected``: no traceback."""
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
    """Log lines are written on a separate thread: a reader of standard error that stops reading
    does not hold up the event loop. Up to MAX_WAITING lines wait for it; further ones are dropped.
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
        return record  # with its fields: it stays in this process


def trouble_kind(trouble: str) -> str:
    """What stays the same of a message while the trouble is the same: all but what it quotes, and
    the words that have a number in them (counts, addresses, times, sizes).
    """
    return _LIST.sub("#", _NUMBERED.sub("#", _QUOTED.sub("#", trouble)))


class LoggedKinds:
    """Which kinds of trouble were logged, by the ``key`` of the part in trouble, until it has
    recovered: the numbers in a message may change each time, or two kinds may alternate.
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
        """``key`` has recovered; whether any trouble of it was logged."""
        return self._logged.pop(key, None) is not None


class _OneInAWhile(logging.Filter):
    """A kind is the message before its arguments, and the type of the error."""

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
    """For lines that callers can cause: one of each kind a minute, however many their requests
    are.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(each, _OneInAWhile) for each in logger.filters):
        logger.addFilter(_OneInAWhile())
    return logger
