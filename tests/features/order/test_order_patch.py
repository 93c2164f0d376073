"""The answers of the order's webhook. test_order_webhook.py shows that the webhook and the policies
have the same effect on pods of all other forms.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest
from order_cases import (
    BURSTS,
    GETS,
    LEVELS,
    OWNED,
    POOLS,
    PREFERRED,
    own_and_order,
)
from scenes import NOON
from scheduling_support import make_pod

from dynsched.features.order.ranks import Order
from dynsched.features.order.status import LastOrder
from dynsched.features.order.webhook import ReviewError, answer_review
from dynsched.rules.keys import ORDER_ANNOTATION
from dynsched.util.formatting import format_time

UNTIL = NOON + 28
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def review(pod: Any, **more: Any) -> dict[str, Any]:
    request = {"uid": "u", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": pod} | more
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answered(order: Order, body: Any, now: float = NOON) -> dict[str, Any]:
    """The response, which always allows the pod."""
    answer = json.loads(
        answer_review(json.dumps(body).encode(), LastOrder(order, NOON, UNTIL), now)
    )
    response: dict[str, Any] = answer["response"]
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (response["uid"], response["allowed"]) == ("u", True)
    return response


def patched(pod: Any) -> dict[str, Any]:
    """The pod after the API server applied the patch that POOLS gives it."""
    response = answered(POOLS, review(pod))
    if "patch" not in response:
        return dict(pod)
    assert response["patchType"] == "JSONPatch"
    found: dict[str, Any] = jsonpatch.apply_patch(
        pod, json.loads(base64.b64decode(response["patch"]))
    )
    assert found["metadata"]["annotations"][ORDER_ANNOTATION] == format_time(UNTIL)
    return found


def made(metadata: Mapping[str, Any], name: str = "app", **spec: Any) -> dict[str, Any]:
    pod = make_pod(name, **spec)
    pod["metadata"] |= metadata
    return pod


@pytest.mark.parametrize("name", GETS)
def test_which_pods_get_the_order_and_which_nodes_they_prefer(name: str) -> None:
    metadata, more, want = GETS[name]
    pod = made(OWNED | metadata, **more)
    found = patched(pod)
    if want is None:
        assert found == pod
        return
    terms = [t["preference"]["matchExpressions"] for t in own_and_order(found)]
    assert terms == [
        [{"key": "kubernetes.io/hostname", "operator": "In", "values": [n]}] for n in want
    ]
    assert {**found["spec"], "affinity": None} == {**pod["spec"], "affinity": None}
    assert found["metadata"]["annotations"].items() >= metadata.get("annotations", {}).items()


@pytest.mark.parametrize("case", range(len(BURSTS)))
def test_a_pod_gets_one_of_its_lists_at_random(case: int) -> None:
    """The name of its token's volume decides, or without one, the end of its name and the second
    of its creation.
    """
    metadata, more, want = BURSTS[case]

    def got(pod: dict[str, Any]) -> str:
        (term,) = own_and_order(patched(pod))
        return str(term["preference"]["matchExpressions"][0]["values"][0])

    volumes = [[{"name": f"kube-api-access-{a}{b}zzz"}] for a in LETTERS for b in LETTERS]
    by_token = [got(made(metadata, volumes=volume, **more)) for volume in volumes]
    assert set(by_token) == want
    for node in want:
        assert by_token.count(node) == len(volumes) // len(want) + (len(want) == 2) * (node == "n2")
    assert {got(made(metadata, f"job-{n}", **more)) for n in range(12)} == want
    times = [{"managedFields": [{"time": f"2026-11-23T05:00:{n:02}Z"}]} for n in range(12)]
    assert {got(made(metadata | time, **more)) for time in times} == want
    generated = made(metadata | {"generateName": "a-"}, **more)
    del generated["metadata"]["name"]
    assert got(generated) in want


POD = made({})
UNKNOWN = [
    review(POD, kind={"kind": "Binding"}),
    review(POD, operation="DELETE"),
    review(POD, operation="CONNECT"),
    review(POD, operation="UPDATE"),
    review(None),
    review([]),
    review(made({"labels": [1]})),
    review(made({}, affinity={"nodeAffinity": {PREFERRED: [1]}})),
]


@pytest.mark.parametrize("body", UNKNOWN, ids=range(len(UNKNOWN)))
def test_unexpected_requests_and_objects_are_not_patched(body: dict[str, Any]) -> None:
    assert answered(LEVELS, body) == {"uid": "u", "allowed": True}


def test_without_an_order_and_after_its_end_pods_are_not_patched() -> None:
    assert "patch" in answered(LEVELS, review(POD), UNTIL - 1)
    assert "patch" not in answered(LEVELS, review(POD), UNTIL)
    assert b"patch" not in answer_review(json.dumps(review(POD)).encode(), None, NOON)


BAD = [
    *(b"", b"{", b"[]", b"null", b"\x00", b"\xff", b"[" * 10**5, b'{"request": {}}'),
    json.dumps(review(POD) | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    json.dumps(review(POD) | {"kind": "Pod"}).encode(),
    json.dumps(review(POD) | {"request": None}).encode(),
]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_body_that_is_no_review_is_a_one_line_error(body: bytes) -> None:
    with pytest.raises(ReviewError, match=r"\A.+\Z"):
        answer_review(body, LastOrder(LEVELS, NOON, UNTIL), NOON)
