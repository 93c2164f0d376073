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


# --- strategic merge patch and JSON patch -------------------------------------------------------


# --- put and delete -----------------------------------------------------------------------------


async def test_a_lease_needs_a_version_to_be_put(cluster: Cluster) -> None:
    body = (await cluster.post(LEASES, lease())).ok
    assert refusal(await cluster.put(f"{LEASES}/l", lease()))[:2] == (422, "Invalid")
    renewed = body | {"spec": body["spec"] | {"renewTime": "2026-01-01T02:00:00.123456+02:00"}}
    after = (await cluster.put(f"{LEASES}/l", renewed)).ok
    assert after["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    assert refusal(await cluster.put(f"{LEASES}/l", renewed))[:2] == (409, "Conflict")
    assert await cluster.get_lease("l") == after


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


# --- lists --------------------------------------------------------------------------------------


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


# --- other representations ----------------------------------------------------------------------


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
