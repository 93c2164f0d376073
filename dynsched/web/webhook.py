"""The endpoint of the admission webhook, which gives new pods the order."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from aiohttp import web

from dynsched.features.order.webhook import ReviewError, answer_review
from dynsched.web.responses import JSON, new_application, refused
from dynsched.web.ticks import TickStore

_PATH: Final = "/webhook/order"
_MAX_REVIEW: Final = 8 << 20
"""Bytes: a pod before and after an update. The API server accepts up to 3 MiB each."""
_TICKS: Final = web.AppKey("ticks", TickStore)


def make_webhook_app(ticks: TickStore) -> web.Application:
    app = new_application([_PATH], _MAX_REVIEW)
    app[_TICKS] = ticks
    app.router.add_post(_PATH, _review)
    return app


async def _review(request: web.Request) -> web.Response:
    body = await request.read()
    try:
        answer = answer_review(body, request.app[_TICKS].order.in_force, time.time())
    except ReviewError as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))
    return web.Response(body=answer, content_type=JSON)
