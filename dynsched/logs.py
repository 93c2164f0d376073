"""Logging of the whole process: one line an event, as text or as JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from pythonjsonlogger.json import JsonFormatter


def configure_logging(log_format: str, level: str) -> None:
    """Send every log record to standard error. ``log_format`` is ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(
            JsonFormatter(
                "{asctime}{levelname}{name}{message}",
                style="{",
                rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            )
        )
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


@contextlib.contextmanager
def last_words(log_format: str, expected: tuple[type[Exception], ...]) -> Iterator[None]:
    """With ``json``, what ends the process is a line of the log as well. ``expected`` are errors
    whose message says all; others come with their traceback.
    """
    try:
        yield
    except Exception as error:
        if log_format != "json":
            raise
        cause = None if isinstance(error, expected) else error
        logging.getLogger("dynsched").critical("%s", error, exc_info=cause)
        sys.exit(1)
