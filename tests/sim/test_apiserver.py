"""What an API server does, for what dynsched uses: the same on the real and the simulated one."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from cluster import EVENTS, JSON_PATCH, LEASES, NODES, STRATEGIC, TABLE, Answer, Cluster

from dynsched.sim.nodes import make_node

SOFT = {"key": "a", "value": "x", "effect": "PreferNoSchedule"}
HARD = {"key": "b", "effect": "NoSchedule"}


def refusal(answer: Answer) -> tuple[int, str, str]:
    """A Status in short; its shape is checked on the way."""
    body = answer.body
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert body["code"] == answer.status
    return answer.status, body.get("reason", ""), body["message"]


def node(name: str = "a", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": {"cpu": 4, "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def lease(name: str = "l", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, **spec},
    }


def event(name: str = "e", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "a"},
        "reason": "Pressured",
        "message": "cpu 91 > 80",
        "type": "Warning",
        "source": {"component": "dynsched"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        **more,
    }


def version(body: dict[str, Any]) -> str:
    found: str = body["metadata"]["resourceVersion"]
    return found


# --- create and get -----------------------------------------------------------------------------


async def test_a_posted_node_keeps_its_status_and_gets_the_defaults(cluster: Cluster) -> None:
    answer = await cluster.post(NODES, node("a", x="1"), fieldManager="creator")
    body = answer.body
    assert answer.status == 201
    assert (body["kind"], body["apiVersion"]) == ("Node", "v1")
    assert body["spec"] == {}
    status = body["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "4", "memory": "8Gi"}
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}]
    assert status["conditions"] == [
        {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": None,
            "lastTransitionTime": None,
        }
    ]
    assert status["nodeInfo"]["kubeletVersion"] == ""
    meta = body["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["managedFields"][0]["manager"] == "creator"
    assert await cluster.get_node("a") == body


async def test_a_realistic_node_comes_back_as_it_was_sent(cluster: Cluster) -> None:
    sent = make_node("worker-1", 1, control_plane=True, size=9000)
    body = await cluster.create_node(sent)
    assert body["status"] == sent["status"]
    assert body["metadata"]["labels"] == sent["metadata"]["labels"]
    assert body["spec"]["taints"] == sent["spec"]["taints"]


async def test_a_generated_name_is_the_prefix_and_five_letters(cluster: Cluster) -> None:
    answer = await cluster.post(EVENTS, event() | {"metadata": {"generateName": "node-"}})
    assert re.fullmatch(r"node-[a-z0-9]{5}", answer.ok["metadata"]["name"])
    assert answer.ok["metadata"]["namespace"] == "default"


async def test_creating_twice_is_refused(cluster: Cluster) -> None:
    await cluster.create_node(node())
    assert refusal(await cluster.post(NODES, node())) == (
        409,
        "AlreadyExists",
        'nodes "a" already exists',
    )


async def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    answer = await cluster.get(f"{NODES}/nope")
    assert refusal(answer) == (404, "NotFound", 'nodes "nope" not found')
    assert answer.body["details"] == {"name": "nope", "kind": "nodes"}
    answer = await cluster.get(f"{LEASES}/nope")
    assert refusal(answer)[2] == 'leases.coordination.k8s.io "nope" not found'
    assert answer.body["details"]["group"] == "coordination.k8s.io"
    answer = await cluster.patch(f"{NODES}/nope", {"metadata": {"labels": {"a": "b"}}})
    assert refusal(answer)[:2] == (404, "NotFound")
    elsewhere = "/api/v1/namespaces/elsewhere/events"
    answer = await cluster.post(elsewhere, event() | {"metadata": {"name": "e"}})
    assert refusal(answer) == (404, "NotFound", 'namespaces "elsewhere" not found')


@pytest.mark.parametrize("path", ["/nope", "/apis/nope.example.com/v1", "/foo/bar"])
async def test_an_unserved_path_is_a_plain_404(cluster: Cluster, path: str) -> None:
    answer = await cluster.get(path)
    assert (answer.status, answer.text.strip()) == (404, "404 page not found")


async def test_an_unserved_resource_is_a_404_status(cluster: Cluster) -> None:
    message = "the server could not find the requested resource"
    for path in (
        "/api/v1/nope",
        "/api/v2/nodes",
        "/api/v1/nodes/a/nope",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/events/e",
        "/apis/coordination.k8s.io/v9/leases",
    ):
        assert refusal(await cluster.get(path)) == (404, "NotFound", message)


async def test_a_method_that_does_not_fit_is_a_405(cluster: Cluster) -> None:
    for method, path in (("POST", f"{NODES}/a"), ("PUT", NODES), ("PATCH", NODES)):
        answer = await cluster.request(method, path, {})
        assert refusal(answer)[:2] == (405, "MethodNotAllowed")


@pytest.mark.parametrize("body", [b"{bad", b"[1]", b'"x"', b'{"kind":"Pod","apiVersion":"v1"}'])
async def test_a_body_that_is_no_node_is_a_400(cluster: Cluster, body: bytes) -> None:
    assert refusal(await cluster.post(NODES, body))[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (
            {"metadata": {"name": "a", "labels": {"x": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type",
        ),
        (
            {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "x"}}},
            "quantities must match",
        ),
        ({"metadata": {"name": "a"}, "spec": {"taints": {}}}, "json: cannot unmarshal object"),
    ],
)
async def test_a_wrong_type_is_a_400(cluster: Cluster, sent: dict[str, Any], told: str) -> None:
    code, reason, message = refusal(await cluster.post(NODES, sent))
    assert (code, reason) == (400, "BadRequest")
    assert message.startswith('Node in version "v1" cannot be handled as a Node: ' + told)


async def test_unknown_fields_fall_away_with_a_warning_or_are_refused(cluster: Cluster) -> None:
    sent = node() | {"spec": {"bogus": 1, "unschedulable": True}}
    answer = await cluster.post(NODES, sent)
    assert answer.ok["spec"] == {"unschedulable": True}
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.bogus\\""'
    answer = await cluster.post(NODES, sent, fieldValidation="Strict")
    assert answer.status == 400
    assert 'strict decoding error: unknown field "spec.bogus"' in answer.body["message"]


async def test_a_dry_run_answers_and_changes_nothing(cluster: Cluster) -> None:
    assert (await cluster.post(NODES, node(), dryRun="All")).status == 201
    assert (await cluster.get(f"{NODES}/a")).status == 404
    before = await cluster.create_node(node())
    answer = await cluster.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "1"}}}, dryRun="All")
    assert answer.ok["metadata"]["labels"] == {"x": "1"}
    assert await cluster.get_node("a") == before
    assert refusal(await cluster.patch(f"{NODES}/a", {}, dryRun="Some"))[0] == 422


# --- merge patch --------------------------------------------------------------------------------


async def test_a_merge_patch_adds_changes_and_removes_by_null(cluster: Cluster) -> None:
    await cluster.create_node(node("a", keep="1", change="1", drop="1"))
    patch = {"metadata": {"labels": {"change": "2", "drop": None, "new": "3", "absent": None}}}
    body = await cluster.patch_node("a", patch)
    assert body["metadata"]["labels"] == {"keep": "1", "change": "2", "new": "3"}
    body = await cluster.patch_node("a", {"metadata": {"labels": None}})
    assert "labels" not in body["metadata"]


async def test_taints_are_replaced_as_a_whole_by_a_merge_patch(cluster: Cluster) -> None:
    await cluster.create_node(node() | {"spec": {"taints": [SOFT]}})
    body = await cluster.patch_node("a", {"spec": {"taints": [HARD, SOFT]}})
    assert body["spec"]["taints"] == [HARD, SOFT]
    body = await cluster.patch_node("a", {"spec": {"taints": [HARD]}})
    assert body["spec"]["taints"] == [HARD]
    body = await cluster.patch_node("a", {"spec": {"taints": None}})
    assert body["spec"] == {}


async def test_a_stale_version_in_a_patch_is_a_conflict(cluster: Cluster) -> None:
    first = await cluster.create_node(node())
    second = await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}})
    stale = {"metadata": {"resourceVersion": version(first), "labels": {"x": "2"}}}
    answer = await cluster.patch(f"{NODES}/a", stale)
    assert refusal(answer) == (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on nodes "a": the object has been modified; please apply'
            " your changes to the latest version and try again"
        ),
    )
    assert answer.body["details"] == {"name": "a", "kind": "nodes"}
    assert await cluster.get_node("a") == second
    fresh = {"metadata": {"resourceVersion": version(second), "labels": {"x": "2"}}}
    assert (await cluster.patch_node("a", fresh))["metadata"]["labels"] == {"x": "2"}
    assert (await cluster.patch(f"{NODES}/a", {"metadata": {"resourceVersion": "x"}})).status == 500


async def test_a_patch_without_an_effect_takes_no_version(cluster: Cluster) -> None:
    before = await cluster.create_node(node("a", x="1"))
    for patch in ({"metadata": {"labels": {"x": "1", "no": None}}}, {}, {"spec": {"taints": None}}):
        assert await cluster.patch_node("a", patch, field_manager="other") == before


async def test_status_is_only_to_be_changed_through_its_subresource(cluster: Cluster) -> None:
    before = await cluster.create_node(node())
    patch = {"status": {"nodeInfo": {"kubeletVersion": "v9"}}}
    assert await cluster.patch_node("a", patch) == before
    both = {"spec": {"taints": [SOFT]}, **patch}
    body = (await cluster.patch(f"{NODES}/a/status", both)).ok
    assert body["status"]["nodeInfo"]["kubeletVersion"] == "v9"
    assert body["spec"] == {}
    assert (await cluster.get(f"{NODES}/a/status")).ok == body


async def test_what_the_server_owns_cannot_be_patched(cluster: Cluster) -> None:
    before = await cluster.create_node(node())
    answer = await cluster.patch(f"{NODES}/a", {"metadata": {"name": "b"}})
    message = "the name of the object (b) does not match the name on the URL (a)"
    assert refusal(answer) == (400, "BadRequest", message)
    answer = await cluster.patch(f"{NODES}/a", {"metadata": {"uid": "b"}})
    message = 'Node "a" is invalid: metadata.uid: Invalid value: "b": field is immutable'
    assert refusal(answer) == (422, "Invalid", message)
    patch = {"metadata": {"creationTimestamp": None, "managedFields": None}}
    stamp = (await cluster.patch_node("a", patch))["metadata"]["creationTimestamp"]
    assert stamp == before["metadata"]["creationTimestamp"]


async def test_who_wrote_which_label_stands_in_managed_fields(cluster: Cluster) -> None:
    await cluster.create_node(node("a", theirs="1", ours="1"))
    patch = {"metadata": {"labels": {"ours": "2"}}, "spec": {"taints": [SOFT]}}
    body = await cluster.patch_node("a", patch, field_manager="dynsched")
    owners = {entry["manager"]: entry["fieldsV1"] for entry in body["metadata"]["managedFields"]}
    assert "f:theirs" in owners["creator"]["f:metadata"]["f:labels"]
    assert "f:ours" not in owners["creator"]["f:metadata"]["f:labels"]
    assert "f:ours" in owners["dynsched"]["f:metadata"]["f:labels"]
    assert "f:taints" in owners["dynsched"]["f:spec"]


@pytest.mark.parametrize(
    ("patch", "field", "told"),
    [
        ({"metadata": {"labels": {"x": "no good"}}}, "metadata.labels", "a valid label must be"),
        ({"metadata": {"labels": {"no good": ""}}}, "metadata.labels", "name part must consist of"),
        ({"metadata": {"labels": {"a/b/c": ""}}}, "metadata.labels", "a valid label key must"),
        ({"metadata": {"labels": {"x": "y" * 64}}}, "metadata.labels", "must be no more than 63"),
        ({"metadata": {"annotations": {"no good": ""}}}, "metadata.annotations", "name part must"),
        ({"spec": {"taints": [{"key": "a"}]}}, "metadata.taints[0].effect", "Required value"),
        (
            {"spec": {"taints": [{"key": "a", "effect": "Soft"}]}},
            "metadata.taints[0].effect",
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        (
            {"spec": {"taints": [{"effect": "NoSchedule"}]}},
            "metadata.taints[0].key",
            "name part must be non-empty",
        ),
        (
            {"spec": {"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]}},
            "metadata.taints[0].value",
            "a valid label must be",
        ),
        (
            {"spec": {"taints": [SOFT, SOFT | {"value": "y"}]}},
            "metadata.taints[1]",
            "taints must be unique by key and effect pair",
        ),
    ],
)
async def test_an_invalid_node_is_a_422(
    cluster: Cluster, patch: dict[str, Any], field: str, told: str
) -> None:
    before = await cluster.create_node(node())
    answer = await cluster.patch(f"{NODES}/a", patch)
    code, reason, message = refusal(answer)
    assert (code, reason) == (422, "Invalid")
    assert message.startswith('Node "a" is invalid: ')
    assert f"{field}: " in message
    assert told in message
    assert answer.body["details"]["kind"] == "Node"
    assert field in {cause["field"] for cause in answer.body["details"]["causes"]}
    assert await cluster.get_node("a") == before


async def test_a_label_that_is_no_string_is_a_422_under_a_patch(cluster: Cluster) -> None:
    await cluster.create_node(node())
    answer = await cluster.patch(f"{NODES}/a", {"metadata": {"labels": {"x": 1}}})
    assert refusal(answer)[:2] == (422, "Invalid")
    assert "cannot unmarshal number into Go struct field" in answer.body["message"]


@pytest.mark.parametrize("name", ["", "Upper", "under_score"])
async def test_a_bad_name_is_a_422(cluster: Cluster, name: str) -> None:
    answer = await cluster.post(NODES, {"metadata": {"name": name}})
    assert refusal(answer)[:2] == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_patch_that_cannot_be_read_is_a_400_or_a_415(cluster: Cluster) -> None:
    await cluster.create_node(node())
    assert refusal(await cluster.patch(f"{NODES}/a", b"{bad"))[:2] == (400, "BadRequest")
    assert refusal(await cluster.patch(f"{NODES}/a", [1]))[:2] == (400, "BadRequest")
    answer = await cluster.patch(f"{NODES}/a", {}, "application/json")
    assert refusal(answer) == (415, "UnsupportedMediaType", "415: Unsupported Media Type")


# --- strategic merge patch and JSON patch -------------------------------------------------------


async def test_taints_are_atomic_under_a_strategic_patch_too(cluster: Cluster) -> None:
    await cluster.create_node(node() | {"spec": {"taints": [SOFT]}})
    answer = await cluster.patch(f"{NODES}/a", {"spec": {"taints": [HARD]}}, STRATEGIC)
    assert answer.ok["spec"]["taints"] == [HARD]


async def test_conditions_merge_by_type_under_a_strategic_patch(cluster: Cluster) -> None:
    sent = node()
    sent["status"]["conditions"].append({"type": "DiskPressure", "status": "False"})
    await cluster.create_node(sent)
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Down"},
        {"type": "New", "status": "True"},
        {"type": "DiskPressure", "$patch": "delete"},
    ]
    patch = {"status": {"conditions": conditions}}
    body = (await cluster.patch(f"{NODES}/a/status", patch, STRATEGIC)).ok
    assert [(c["type"], c["status"], c.get("reason")) for c in body["status"]["conditions"]] == [
        ("Ready", "False", "Down"),
        ("New", "True", None),
    ]


async def test_new_conditions_come_first_unless_an_order_is_given(cluster: Cluster) -> None:
    await cluster.create_node(node())
    for order in ([], [{"type": "Ready"}, {"type": "B"}, {"type": "A"}]):
        status: dict[str, Any] = {"conditions": [{"type": "A", "status": "True"}]}
        if order:
            status = {
                "$setElementOrder/conditions": order,
                "conditions": [{"type": "B", "status": "True"}],
            }
        body = (await cluster.patch(f"{NODES}/a/status", {"status": status}, STRATEGIC)).ok
        types = [c["type"] for c in body["status"]["conditions"]]
        assert types == ([o["type"] for o in order] or ["A", "Ready"])


async def test_labels_merge_under_a_strategic_patch(cluster: Cluster) -> None:
    await cluster.create_node(node("a", x="1", y="1"))
    patch = {"metadata": {"labels": {"x": None, "z": "1"}}}
    body = (await cluster.patch(f"{NODES}/a", patch, STRATEGIC)).ok
    assert body["metadata"]["labels"] == {"y": "1", "z": "1"}
    patch = {"metadata": {"labels": {"$patch": "replace", "only": "1"}}}
    body = (await cluster.patch(f"{NODES}/a", patch, STRATEGIC)).ok
    assert body["metadata"]["labels"] == {"only": "1"}


async def test_a_json_patch_applies_as_a_whole_or_not_at_all(cluster: Cluster) -> None:
    before = await cluster.create_node(node("a", x="1"))
    add = {"op": "add", "path": "/metadata/labels/new~1key", "value": "1"}
    for bad in (
        {"op": "test", "path": "/metadata/labels/x", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/absent"},
        {"op": "add", "path": "/spec/absent/x", "value": "1"},
        {"op": "add", "path": "metadata/labels/q", "value": "1"},
        {"op": "bogus", "path": "/metadata/labels/x"},
    ):
        answer = await cluster.patch(f"{NODES}/a", [add, bad], JSON_PATCH)
        assert refusal(answer)[:2] == (422, "Invalid")
    assert await cluster.get_node("a") == before
    good = [add, {"op": "test", "path": "/metadata/labels/x", "value": "1"}]
    good += [{"op": "test", "path": "/metadata/labels/absent", "value": None}]
    good += [{"op": "replace", "path": "/metadata/labels/lenient", "value": "1"}]
    good += [{"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/y"}]
    good += [{"op": "add", "path": "/spec/taints", "value": []}]
    good += [{"op": "add", "path": "/spec/taints/-", "value": SOFT}]
    body = (await cluster.patch(f"{NODES}/a", good, JSON_PATCH)).ok
    assert body["metadata"]["labels"] == {"new/key": "1", "lenient": "1", "y": "1"}
    assert body["spec"]["taints"] == [SOFT]
    assert refusal(await cluster.patch(f"{NODES}/a", {"a": 1}, JSON_PATCH))[0] == 400


# --- put and delete -----------------------------------------------------------------------------


async def test_a_put_replaces_all_but_the_status(cluster: Cluster) -> None:
    before = await cluster.create_node(node("a", x="1"))
    sent = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"y": "1"}}}
    body = (await cluster.put(f"{NODES}/a", sent)).ok
    assert body["metadata"]["labels"] == {"y": "1"}
    assert body["metadata"]["uid"] == before["metadata"]["uid"]
    assert body["status"] == before["status"]
    stale = sent | {"metadata": sent["metadata"] | {"resourceVersion": version(before)}}  # type: ignore[operator]
    assert refusal(await cluster.put(f"{NODES}/a", stale))[:2] == (409, "Conflict")
    foreign = sent | {"metadata": {"name": "a", "uid": "someone-else"}}
    assert refusal(await cluster.put(f"{NODES}/a", foreign))[:2] == (409, "Conflict")
    nameless = sent | {"metadata": {}}
    assert refusal(await cluster.put(f"{NODES}/a", nameless))[:2] == (400, "BadRequest")
    misnamed = sent | {"metadata": {"name": "b"}}
    assert refusal(await cluster.put(f"{NODES}/a", misnamed))[:2] == (400, "BadRequest")
    assert refusal(await cluster.put(f"{NODES}/b", misnamed))[:2] == (404, "NotFound")


async def test_a_lease_needs_a_version_to_be_put(cluster: Cluster) -> None:
    body = (await cluster.post(LEASES, lease())).ok
    assert refusal(await cluster.put(f"{LEASES}/l", lease()))[:2] == (422, "Invalid")
    renewed = body | {"spec": body["spec"] | {"renewTime": "2026-01-01T02:00:00.123456+02:00"}}
    after = (await cluster.put(f"{LEASES}/l", renewed)).ok
    assert after["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    assert refusal(await cluster.put(f"{LEASES}/l", renewed))[:2] == (409, "Conflict")
    assert await cluster.get_lease("l") == after


@pytest.mark.parametrize(
    ("spec", "code", "told"),
    [
        ({"leaseDurationSeconds": 0}, 422, "must be greater than 0"),
        ({"leaseTransitions": -1}, 422, "must be greater than or equal to 0"),
        ({"leaseDurationSeconds": "5"}, 400, "cannot unmarshal string into Go struct field"),
        ({"renewTime": "2026-01-01T00:00:00Z"}, 400, 'cannot parse "Z" as ".000000"'),
        ({"renewTime": "2026-01-01T00:00:00.123Z"}, 400, 'cannot parse ".123Z" as ".000000"'),
        ({"acquireTime": "yesterday"}, 400, 'parsing time "yesterday"'),
    ],
)
async def test_a_bad_lease_is_refused(
    cluster: Cluster, spec: dict[str, Any], code: int, told: str
) -> None:
    answer = await cluster.post(LEASES, lease(**spec))
    assert refusal(answer)[0] == code
    assert told in answer.body["message"]


async def test_delete_says_what_it_deleted(cluster: Cluster) -> None:
    body = await cluster.create_node(node())
    answer = await cluster.delete(f"{NODES}/a")
    uid = body["metadata"]["uid"]
    assert answer.ok["status"] == "Success"
    assert answer.ok["details"] == {"name": "a", "kind": "nodes", "uid": uid}
    assert refusal(await cluster.delete(f"{NODES}/a"))[:2] == (404, "NotFound")


@pytest.mark.parametrize("precondition", [{"uid": "x"}, {"resourceVersion": "1"}])
async def test_delete_holds_its_preconditions(
    cluster: Cluster, precondition: dict[str, str]
) -> None:
    body = await cluster.create_node(node())
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": precondition}
    answer = await cluster.delete(f"{NODES}/a", options)
    assert refusal(answer)[:2] == (409, "Conflict")
    assert refusal(answer)[2].startswith('Operation cannot be fulfilled on Node "a": the ')
    options["preconditions"] = {k: body["metadata"][k] for k in precondition}
    assert (await cluster.delete(f"{NODES}/a", options)).status == 200


async def test_a_finalizer_holds_a_deleted_node(cluster: Cluster) -> None:
    sent = node()
    sent["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.create_node(sent)
    held = (await cluster.delete(f"{NODES}/a")).ok
    assert held["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" in (await cluster.get_node("a"))["metadata"]
    await cluster.patch_node("a", {"metadata": {"finalizers": None}})
    assert (await cluster.get(f"{NODES}/a")).status == 404


async def test_a_collection_is_deleted_by_selector(cluster: Cluster) -> None:
    for name, pool in (("a", "x"), ("b", "y"), ("c", "x")):
        await cluster.create_node(node(name, pool=pool))
    assert (await cluster.delete(NODES, labelSelector="pool=x")).ok["kind"] == "NodeList"
    assert [n["metadata"]["name"] for n in await cluster.list_nodes()] == ["b"]


# --- events -------------------------------------------------------------------------------------


async def test_events_are_found_by_what_they_are_about(cluster: Cluster) -> None:
    _ = (await cluster.post(EVENTS, event("e1"))).ok
    about_b = {"kind": "Node", "name": "b"}
    _ = (await cluster.post(EVENTS, event("e2", involvedObject=about_b))).ok
    assert [e["metadata"]["name"] for e in await cluster.list_events("b")] == ["e2"]
    assert [e["metadata"]["name"] for e in await cluster.list_events()] == ["e1", "e2"]
    body = (await cluster.patch(f"{EVENTS}/e1", {"count": 3})).ok
    assert (body["count"], body["eventTime"], body["reportingComponent"]) == (3, None, "")


async def test_events_k8s_io_shows_the_same_events_in_its_own_words(cluster: Cluster) -> None:
    _ = (await cluster.post(EVENTS, event())).ok
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    listed = (await cluster.get(path)).ok
    assert listed["apiVersion"] == "events.k8s.io/v1"
    found = next(e for e in listed["items"] if e["metadata"]["name"] == "e")
    assert found["regarding"] == {"kind": "Node", "name": "a"}
    assert (found["note"], found["deprecatedCount"]) == ("cpu 91 > 80", 1)
    sent = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dynsched",
        "reportingInstance": "pod-1",
        "action": "Mark",
        "reason": "Pressured",
        "regarding": {"kind": "Node", "name": "a"},
        "note": "n",
        "type": "Normal",
    }
    assert (await cluster.post(path, sent)).ok["note"] == "n"
    assert (await cluster.get(f"{EVENTS}/new")).ok["reportingComponent"] == "dynsched"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"involvedObject": {"kind": "Pod", "name": "p", "namespace": "x"}}, "involvedObject"),
        ({"eventTime": "2026-01-01T00:00:00.000000Z"}, "reportingComponent: Required value"),
    ],
)
async def test_an_invalid_event_is_a_422(
    cluster: Cluster, more: dict[str, Any], field: str
) -> None:
    answer = await cluster.post(EVENTS, event(**more))
    assert refusal(answer)[:2] == (422, "Invalid")
    assert field in answer.body["message"]


async def test_an_event_on_a_node_belongs_into_the_default_namespace(cluster: Cluster) -> None:
    sent = event() | {"metadata": {"name": "e"}}
    answer = await cluster.post("/api/v1/namespaces/kube-system/events", sent)
    assert refusal(answer)[:2] == (422, "Invalid")
    sent = event() | {"metadata": {"name": "e", "namespace": "elsewhere"}}
    assert refusal(await cluster.post(EVENTS, sent))[:2] == (400, "BadRequest")


# --- lists --------------------------------------------------------------------------------------


async def test_a_list_is_paged_consistently(cluster: Cluster) -> None:
    for name in "abcde":
        await cluster.create_node(node(name, x=name))
    first = (await cluster.get(NODES, limit=2)).ok
    assert (first["kind"], first["apiVersion"]) == ("NodeList", "v1")
    assert [n["metadata"]["name"] for n in first["items"]] == ["a", "b"]
    assert "kind" not in first["items"][0]
    assert first["metadata"]["remainingItemCount"] == 3
    await cluster.patch_node("c", {"metadata": {"labels": {"x": "later"}}})
    await cluster.delete_node("d")
    await cluster.create_node(node("bb"))
    token = first["metadata"]["continue"]
    second = (await cluster.get(NODES, **{"limit": 2, "continue": token})).ok
    assert [n["metadata"]["labels"]["x"] for n in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    third = (await cluster.get(NODES, **{"limit": 2, "continue": token})).ok
    assert [n["metadata"]["name"] for n in third["items"]] == ["e"]
    assert "continue" not in third["metadata"]
    assert "remainingItemCount" not in third["metadata"]


async def test_a_selective_list_does_not_count_what_remains(cluster: Cluster) -> None:
    for name in "abc":
        await cluster.create_node(node(name, x="1"))
    metadata = (await cluster.get(NODES, limit=2, labelSelector="x")).ok["metadata"]
    assert "continue" in metadata
    assert "remainingItemCount" not in metadata


async def test_version_zero_gives_everything_whatever_the_limit(cluster: Cluster) -> None:
    for name in "abc":
        await cluster.create_node(node(name))
    current = version((await cluster.get(NODES)).ok)
    async with asyncio.timeout(5):  # the real server's cache may be a little behind
        while len((await cluster.get(NODES, resourceVersion=0, limit=1)).ok["items"]) != 3:
            await asyncio.sleep(0.05)
    exact = await cluster.get(NODES, resourceVersion=current, resourceVersionMatch="Exact")
    assert len(exact.ok["items"]) == 3


async def test_a_continue_token_expires_with_the_history(cluster: Cluster) -> None:
    for name in "abc":
        _ = (await cluster.post(EVENTS, event(f"e{name}"))).ok
    # Not of nodes: their pages come from the real server's own cache, which outlives compaction.
    first = (await cluster.get(EVENTS, limit=1)).ok
    _ = (await cluster.post(EVENTS, event("ed"))).ok
    await cluster.compact()
    asked = {"limit": 1, "continue": first["metadata"]["continue"]}
    answer = await cluster.get(EVENTS, **asked)
    code, reason, message = refusal(answer)
    assert (code, reason) == (410, "Expired")
    assert message.startswith("The provided continue parameter is too old")
    # The token in the refusal goes on at the present version.
    asked = {"limit": 10, "continue": answer.body["metadata"]["continue"]}
    names = [e["metadata"]["name"] for e in (await cluster.get(EVENTS, **asked)).ok["items"]]
    assert names[-1] == "ed"
    old = {"resourceVersion": version(first), "resourceVersionMatch": "Exact"}
    answer = await cluster.get(EVENTS, **old)
    message = "The resourceVersion for the provided list is too old."
    assert refusal(answer) == (410, "Expired", message)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("pool=x", "ac"),
        ("pool==x,zone=1", "a"),
        ("pool!=x", "bd"),
        ("pool", "abc"),
        ("!pool", "d"),
        ("pool in (x,y),zone", "ab"),
        ("pool notin (x)", "bd"),
        ("zone in (2,3)", "b"),
        ("zone>1", "b"),
        ("", "abcd"),
    ],
)
async def test_label_selectors(cluster: Cluster, selector: str, names: str) -> None:
    await cluster.create_node(node("a", pool="x", zone="1"))
    await cluster.create_node(node("b", pool="y", zone="2"))
    await cluster.create_node(node("c", pool="x"))
    await cluster.create_node(node("d"))
    found = await cluster.list_nodes(selector)
    assert "".join(n["metadata"]["name"] for n in found) == names


async def test_field_selectors(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.create_node(node(name))
    await cluster.patch_node("b", {"spec": {"unschedulable": True}})
    for selector, name in (("metadata.name=a", "a"), ("spec.unschedulable=true", "b")):
        items = (await cluster.get(NODES, fieldSelector=selector)).ok["items"]
        assert [n["metadata"]["name"] for n in items] == [name]
    pods = await cluster.get("/api/v1/pods", fieldSelector="spec.nodeName=a,status.phase!=Failed")
    assert pods.ok["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in ("},
        {"labelSelector": "a=b c"},
        {"fieldSelector": "spec.bogus=1"},
        {"limit": "many"},
        {"continue": "bogus"},
    ],
)
async def test_a_bad_query_is_a_400(cluster: Cluster, query: dict[str, str]) -> None:
    assert refusal(await cluster.get(NODES, **query))[:2] == (400, "BadRequest")


async def test_a_version_from_the_future_is_a_504(cluster: Cluster) -> None:
    code, reason, message = refusal(await cluster.get(NODES, resourceVersion=999_999_999))
    assert (code, reason) == (504, "Timeout")
    assert message.startswith("Timeout: Too large resource version: 999999999, current: ")


# --- watches ------------------------------------------------------------------------------------


async def test_a_watch_tells_every_change_once_and_in_order(cluster: Cluster) -> None:
    await cluster.create_node(node("before"))
    start = version((await cluster.get(NODES)).ok)
    await cluster.create_node(node("a"))
    async with cluster.watch(NODES, resourceVersion=start, timeoutSeconds=30) as watch:
        changed = await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}})
        await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}})  # no change, no event
        await cluster.delete_node("a")
        told = [await watch.next() for _ in range(3)]
    assert [(e or {}).get("type") for e in told] == ["ADDED", "MODIFIED", "DELETED"]
    added, modified, deleted = (e["object"] for e in told if e)
    assert (added["kind"], added["apiVersion"]) == ("Node", "v1")
    assert modified == changed
    assert deleted["metadata"]["labels"] == {"x": "1"}
    versions = [int(version(o)) for o in (added, modified, deleted)]
    assert versions == sorted(set(versions))


async def test_a_watch_through_a_selector_sees_nodes_enter_and_leave(cluster: Cluster) -> None:
    await cluster.create_node(node("a"))
    start = version((await cluster.get(NODES)).ok)
    query = {"labelSelector": "status=presure", "resourceVersion": start, "timeoutSeconds": 30}
    async with cluster.watch(NODES, **query) as watch:
        for labels in ({"status": "presure"}, {"x": "1"}, {"status": None}, {"x": "2"}):
            await cluster.patch_node("a", {"metadata": {"labels": labels}})
        await cluster.create_node(node("b", status="presure"))
        told = [await watch.next() for _ in range(4)]
    found = [(e["type"], e["object"]["metadata"]["labels"]) for e in told if e]
    assert found == [
        ("ADDED", {"status": "presure"}),
        ("MODIFIED", {"status": "presure", "x": "1"}),
        ("DELETED", {"status": "presure", "x": "1"}),
        ("ADDED", {"status": "presure"}),
    ]


async def test_a_watch_without_a_version_begins_with_what_is_there(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.create_node(node(name))
    async with cluster.watch(NODES, resourceVersion=0, timeoutSeconds=30) as watch:
        told = [await watch.next() for _ in range(2)]
    assert {(e["type"], e["object"]["metadata"]["name"]) for e in told if e} == {
        ("ADDED", "a"),
        ("ADDED", "b"),
    }


async def test_a_watch_sends_a_bookmark_before_it_times_out(cluster: Cluster) -> None:
    await cluster.create_node(node())
    start = version((await cluster.get(NODES)).ok)
    query = {"resourceVersion": start, "timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    async with cluster.watch(NODES, **query) as watch:
        changed = await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}})
        told = await watch.rest()
    assert [e["type"] for e in told[:2]] == ["MODIFIED", "BOOKMARK"]
    assert {e["type"] for e in told[1:]} == {"BOOKMARK"}
    assert told[-1]["object"]["kind"] == "Node"
    assert int(version(told[-1]["object"])) >= int(version(changed))


async def test_a_watch_from_a_version_that_is_yet_to_come_is_told_nothing_until_then(
    cluster: Cluster,
) -> None:
    await cluster.create_node(node())
    now = int(version((await cluster.get(NODES)).ok))
    query = {"timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    async with (
        cluster.watch(NODES, resourceVersion=now + 1000, **query) as later,
        cluster.watch(NODES, resourceVersion=now + 3, **query) as soon,
    ):
        for number in range(10):
            await cluster.patch_node("a", {"metadata": {"labels": {"x": str(number)}}})
        told = [e for e in await soon.rest() if e["type"] != "BOOKMARK"]
        assert await later.rest() == []
    versions = [int(version(event["object"])) for event in told]
    assert min(versions) == now + 4
    assert len(versions) < 10


async def test_an_older_state_that_is_put_back(cluster: Cluster) -> None:
    for name in ("a", "b"):
        await cluster.create_node(node(name))
    before = {each["metadata"]["name"]: each for each in await cluster.list_nodes()}
    backup = await cluster.back_up()
    await cluster.delete_node("a")
    await cluster.create_node(node("c"))
    for number in range(50):
        await cluster.patch_node("b", {"metadata": {"labels": {"x": str(number)}}})
    newer = int(version((await cluster.get(NODES)).ok))

    await cluster.restore(backup)
    listed = (await cluster.get(NODES)).ok
    assert {each["metadata"]["name"]: each for each in listed["items"]} == before
    assert int(version(listed)) < newer
    again = int(version(await cluster.patch_node("b", {"metadata": {"labels": {"x": "y"}}})))
    assert int(version(listed)) < again < newer
    old = version(before["a"])
    async with cluster.watch(NODES, resourceVersion=int(old) - 1, timeoutSeconds=3) as watch:
        (told,) = await watch.rest()
    assert told["object"]["code"] == 410


async def test_a_watch_from_a_forgotten_version_ends_in_a_410(cluster: Cluster) -> None:
    old = version((await cluster.post(EVENTS, event("e1"))).ok)
    for name in ("e2", "e3"):
        _ = (await cluster.post(EVENTS, event(name))).ok
    await cluster.compact()
    async with cluster.watch(EVENTS, resourceVersion=old, timeoutSeconds=30) as watch:
        (told,) = await watch.rest()
    assert told["type"] == "ERROR"
    assert (told["object"]["kind"], told["object"]["status"]) == ("Status", "Failure")
    assert (told["object"]["code"], told["object"]["reason"]) == (410, "Expired")


async def test_bad_watch_options_are_refused(cluster: Cluster) -> None:
    assert (await cluster.get(NODES, watch="1", resourceVersion="x")).status == 500
    assert (await cluster.get(NODES, watch="1", timeoutSeconds="x")).status == 400
    answer = await cluster.get(NODES, watch="1", sendInitialEvents="true")
    assert refusal(answer)[:2] == (422, "Invalid")


# --- other representations ----------------------------------------------------------------------


async def test_a_table_has_the_columns_that_kubectl_prints(cluster: Cluster) -> None:
    await cluster.create_node(make_node("cp", 0, control_plane=True))
    await cluster.create_node(make_node("worker", 1))
    await cluster.patch_node("worker", {"spec": {"unschedulable": True}})
    table = (await cluster.request("GET", NODES, headers={"Accept": TABLE})).ok
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(c["name"], c["priority"]) for c in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0),
        ("Status", 0),
        ("Roles", 0),
        ("Age", 0),
        ("Version", 0),
        ("Internal-IP", 1),
        ("External-IP", 1),
        ("OS-Image", 1),
        ("Kernel-Version", 1),
        ("Container-Runtime", 1),
    ]
    cells = [[c for i, c in enumerate(row["cells"]) if i != 3] for row in table["rows"]]
    os = ["Debian GNU/Linux 12 (bookworm)", "6.1.0-30-amd64 (amd64)", "containerd://2.0.4"]
    assert cells == [
        ["cp", "Ready", "control-plane", "v1.36.2", "10.0.0.1", "203.0.113.1", *os],
        [
            "worker",
            "Ready,SchedulingDisabled",
            "<none>",
            "v1.36.2",
            "10.0.0.2",
            "203.0.113.2",
            *os,
        ],
    ]
    assert re.fullmatch(r"\d+s", table["rows"][0]["cells"][3])
    shown = table["rows"][0]["object"]
    assert shown["kind"] == "PartialObjectMetadata"
    assert shown["metadata"]["labels"]["kubernetes.io/hostname"] == "cp"


async def test_events_and_leases_have_tables_too(cluster: Cluster) -> None:
    _ = (await cluster.post(EVENTS, event(count=2))).ok
    query = {"fieldSelector": "metadata.name=e"}
    table = (await cluster.request("GET", EVENTS, headers={"Accept": TABLE}, **query)).ok
    columns = [c["name"] for c in table["columnDefinitions"]]
    row = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    del row["Last Seen"], row["First Seen"]
    assert row == {
        "Type": "Warning",
        "Reason": "Pressured",
        "Object": "node/a",
        "Subobject": "",
        "Source": "dynsched",
        "Message": "cpu 91 > 80",
        "Count": 2,
        "Name": "e",
    }
    _ = (await cluster.post(LEASES, lease())).ok
    table = (await cluster.request("GET", LEASES, headers={"Accept": TABLE})).ok
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Holder", "Age"]
    assert table["rows"][0]["cells"][:2] == ["l", "me"]


async def test_a_watch_can_tell_tables(cluster: Cluster) -> None:
    await cluster.create_node(node())
    start = version((await cluster.get(NODES)).ok)
    query = {"resourceVersion": start, "timeoutSeconds": 30}
    async with cluster.watch(NODES, headers={"Accept": TABLE}, **query) as watch:
        for value in "12":
            await cluster.patch_node("a", {"metadata": {"labels": {"x": value}}})
        told = [await watch.next() for _ in range(2)]
    first, second = (e["object"] for e in told if e)
    assert first["kind"] == second["kind"] == "Table"
    assert len(first["columnDefinitions"]) == 10
    assert second["rows"][0]["object"]["metadata"]["labels"] == {"x": "2"}


async def test_metadata_alone_can_be_listed(cluster: Cluster) -> None:
    await cluster.create_node(node("a", x="1"))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    body = (await cluster.request("GET", NODES, headers={"Accept": accept})).ok
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert body["items"][0]["metadata"]["labels"] == {"x": "1"}
    assert body["items"][0].keys() == {"kind", "apiVersion", "metadata"}


async def test_an_answer_that_cannot_be_given_is_a_406(cluster: Cluster) -> None:
    await cluster.create_node(node())
    answer = await cluster.request("GET", f"{NODES}/a", headers={"Accept": "text/plain"})
    assert refusal(answer)[:2] == (406, "NotAcceptable")


# --- discovery and rights -----------------------------------------------------------------------


async def test_the_server_tells_what_it_is_and_serves(cluster: Cluster) -> None:
    assert (await cluster.get("/version")).ok["major"] == "1"
    for path in ("/healthz", "/readyz", "/livez"):
        assert (await cluster.get(path)).text == "ok"
    assert (await cluster.get("/api")).ok["versions"] == ["v1"]
    groups = {g["name"] for g in (await cluster.get("/apis")).ok["groups"]}
    assert {"coordination.k8s.io", "events.k8s.io"} <= groups
    core = {r["name"]: r for r in (await cluster.get("/api/v1")).ok["resources"]}
    assert core["nodes"]["shortNames"] == ["no"]
    assert (core["nodes"]["namespaced"], core["nodes/status"]["verbs"]) == (
        False,
        ["get", "patch", "update"],
    )
    served = (await cluster.get("/apis/coordination.k8s.io/v1")).ok
    assert served["groupVersion"] == "coordination.k8s.io/v1"
    group = (await cluster.get("/apis/coordination.k8s.io")).ok
    assert group["preferredVersion"]["version"] == "v1"


async def test_discovery_comes_aggregated_too(cluster: Cluster) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for path, plural, scope in (("/api", "nodes", "Cluster"), ("/apis", "leases", "Namespaced")):
        answer = await cluster.request("GET", path, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == accept
        every = [r for i in answer.ok["items"] for v in i["versions"] for r in v["resources"]]
        (found,) = [r for r in every if r["resource"] == plural]
        assert found["scope"] == scope
        assert {"get", "list", "patch", "watch"} <= set(found["verbs"])


async def test_a_refusal_names_who_may_not_do_what(cluster: Cluster) -> None:
    answer = await cluster.without_rights("PATCH", f"{NODES}/a", {})
    code, reason, message = refusal(answer)
    assert (code, reason) == (403, "Forbidden")
    user = re.search(r'User "(.*?)"', message)
    assert user is not None
    assert message == (
        f'nodes "a" is forbidden: User "{user[1]}" cannot patch resource "nodes" in API group ""'
        " at the cluster scope"
    )
    _, _, message = refusal(await cluster.without_rights("GET", NODES))
    assert message.startswith("nodes is forbidden: User ")
    _, _, message = refusal(await cluster.without_rights("GET", f"{LEASES}/l"))
    assert message.startswith('leases.coordination.k8s.io "l" is forbidden: User ')
    assert message.endswith(
        'cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "default"'
    )


async def test_the_writes_of_a_test_are_on_record(cluster: Cluster) -> None:
    assert await cluster.writes() == []
    await cluster.create_node(node())
    await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}}, field_manager="dynsched")
    await cluster.list_nodes()
    _ = (await cluster.post(LEASES, lease())).ok
    await cluster.patch(f"{NODES}/nope", {})
    found = await cluster.writes()
    assert [(w.verb, w.name, w.manager, w.status) for w in found] == [
        ("create", "a", "creator", 201),
        ("patch", "a", "dynsched", 200),
        ("patch", "nope", "", 404),
    ]
    assert found[1].body == {"metadata": {"labels": {"x": "1"}}}
    assert found[1].user_agent == "tests/1"
    assert [w.verb for w in await cluster.writes("leases")] == ["create"]
