"""The order's webhook over HTTP."""

import json
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from order_cases import LEVELS
from store_support import Clock, make_store

from dynsched.features.order.status import LastOrder, OrderStatus
from dynsched.web.webhook import make_webhook_app

PATH = "/webhook/order"
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": {}},
}


async def test_every_pod_is_allowed_and_an_invalid_review_is_a_400(caplog) -> None:
    ticks = make_store(Clock())
    async with TestClient(TestServer(make_webhook_app(ticks))) as client:

        async def post(body: bytes) -> tuple[int, Any]:
            async with client.post(PATH, data=body) as answer:
                return answer.status, await answer.json()

        body = json.dumps(REVIEW).encode()
        plain = {"uid": "u", "allowed": True}
        status, answer = await post(body)
        assert (status, answer["response"]) == (200, plain)
        ticks.show_order(OrderStatus(in_force=LastOrder(LEVELS, 0.0, 4e9)), with_metrics=False)
        status, answer = await post(body)
        assert answer["response"].keys() == {*plain, "patchType", "patch"}
        large = json.dumps(REVIEW | {"padding": "x" * 10**6}).encode()
        assert (await post(large))[0] == 200
        for bad in (b"", b"garbage", b"[" * 10**5):
            status, answer = await post(bad)
            assert (status, list(answer)) == (400, ["error"])
        assert (await client.get(PATH)).status == 405
        assert (await client.post("/webhook")).status == 404
        assert (await client.post(PATH, data=b"x" * (9 << 20))).status == 413
    assert not caplog.records


@pytest.mark.parametrize("path", ["/status", "/nodes", "/filter"])
async def test_the_webhooks_address_serves_nothing_else(path: str) -> None:
    async with TestClient(TestServer(make_webhook_app(make_store(Clock())))) as client:
        assert (await client.get(path)).status == 404
