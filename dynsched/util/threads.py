"""Work that may hang (a file system, a resolver, a reader), on daemon threads: those of an executor
would keep the process from ending.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")


def on_thread(name: str, work: Callable[[], T]) -> Future[T]:
    """What ``work`` will return or raise. OSError where there is no thread to be had."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised again where it is asked for)
            future.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:  # the container's limit of processes
        future.set_exception(OSError(errno.EAGAIN, f"{error}; raise the limit of processes"))
    return future


class NotDoneError(Exception):
    """The work has not ended in time; it continues."""


class Aside(Generic[T]):
    """Work for whose end the caller waits a bounded time; one piece and one thread at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: Future[T] | None = None

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """What ``work`` returns or raises. NotDoneError after ``seconds``; it then goes on, and a
        later call gets its result instead of beginning anew, or NotDoneError at once.
        """
        future = self._under_way
        if future is None:
            future = self._under_way = on_thread(self._name, work)
        else:
            seconds = 0.0
        wait([future], seconds)
        if not future.done():
            raise NotDoneError
        self._under_way = None
        return future.result()
