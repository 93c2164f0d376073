"""Files that other programs or people write: rules, tokens, certificates. A pipe, a device or an
endless file at such a path must neither stop the process nor fill its memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_KINDS: Final = {"p": "a pipe", "s": "a socket", "c": "a device", "b": "a device"}


class FileTooLargeError(OSError):
    """The content is longer than such a file ever is; ``strerror`` says how long that is."""


def require_file(path: str | Path, most: int | None = None) -> os.stat_result:
    """What is known of a regular file. OSError where ``path`` is not there, no regular file, or
    longer than ``most`` bytes (FileTooLargeError). Opens nothing.
    """
    found = Path(path).stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.filemode(found.st_mode)[0], "something else")
        raise OSError(errno.EINVAL, f"this is {kind}, not a file", str(path))
    if most is not None and found.st_size > most:
        raise _too_large(path, most)
    return found


def fingerprint(found: os.stat_result) -> tuple[int, ...]:
    """Changes when the content does: edited in place, renamed over, or swapped behind symlinks."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_file(path: str | Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. OSError as `require_file`."""
    require_file(path, most)
    return read_stream(path, most)


def read_stream(source: str | Path | int, most: int) -> bytes:
    """At most ``most`` bytes of anything that can be read to its end: a file, a pipe, an open
    descriptor. Waits for the writer of a pipe. OSError as `read_file`.
    """
    with open(source, "rb", closefd=not isinstance(source, int)) as file:
        content = file.read(most + 1)
    if len(content) > most:  # files under /proc say that their size is 0
        raise _too_large(source, most)
    return content


def _too_large(source: str | Path | int, most: int) -> FileTooLargeError:
    reason = f"it is longer than {most // 1024} KiB, which such a file never is"
    return FileTooLargeError(errno.EFBIG, reason, str(source))
