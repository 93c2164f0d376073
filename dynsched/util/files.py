"""Files that other programs or people write: rules, tokens, certificates. A pipe, a device or an
endless file at such a path must neither stop the process nor fill its memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def fingerprint(path: str | Path) -> tuple[int, ...]:
    """Changes when the content does: edited in place, renamed over, or swapped behind symlinks."""
    found = _stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_file(path: str | Path, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes. OSError, also for a longer one."""
    _stat(path)
    return read_stream(path, most)


def _stat(path: str | Path) -> os.stat_result:
    """OSError for what would have to be opened and waited for. A directory fails when opened."""
    found = Path(path).stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "this is a pipe or a device, not a file", str(path))
    return found


def read_stream(source: str | Path | int, most: int) -> bytes:
    """At most ``most`` bytes of anything that can be read to its end: a file, a pipe, an open
    descriptor. Waits for the writer of a pipe. OSError as `read_file`.
    """
    with open(source, "rb", closefd=not isinstance(source, int)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        reason = f"it is longer than {most // 1024} KiB, which such a file never is"
        raise OSError(errno.EFBIG, reason, str(source))
    return content
