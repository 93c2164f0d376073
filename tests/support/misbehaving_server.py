"""A loopback HTTP server whose responses a test controls byte by byte."""

import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; ``form`` is parsed from the body, or from the URL without a body."""

    method: str
    target: str
    headers: dict[str, str]  # lower-case names; repeated values joined by newlines
    form: dict[str, str]
    client_name: str | None = None  # common name in the client certificate

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
    """A whole response. ``length`` overrides Content-Length; ``date`` is the server's clock."""
    body = body.encode() if isinstance(body, str) else body
    lines = {
        "Content-Type": content_type,
        "Content-Length": str(len(body) if length is None else length),
        "Connection": "close",  # this server closes; otherwise the client may reuse the connection
        **({} if date is None else {"Date": formatdate(date, usegmt=True)}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return head.encode() + b"\r\n" + body


def chunked(body: bytes, size: int = 512, **headers: str) -> bytes:
    """A whole response in chunks, as a Go server sends one larger than 2 KiB."""
    head = ["HTTP/1.1 200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(head).encode() + b"\r\n\r\n" + sent + b"0\r\n\r\n"


def vector(*series: tuple[dict[str, str], str], at: float = 1000.0, **more: object) -> str:
    """The body of a successful answer; ``more`` are additional top-level fields."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in series]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data, **more})


GOOD = vector(({"instance": "a"}, "91.5"))


def sends(*pieces: bytes) -> Reply:

    def reply(_: Seen, connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return reply


class MisbehavingServer(ThreadingTCPServer):
    """Answers a request with ``replies[query]``, a Reply or the bytes to send, or with ``default``.

    ``stopped`` is set at the end, for replies that wait.
    """

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.replies: dict[str, Reply | bytes] = {}
        self.default: Reply | bytes = http(GOOD)
        self.seen: list[Seen] = []
        self.stopped = threading.Event()
        self.tls = tls
        self.port: int = self.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()

    def hang(self, *_: object) -> None:
        """A Reply that sends nothing until the test is over."""
        self.stopped.wait()

    def handle_error(self, *_: object) -> None:
        """Ignore errors: some clients disconnect, and some reject the certificate."""


class _Request(BaseHTTPRequestHandler):
    server: MisbehavingServer

    def setup(self) -> None:
        if self.server.tls is not None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # at once, because the server would shut it down cleanly first

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        target = self.requestline.split(" ")[1]
        body = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
        form = dict(parse_qsl(body or urlsplit(target).query))
        headers = {key.lower(): "\n".join(self.headers.get_all(key)) for key in self.headers}
        name = None
        if isinstance(self.connection, ssl.SSLSocket) and (peer := self.connection.getpeercert()):
            name = peer["subject"][0][0][1]
        seen = Seen(self.command, target, headers, form, name)
        self.server.seen.append(seen)
        reply = self.server.replies.get(form.get("query", ""), self.server.default)
        if isinstance(reply, bytes):
            reply = sends(reply)
        reply(seen, self.connection)

    do_CONNECT = do_DELETE = do_PATCH = do_POST = do_PUT = do_GET  # noqa: N815
