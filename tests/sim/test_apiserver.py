"""The API server behaviour that dynsched uses; it is the same on a real and a simulated server."""

import asyncio
import re
from typing import Any

from cluster import EVENTS, LEASES, NODES, Answer, Cluster, SimCluster

from dynsched_sim.examples import make_node

SOFT = {"key": "a", "value": "x", "effect": "PreferNoSchedule"}
HARD = {"key": "b", "effect": "NoSchedule"}
LABELLED = {"metadata": {"labels": {"x": "1"}}}


def refusal(answer: Answer) -> tuple[int, str, str]:
    """Code, reason and message of a Status, whose other fields are asserted."""
    body = answer.body
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert body["code"] == answer.status
    return answer.status, body.get("reason", ""), body["message"]


def node(name: str = "a", **labels: str) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
    status["capacity"] = {"cpu": "4", "memory": "8Gi"}
    status["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    head = {"apiVersion": "v1", "kind": "Node"}
    return head | {"metadata": {"name": name, "labels": labels}, "status": status}


def lease(name: str = "l", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, **spec}
    return head | {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def event(name: str = "e", **more: Any) -> dict[str, Any]:
    fields = {"reason": "Pressured", "message": "cpu 91 > 80", "type": "Warning", "count": 1}
    fields |= dict.fromkeys(("firstTimestamp", "lastTimestamp"), "2026-01-01T00:00:00Z")
    about = {"involvedObject": {"kind": "Node", "name": "a"}, "source": {"component": "dynsched"}}
    head = {"apiVersion": "v1", "kind": "Event"}
    return head | {"metadata": {"name": name, "namespace": "default"}} | fields | about | more


def version(body: dict[str, Any]) -> str:
    found: str = body["metadata"]["resourceVersion"]
    return found


async def test_a_posted_node_keeps_its_status_and_gets_the_defaults(cluster: Cluster) -> None:
    answer = await cluster.post(NODES, node("a", x="1"), fieldManager="creator")
    body = answer.body
    assert answer.status == 201
    assert (body["kind"], body["apiVersion"], body["spec"]) == ("Node", "v1", {})
    status, meta = body["status"], body["metadata"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "4", "memory": "8Gi"}
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}]
    assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["managedFields"][0]["manager"] == "creator"
    assert await cluster.get_node("a") == body
    sent = make_node("worker-1", 1, control_plane=True, size=9000)
    body = await cluster.create_node(sent)
    assert body["status"] == sent["status"]
    assert body["metadata"]["labels"] == sent["metadata"]["labels"]
    assert body["spec"]["taints"] == sent["spec"]["taints"]


async def test_a_stale_version_in_a_patch_is_a_conflict(cluster: Cluster) -> None:
    first = await cluster.create_node(node())
    second = await cluster.patch_node("a", {"metadata": {"labels": {"x": "1"}}})
    stale = {"metadata": {"resourceVersion": version(first), "labels": {"x": "2"}}}
    answer = await cluster.patch(A, stale)
    text = 'Operation cannot be fulfilled on nodes "a": the object has been modified; please apply'
    text += " your changes to the latest version and try again"
    assert refusal(answer) == (409, "Conflict", text)
    assert answer.body["details"] == {"name": "a", "kind": "nodes"}
    assert await cluster.get_node("a") == second
    fresh = {"metadata": {"resourceVersion": version(second), "labels": {"x": "2"}}}
    assert (await cluster.patch_node("a", fresh))["metadata"]["labels"] == {"x": "2"}


NO_RESOURCE = "the server could not find the requested resource"
NOT_A_NODE = 'Node in version "v1" cannot be handled as a Node: '
LEASE = f"{LEASES}/l"
EVENTS_ELSEWHERE = "/api/v1/namespaces/{}/events"
A = f"{NODES}/a"


def refused(
    method: str, path: str, body: Any, code: int, reason: str, *texts: str, **how: Any
) -> tuple[Any, ...]:
    return method, path, body, code, reason, texts, how


REFUSALS = [
    # missing objects and resources
    refused("GET", f"{NODES}/nope", None, 404, "NotFound", 'nodes "nope" not found'),
    refused("GET", f"{LEASES}/nope", None, 404, "NotFound", "leases.coordination.k8s.io"),
    refused("POST", EVENTS_ELSEWHERE.format("elsewhere"), event() | {"metadata": {"name": "e"}},
            404, "NotFound", 'namespaces "elsewhere" not found'),
    *(refused("GET", path, None, 404, "NotFound", NO_RESOURCE) for path in (
        "/api/v1/nope", "/api/v2/nodes", "/api/v1/nodes/a/nope", "/api/v1/events/e",
        "/api/v1/namespaces/default/nodes", "/apis/coordination.k8s.io/v9/leases")),
    *(refused(method, path, {}, 405, "MethodNotAllowed")
      for method, path in (("POST", A), ("PUT", NODES), ("PATCH", NODES))),
    # bodies
    refused("POST", NODES, {"metadata": {"name": "b"}, "spec": {"taints": {}}}, 400, "BadRequest",
            NOT_A_NODE),
    refused("POST", NODES, node(), 409, "AlreadyExists", 'nodes "a" already exists'),
    # patches
    refused("PATCH", A, {"metadata": {"labels": {"x": 1}}}, 422, "Invalid"),
    *(refused("PATCH", A, {"metadata": {"labels": labels}}, 422, "Invalid", "metadata.labels: ")
      for labels in ({"x": "no good"}, {"no good": ""}, {"a/b/c": ""}, {"x": "y" * 64})),
    refused("PATCH", A, {"metadata": {"annotations": {"no good": ""}}}, 422, "Invalid",
            "metadata.annotations: "),
    *(refused("PATCH", A, {"spec": {"taints": taints}}, 422, "Invalid", f"metadata.{field}: ", text)
      for taints, field, text in (
          ([{"key": "a"}], "taints[0].effect", "Required value"),
          ([{"key": "a", "effect": "Soft"}], "taints[0].effect",
           'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'),
          ([{"effect": "NoSchedule"}], "taints[0].key", ""),
          ([HARD | {"value": "b c"}], "taints[0].value", "a valid label must"),
          ([SOFT, SOFT | {"value": "y"}], "taints[1]", "must be unique by key and effect pair"))),
    # replacing and deleting
    refused("PUT", A, {"metadata": {"name": "a", "resourceVersion": "1"}}, 409, "Conflict"),
    refused("PUT", A, {"metadata": {"name": "a", "uid": "someone-else"}}, 409, "Conflict"),
    # leases and events
    refused("PUT", LEASE, lease(), 422, "Invalid"),
    *(refused("POST", LEASES, lease("bad", **spec), 400, "BadRequest")
      for spec in ({"leaseDurationSeconds": "5"}, {"renewTime": "2026-01-01T00:00:00Z"},
                   {"renewTime": "2026-01-01T00:00:00.1Z"}, {"acquireTime": "yesterday"})),
    # queries
    *(refused("GET", NODES, None, 400, "BadRequest", **query) for query in (
        {"labelSelector": "a in ("}, {"labelSelector": "a=b c"},
        {"fieldSelector": "spec.bogus=1"})),
    refused("GET", NODES, None, 422, "Invalid", watch="1", sendInitialEvents="true"),
]  # fmt: skip


async def test_a_refusal_has_a_reason_and_changes_nothing(cluster: Cluster) -> None:
    before = await cluster.create_node(node("a", x="1"))
    kept = (await cluster.post(LEASES, lease())).ok
    for method, path, body, code, reason, texts, how in REFUSALS:
        answer = await cluster.request(method, path, body, **how)
        status, why, message = refusal(answer)
        assert status == code, (method, path, body, message)
        assert why == reason or not reason, (why, message)
        for words in texts:
            assert words in message, (words, message)
        details = answer.body.get("details", {})
        if code == 404 and reason == "NotFound" and texts and "not found" in texts[0]:
            assert details["name"] in ("nope", "elsewhere")
    for path in ("/nope", "/apis/nope.example.com/v1", "/foo/bar"):
        answer = await cluster.get(path)
        assert (answer.status, answer.text.strip()) == (404, "404 page not found")
    assert await cluster.get_node("a") == before
    assert await cluster.get_lease("l") == kept
    assert [n["metadata"]["name"] for n in await cluster.list_nodes()] == ["a"]


async def test_a_put_replaces_all_but_the_status_and_a_delete_returns_a_status(
    cluster: Cluster,
) -> None:
    before = await cluster.create_node(node("a", x="1"))
    sent = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"y": "1"}}}
    body = (await cluster.put(A, sent)).ok
    assert body["metadata"]["labels"] == {"y": "1"}
    assert body["metadata"]["uid"] == before["metadata"]["uid"]
    assert body["status"] == before["status"]
    answer = (await cluster.delete(A)).ok
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "nodes", "uid": body["metadata"]["uid"]}
    # A put of a Lease needs a resourceVersion.
    body = (await cluster.post(LEASES, lease())).ok
    renewed = body | {"spec": body["spec"] | {"renewTime": "2026-01-01T00:00:00.123456Z"}}
    after = (await cluster.put(f"{LEASES}/l", renewed)).ok
    assert after["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    assert refusal(await cluster.put(f"{LEASES}/l", renewed))[:2] == (409, "Conflict")
    assert await cluster.get_lease("l") == after


async def test_a_list_is_paged_consistently(cluster: Cluster) -> None:
    for name in "abcde":
        await cluster.create_node(node(name, x=name))
    first = (await cluster.get(NODES, limit=2)).ok
    assert (first["kind"], first["apiVersion"]) == ("NodeList", "v1")
    assert [n["metadata"]["name"] for n in first["items"]] == ["a", "b"]
    assert "kind" not in first["items"][0]
    await cluster.patch_node("c", {"metadata": {"labels": {"x": "later"}}})
    await cluster.delete_node("d")
    await cluster.create_node(node("bb"))
    pages = [first]
    for _ in range(2):
        token = pages[-1]["metadata"]["continue"]
        pages.append((await cluster.get(NODES, **{"limit": 2, "continue": token})).ok)
    assert [n["metadata"]["labels"]["x"] for page in pages[1:] for n in page["items"]] == [*"cde"]
    assert version(pages[1]) == version(first)
    assert "continue" not in pages[2]["metadata"]


async def test_selectors_work_and_version_zero_returns_everything_despite_a_limit(
    cluster: Cluster,
) -> None:
    await cluster.create_node(node("a", pool="x", zone="1"))
    await cluster.create_node(node("b", pool="y", zone="2"))
    await cluster.create_node(node("c", pool="x"))
    await cluster.create_node(node("d"))
    await cluster.patch_node("b", {"spec": {"unschedulable": True}})
    by_label = {
        "pool=x": "ac", "pool==x,zone=1": "a", "pool!=x": "bd", "pool": "abc", "!pool": "d",
        "pool in (x,y),zone": "ab", "pool notin (x)": "bd", "zone in (2,3)": "b",
        "": "abcd",
    }  # fmt: skip
    by_field = {"metadata.name=a": "a", "spec.unschedulable=true": "b"}
    for kind, selectors in (("labelSelector", by_label), ("fieldSelector", by_field)):
        for selector, names in selectors.items():
            found = (await cluster.get(NODES, **{kind: selector})).ok["items"]
            assert "".join(n["metadata"]["name"] for n in found) == names, selector
    async with asyncio.timeout(90):  # the real server's cache may lag a little
        while len((await cluster.get(NODES, resourceVersion=0, limit=1)).ok["items"]) != 4:
            await asyncio.sleep(0.05)
    pods = await cluster.get("/api/v1/pods", fieldSelector="spec.nodeName=a,status.phase!=Failed")
    assert pods.ok["items"] == []
    async with cluster.watch(NODES, resourceVersion=0, timeoutSeconds=30) as watch:
        events = [await watch.next() or {} for _ in range(4)]  # the existing nodes
    assert {(e["type"], e["object"]["metadata"]["name"]) for e in events} == {
        ("ADDED", name) for name in "abcd"
    }


async def test_a_token_and_a_watch_expire_with_the_history(cluster: Cluster) -> None:
    for name in "abc":
        _ = (await cluster.post(EVENTS, event(f"e{name}"))).ok
    # Events, not nodes: a real server pages nodes from its cache, which outlives compaction.
    first = (await cluster.get(EVENTS, limit=1)).ok
    for name in "de":
        _ = (await cluster.post(EVENTS, event(f"e{name}"))).ok
    await cluster.compact()
    answer = await cluster.get(EVENTS, **{"limit": 1, "continue": first["metadata"]["continue"]})
    code, reason, message = refusal(answer)
    assert (code, reason) == (410, "Expired")
    assert message.startswith("The provided continue parameter is too old")
    async with cluster.watch(EVENTS, resourceVersion=version(first), timeoutSeconds=30) as watch:
        (error,) = await watch.rest()
    assert (error["type"], error["object"]["kind"]) == ("ERROR", "Status")
    found = [error["object"][key] for key in ("status", "code", "reason")]
    assert found == ["Failure", 410, "Expired"]


async def test_a_watch_delivers_every_change_once_and_in_order(cluster: Cluster) -> None:
    await cluster.create_node(node("before"))
    start = version((await cluster.get(NODES)).ok)
    await cluster.create_node(node("a"))
    async with cluster.watch(NODES, resourceVersion=start, timeoutSeconds=30) as watch:
        changed = await cluster.patch_node("a", LABELLED)
        await cluster.patch_node("a", LABELLED)  # no change, no event
        await cluster.delete_node("a")
        events = [await watch.next() or {} for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    added, modified, deleted = (event["object"] for event in events)
    assert (added["kind"], added["apiVersion"], modified) == ("Node", "v1", changed)
    assert deleted["metadata"]["labels"] == {"x": "1"}
    assert int(version(added)) < int(version(modified)) < int(version(deleted))


async def test_a_watch_through_a_selector_sees_nodes_enter_and_leave(cluster: Cluster) -> None:
    await cluster.create_node(node("a"))
    start = version((await cluster.get(NODES)).ok)
    query = {"labelSelector": "status=presure", "resourceVersion": start, "timeoutSeconds": 30}
    async with cluster.watch(NODES, **query) as watch:
        for labels in ({"status": "presure"}, {"x": "1"}, {"status": None}, {"x": "2"}):
            await cluster.patch_node("a", {"metadata": {"labels": labels}})
        await cluster.create_node(node("b", status="presure"))
        events = [await watch.next() or {} for _ in range(4)]
    marked, both = {"status": "presure"}, {"status": "presure", "x": "1"}
    found = [(event["type"], event["object"]["metadata"]["labels"]) for event in events]
    assert found == [("ADDED", marked), ("MODIFIED", both), ("DELETED", both), ("ADDED", marked)]


async def test_a_403_names_the_user_the_verb_and_the_resource(cluster: Cluster) -> None:
    stranger = None
    if isinstance(cluster, SimCluster):
        cluster.server.forbidden = {("patch", "nodes"), ("list", "nodes"), ("get", "leases")}
    else:
        stranger = cluster.servers.stranger_token
    denied = 'forbidden: User "'
    of = 'group "coordination.k8s.io" in the namespace "default"'
    for method, path, what, action in (
        ("PATCH", A, 'nodes "a"', 'patch resource "nodes" in API group "" at the cluster scope'),
        ("GET", NODES, "nodes", 'list resource "nodes" in API group "" at the cluster scope'),
        ("GET", LEASE, 'leases.coordination.k8s.io "l"', f'get resource "leases" in API {of}'),
    ):
        code, reason, message = refusal(await cluster.request(method, path, {}, token=stranger))
        assert (code, reason) == (403, "Forbidden")
        assert message.startswith(f"{what} is {denied}")
        assert message.endswith(f'" cannot {action}')
