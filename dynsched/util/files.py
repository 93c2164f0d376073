"""Files that other programs or people write: rules, tokens, certificates. Whatever lies under such
a path (a FIFO, a device without an end) must neither stop the process nor fill its memory.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

_KINDS: Final = {"p": "a pipe", "s": "a socket", "c": "a device", "b": "a device"}
_PART: Final = 64 * 1024


class FileTooLargeError(OSError):
    """The content is longer than such a file ever is; ``strerror`` says how long that is."""


def require_file(path: str | Path, most: int | None = None) -> os.stat_result:
    """What is known of a regular file. OSError where ``path`` is not there, no regular file, or
    longer than ``most`` bytes (FileTooLargeError). Opens nothing.
    """
    found = Path(path).stat()
    _require(found, path, most)
    return found


def fingerprint(found: os.stat_result) -> tuple[int, ...]:
    """Changes when the content does: edited in place, renamed over, or swapped behind symlinks."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_file(path: str | Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. OSError as `require_file`."""
    require_file(path, most)
    # It may be replaced before it is opened: O_NONBLOCK keeps the opening of a FIFO from waiting.
    with open(path, "rb", 0, opener=partial(_open, os.O_NONBLOCK)) as file:
        _require(os.fstat(file.fileno()), path, most)
        return _read(file.fileno(), path, most)


def read_stream(source: str | Path | int, most: int) -> bytes:
    """At most ``most`` bytes of anything that can be read to its end: a file, a pipe, an open
    descriptor. Waits for the writer of a pipe. OSError as `read_file`.
    """
    if isinstance(source, int):
        return _read(source, "", most)
    with open(source, "rb", 0, opener=partial(_open, 0)) as file:
        return _read(file.fileno(), source, most)


def _open(more: int, path: str, flags: int) -> int:
    # A terminal must not become the one of this process.
    return os.open(path, flags | more | os.O_NOCTTY)


def _require(found: os.stat_result, path: str | Path, most: int | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.filemode(found.st_mode)[0], "something else")
        raise OSError(errno.EINVAL, f"this is {kind}, not a file", str(path))
    if most is not None and found.st_size > most:
        raise _too_large(path, most)


def _read(descriptor: int, path: str | Path, most: int) -> bytes:
    parts: list[bytes] = []
    length = 0
    while part := os.read(descriptor, _PART):
        length += len(part)
        if length > most:  # a size of 0 in front of an endless file, as under /proc
            raise _too_large(path, most)
        parts.append(part)
    return b"".join(parts)


def _too_large(path: str | Path, most: int) -> FileTooLargeError:
    reason = f"it is longer than {most // 1024} KiB, which such a file never is"
    return FileTooLargeError(errno.EFBIG, reason, str(path))
