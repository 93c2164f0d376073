"""aiohttp's protocol, with our answers to what is no request, and so reaches no application."""

from __future__ import annotations

from aiohttp import web
from aiohttp.http import HttpProcessingError

from dynsched.api.transport.headers import add_headers


class Protocol(web.RequestHandler):
    """Its own answers would quote what was sent, which can be a token, and lack our headers."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer where no application gives one; a line of the log is written."""
        response = super().handle_error(request, status, exc, message)
        if isinstance(exc, HttpProcessingError):
            told = "this is no HTTP/1.1, or a line of its head has more than 8,190 bytes"
            response = web.json_response({"error": told}, status=status)
            response.force_close()
        add_headers(response)
        return response
