"""Reads files that other programs or people write: rules, tokens, certificates. A pipe, a device or
an endless file at such a path must neither block the process nor fill its memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def fingerprint(path: str | Path) -> tuple[int, ...]:
    """A value that changes with the content: by an edit in place, a rename, or a symlink swap."""
    found = _stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_file(path: str | Path, max_bytes: int) -> bytes:
    """The content of a file. OSError if it cannot be read or is longer than ``max_bytes``."""
    _stat(path)
    return read_stream(path, max_bytes)


def _stat(path: str | Path) -> os.stat_result:
    """Stat a file. OSError for a pipe or device, which may block when opened or read. A directory
    passes here and fails when it is opened.
    """
    found = Path(path).stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "this is a pipe or a device, not a file", str(path))
    return found


def read_stream(source: str | Path | int, max_bytes: int) -> bytes:
    """The content of a file, a pipe or an open descriptor, read to its end. Waits for the writer of
    a pipe. OSError as in `read_file`.
    """
    with open(source, "rb", closefd=not isinstance(source, int)) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        reason = f"it is longer than {max_bytes // 1024} KiB, the limit for such a file"
        raise OSError(errno.EFBIG, reason, str(source))
    return content
