"""Where one request of HTTP/1.1 ends and the next begins, in what a caller sends. Pure.

The HTTP server behind it reads ahead: it would parse some thirty requests of a caller before it has
answered the first, and take a megabyte of header fields for each. So it is given one at a time.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

MAX_HEAD_BYTES: Final = 16 << 10
"""Bytes of a request line and its header fields; with a cookie and a token it is some 10 KiB."""
MAX_HEAD_LINES: Final = 100
"""Header fields: each costs the server some 400 bytes, however short it is."""
MAX_BYTES_AHEAD: Final = 256 << 10
"""Bytes that may have come before the answer to the present request has gone out."""

_MAX_LINE_LENGTH: Final = 1024
"""Bytes of the line before a chunk, or of a field after the last one."""
_FREE_CHUNKS: Final = 200
_SMALLEST_CHUNK: Final = 256
"""Bytes, on the average of a body with more than `_FREE_CHUNKS` chunks: to take one apart costs as
much time whether there is one byte in it or a thousand.
"""
_END: Final = re.compile(rb"\r?\n\r?\n")
_CHUNKED: Final = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
_LENGTH: Final = re.compile(
    rb"^content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)
_SIZE: Final = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_LINE_BREAKS: Final = b"\r\n"


class TooMuchError(Exception):
    """The caller sends more than a request may have; it is answered with ``status``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _At(Enum):
    """The part of a request that is expected next."""

    HEAD = auto()
    BODY = auto()
    CHUNK_LINE = auto()
    CHUNK = auto()
    TRAILER = auto()
    END = auto()
    NOWHERE = auto()
    """It is not HTTP: everything is passed on, and the server closes the connection."""


class Framing:
    """Splits the received bytes into requests. `take` passes the present one on; `answered` reports
    that the next one may follow.
    """

    def __init__(self) -> None:
        self._at = _At.HEAD
        self._line = bytearray()  # the head so far, or the line before a chunk
        self._left = 0
        self._chunks = 0.0
        self._answered = False
        self._ahead = b""

    @property
    def in_head(self) -> bool:
        """Whether the head of a request is not complete yet."""
        return self._at is _At.HEAD

    @property
    def begun(self) -> bool:
        """Whether a part of a request has been received."""
        return self._at is not _At.HEAD or bool(self._line)

    @property
    def ahead(self) -> bool:
        """Whether bytes of a further request are kept."""
        return bool(self._ahead)

    def take(self, data: bytes) -> bytes:
        """The part of ``data`` to pass to the server now; the rest is kept. TooMuchError."""
        end = self._through(data)
        if end < len(data):
            self._ahead += data[end:]
            if len(self._ahead) > MAX_BYTES_AHEAD:
                raise TooMuchError(400, "requests are sent ahead of their answers")
            return data[:end]
        return data

    def answered(self) -> bytes:
        """The answer was sent: the kept bytes to pass to the server now. TooMuchError.

        The unread rest of a body still belongs to the answered request.
        """
        if self._at is not _At.END:
            self._answered = True
            return b""
        self._at = _At.HEAD
        ahead, self._ahead = self._ahead, b""
        return self.take(ahead)

    def _through(self, data: bytes) -> int:
        """Advance to the end of ``data`` or of the request; the position of that end."""
        at = 0
        while at < len(data):
            if self._at is _At.END:
                if not self._answered:
                    break
                self._at, self._answered = _At.HEAD, False
            at = self._step(data, at)
        return at

    def _step(self, data: bytes, at: int) -> int:
        match self._at:
            case _At.HEAD:
                return self._head(data, at)
            case _At.BODY | _At.CHUNK:
                step = min(self._left, len(data) - at)
                self._left -= step
                if not self._left:
                    self._at = _At.END if self._at is _At.BODY else _At.CHUNK_LINE
                return at + step
            case _At.CHUNK_LINE | _At.TRAILER:
                return self._chunk_line(data, at)
            case _:
                return len(data)

    def _head(self, data: bytes, at: int) -> int:
        if not self._line:  # empty lines before a request are skipped, as the server does
            at = len(data) - len(data[at:].lstrip(_LINE_BREAKS))
        known = len(self._line)
        self._line += data[at : at + MAX_HEAD_BYTES + 1]
        found = _END.search(self._line, max(0, known - 3))
        if found is not None:
            del self._line[found.end() :]
        if len(self._line) > MAX_HEAD_BYTES or self._line.count(b"\n") > MAX_HEAD_LINES:
            raise TooMuchError(431, "the request line and its header fields are too long")
        if found is None:
            return len(data)
        self._at = self._after_head()
        taken = len(self._line) - known
        self._line.clear()
        return at + taken

    def _after_head(self) -> _At:
        if _CHUNKED.search(self._line):
            return _At.CHUNK_LINE
        length = _LENGTH.search(self._line)
        self._left = 0 if length is None else int(length[1])
        self._chunks = 0.0
        return _At.BODY if self._left else _At.END

    def _chunk_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        self._line += data[at : end or len(data)]
        if len(self._line) > _MAX_LINE_LENGTH:
            raise TooMuchError(400, "the line before a chunk is too long")
        if not end:
            return len(data)
        line = bytes(self._line).rstrip(_LINE_BREAKS)
        self._line.clear()
        self._chunks += 1
        if self._at is _At.TRAILER:
            self._at = _At.TRAILER if line else _At.END
        elif (size := _SIZE.fullmatch(line)) is None:
            self._at = _At.NOWHERE
        else:
            self._left = int(size[1], 16)
            self._chunks -= self._left / _SMALLEST_CHUNK
            self._at = _At.CHUNK if self._left else _At.TRAILER
            self._left += len(_LINE_BREAKS)
        if self._chunks > _FREE_CHUNKS:
            raise TooMuchError(400, "the chunks of the body are too small")
        return end
