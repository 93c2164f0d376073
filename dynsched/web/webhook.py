"""The endpoint of the API server's admission webhook, which gives new pods the order."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from aiohttp import web

from dynsched.features.order.webhook import ReviewError, answer_review
from dynsched.web.app import application
from dynsched.web.responses import JSON, refused
from dynsched.web.ticks import TickStore

WEBHOOK: Final = "/webhook/order"
MAX_REVIEW: Final = 8 << 20
"""Bytes: a pod before and after a change, of the 3 MiB each that the API server takes."""
_TICKS: Final = web.AppKey("ticks of the webhook", TickStore)


def make_webhook_app(ticks: TickStore) -> web.Application:
    """The endpoint alone."""
    app = application([WEBHOOK], (), MAX_REVIEW)
    app[_TICKS] = ticks
    app.router.add_post(WEBHOOK, _review)
    return app


async def _review(request: web.Request) -> web.Response:
    body = await request.read()
    try:
        answer = answer_review(body, request.app[_TICKS].order.in_force, time.time())
    except ReviewError as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))
    return web.Response(body=answer, content_type=JSON)
