"""Work that may hang (a resolver, a reader), on daemon threads: those of an executor
would keep the process from ending.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
