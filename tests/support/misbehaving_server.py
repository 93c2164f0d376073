"""A loopback HTTP server that does to its clients whatever a test wants, byte by byte."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; ``form`` is that of the body or, by GET, of the URL."""

    method: str
    target: str
    headers: dict[str, str]  # lower-case names; the values of one name in lines
    form: dict[str, str]
    client_name: str | None = None  # the subject of the client certificate

    @property
    def path(self) -> str:
        return urlsplit(self.target).path


Reply = Callable[[Seen, socket.socket], None]


def http(
    body: bytes | str,
    status: int = 200,
    *,
    content_type: str = "application/json",
    date: float | None = None,
    length: int | None = None,
    **headers: str,
) -> bytes:
    """A whole answer. ``length`` lies about its length; ``date`` is the server's clock."""
    body = body.encode() if isinstance(body, str) else body
    lines = {
        "Content-Type": content_type,
        "Content-Length": str(len(body) if length is None else length),
        "Connection": "close",  # as this server does; else the client may send on it once more
        **({} if date is None else {"Date": formatdate(date, usegmt=True)}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return head.encode() + b"\r\n" + body


def chunked(body: bytes, size: int = 512, **headers: str) -> bytes:
    """A whole answer in chunks, as a Go server sends one larger than 2 KiB."""
    head = ["HTTP/1.1 200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(head).encode() + b"\r\n\r\n" + sent + b"0\r\n\r\n"


def vector(*series: tuple[dict[str, str], str], at: float = 1000.0, **more: object) -> str:
    """The body of a good answer; ``more`` are further top-level fields."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in series]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data, **more})


GOOD = vector(({"instance": "a"}, "91.5"))


def sends(*pieces: bytes) -> Reply:

    def reply(_: Seen, connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return reply


class MisbehavingServer:
    """Answers each request by ``replies[query]``, a Reply or the bytes to send; else by GOOD.

    ``greet``, where given, gets each new connection before anything is read from it.
    ``stopped`` is set at the end, for replies that wait.
    """

    def __init__(
        self,
        replies: dict[str, Reply | bytes] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        greet: Callable[[socket.socket], None] | None = None,
    ) -> None:
        self.replies = replies or {}
        self.default: Reply | bytes = http(GOOD)
        self.seen: list[Seen] = []
        self.stopped = threading.Event()
        self._tls = tls
        self._greet = greet
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def hang(self, *_: object) -> None:
        """A Reply: nothing, until the test is over."""
        self.stopped.wait()

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        try:
            with contextlib.suppress(OSError, ValueError), connection:
                if self._greet is not None:
                    self._greet(connection)
                if self._tls is None:
                    self._answer(connection)
                else:
                    with self._tls.wrap_socket(connection, server_side=True) as secured:
                        self._answer(secured)
        finally:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            method, target, _ = stream.readline().decode().split(" ")
            headers: dict[str, str] = {}
            while line := stream.readline().decode("latin-1").strip():
                name, _, value = line.partition(":")
                former = headers.get(name.lower())
                headers[name.lower()] = "\n".join(filter(None, (former, value.strip())))
            body = stream.read(int(headers.get("content-length", "0"))).decode()
        form = dict(parse_qsl(body or urlsplit(target).query))
        name = None
        if isinstance(connection, ssl.SSLSocket) and (peer := connection.getpeercert()):
            name = peer["subject"][0][0][1]
        request = Seen(method, target, headers, form, name)
        self.seen.append(request)
        reply = self.replies.get(form.get("query", ""), self.default)
        if isinstance(reply, bytes):
            connection.sendall(reply)
        else:
            reply(request, connection)
