"""Logging of the whole process: one line an event, as text or as JSON."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import re
import select
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import wait
from datetime import UTC, datetime
from logging.handlers import QueueHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from pythonjsonlogger.json import JsonFormatter

from dynsched.util.threads import on_thread

if TYPE_CHECKING:
    import asyncio

MAX_WAITING: Final = 8000
"""Lines that wait to be written: about a megabyte."""
_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
FLUSH_SECONDS: Final = 1.0
"""How long the end of the process waits until all lines are written."""

EACH_SECONDS: Final = 60.0
"""For at most one line of each kind; the others are counted."""
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
    if sys.stderr is None:  # the process was started without one
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for as long as the process)
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(_Json() if log_format == "json" else text)
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
        sys.exit(1)


@contextlib.contextmanager
def logging_aside() -> Iterator[None]:
    """Log lines are written on a thread of their own, so that a reader of standard error who stops
    reading holds up neither the event loop nor the end. When an error ends the process while
    standard error is not read, the exit code is 1 and the message is lost.
    """
    root = logging.getLogger()
    before = root.handlers
    handler = _Aside(sys.stderr, before[0].formatter)
    root.handlers = [handler]
    try:
        yield
    except BaseException as error:
        is_read = handler.written() and handler.takes_more()
        if isinstance(error, Exception) and not is_read:
            sys.exit(1)
        raise
    else:
        handler.written()
    finally:
        root.handlers = before


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An event loop's exception handler. When descriptors or memory are used up, asyncio logs each
    connection that it cannot accept with a traceback: here, one line per minute.
    """
    error = context.get("exception")
    if not isinstance(error, OSError) or error.errno not in _USED_UP:
        loop.default_exception_handler(context)
        return
    quiet_logger(__name__).error(
        "no further connection is accepted for now: %s; close idle connections to it, "
        "or raise the limit (ulimit -n)",
        error.strerror,
    )


class _Json(JsonFormatter):
    """Times in RFC 3339, in UTC, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's own signature)
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Aside(QueueHandler):
    """Makes lines where they come up, and has them written on a thread. Lines beyond MAX_WAITING
    are dropped, and a later line says how many.
    """

    def __init__(self, stream: TextIO, formatter: logging.Formatter | None) -> None:
        self._waiting: queue.Queue[str] = queue.Queue(MAX_WAITING)
        super().__init__(self._waiting)
        self.setFormatter(formatter)
        self._stream = stream
        self._dropped = 0
        on_thread("log", self._write_all)

    def prepare(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 (a defect in a log call must not stop its caller)
            return f"a log line of {record.name} cannot be made: {error}: {record.msg!r}"

    def enqueue(self, record: Any) -> None:
        try:
            if self._dropped:
                text = "%d log lines are missing here: standard error was not read fast enough"
                where = __name__, logging.WARNING, __file__, 0
                told = logging.LogRecord(*where, text, (self._dropped,), None)
                self._waiting.put_nowait(self.format(told))
                self._dropped = 0
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def written(self) -> bool:
        """Wait until every line is written, for FLUSH_SECONDS at most; whether it is."""
        return bool(wait([on_thread("log, last lines", self._waiting.join)], FLUSH_SECONDS).done)

    def takes_more(self) -> bool:
        """Whether some thousand characters can be written now without waiting for a reader."""
        with contextlib.suppress(OSError, ValueError):  # no file: it does not block
            return bool(select.select([], [self._stream.fileno()], [], 0)[1])
        return True

    def _write_all(self) -> None:
        while True:
            with contextlib.suppress(OSError, ValueError):  # closed, or its disk is full
                self._write(f"{self._waiting.get()}\n")
            self._waiting.task_done()

    def _write(self, text: str) -> None:
        # Not by the stream, or by a handler: their locks would be held until the pipe is read, and
        # the process needs the same locks to flush both when it ends.
        descriptor = self._stream.fileno()
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # another process that shares the pipe made it non-blocking
                select.select([], [descriptor], [])


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
        self._told: dict[Hashable, frozenset[str]] = {}

    def is_new(self, key: Hashable, trouble: str) -> bool:
        """Whether to log this trouble now; it counts as logged from then on."""
        told, kind = self._told.get(key, frozenset()), trouble_kind(trouble)
        if kind in told or len(told) >= MAX_KINDS:
            return False
        self._told[key] = told | {kind}
        return True

    def forget(self, key: Hashable) -> bool:
        """``key`` has recovered; whether any trouble of it was logged."""
        return self._told.pop(key, None) is not None


class OneInAWhile(logging.Filter):
    """Limits log lines that callers can cause, however many their requests are. A kind is the
    message before its arguments, and the type of the error.
    """

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
        if len(self._kinds) >= _MAX_LIMITED:
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
