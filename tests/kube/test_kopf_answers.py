"""Nodes are taken out of the API server's answers before kopf decodes them."""

import gc
import json
from collections.abc import AsyncIterator

import pytest
from cluster import Cluster
from watch_support import hasten, watching

from dynsched.engine.model import Node
from dynsched.kube import kopf_operator
from dynsched.kube.kopf_operator import CHUNK, _Lines, _without_nodes
from dynsched_sim.examples import make_node

NAN = b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"},"odd":NaN}]}'


def event(kind: str, name: str, version: str) -> bytes:
    raw = make_node(name)
    raw["metadata"]["resourceVersion"] = version
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


class Chunks:
    """A stream that is read in pieces of any size."""

    def __init__(self, data: bytes, size: int) -> None:
        self.chunks = [data[at : at + size] for at in range(0, len(data), size)]

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


@pytest.mark.parametrize("size", [1, 700, 2**20])
async def test_of_an_event_kopf_gets_a_bookmark_and_all_else_as_it_came(size: int) -> None:
    others = [
        b'{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"8"}}}',
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}',
        b"no JSON",
        b'{"type":"DELETED","object":{"metadata":{"name":"without a version"}}}',
        b'{"type":"ADDED","object":"no node"}',
    ]
    events = [event("ADDED", "a", "5"), event("MODIFIED", "a", "6"), event("DELETED", "b", "7")]
    seen: list[tuple[str | None, Node | None]] = []
    lines = _Lines(
        Chunks(b"".join(events) + b"\n".join(others), size),  # type: ignore[arg-type]
        lambda *event: seen.append(event),
    )

    given = b"".join([chunk async for chunk in lines.iter_chunked(2**20)]).splitlines()

    assert [json.loads(line) for line in given[:3]] == [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
        for version in ("5", "6", "7")
    ]
    assert given[3:6] == others[:3]
    # Without a version, so that kopf goes on from the one that it has.
    assert [json.loads(line) for line in given[6:]] == [
        {"type": "BOOKMARK", "object": {"metadata": {}}}
    ] * 2
    assert [(kind, node and node.name) for kind, node in seen] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
        ("DELETED", "without a version"),
        ("ADDED", None),
    ]


def test_of_a_page_kopf_gets_where_the_list_is() -> None:
    seen: list[tuple[str | None, Node | None]] = []
    page = {
        "kind": "NodeList",
        "metadata": {"resourceVersion": "9", "continue": "next", "remainingItemCount": 4},
        "items": [make_node("a"), {"metadata": {"name": "b", "labels": {}}, "spec": 3}, None],
    }
    position = _without_nodes(json.dumps(page).encode(), lambda *event: seen.append(event))
    assert position == {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": []}
    assert [(kind, node and node.name) for kind, node in seen] == [
        (None, "a"),
        (None, "b"),
        (None, None),
    ]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'{"metadata":{},"items":[]}', NAN])
def test_what_is_no_page_is_left_to_kopf(body: bytes) -> None:
    assert _without_nodes(body, lambda *_: pytest.fail("there is no node")) is None


async def test_kopf_keeps_nothing_of_a_node(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        await cluster.create_node(make_node("b", 1))
        await running.until(lambda: "b" in running.names())
        await cluster.patch_node("a", {"metadata": {"labels": {"pool": "blue"}}})
        await running.until(lambda: running.label("a", "pool") == "blue")
        kept = [each for each in gc.get_objects() if type(each).__name__ == "ResourceMemory"]
        assert kept == []


async def test_a_watch_goes_on_from_the_last_event(sim, monkeypatch) -> None:
    hasten(monkeypatch)
    await sim.create_node(make_node("a", 0))
    async with watching(sim.kubeconfig) as running:
        await running.follows(sim)
        await sim.patch_node("a", {"metadata": {"labels": {"pool": "blue"}}})
        await running.until(lambda: running.label("a", "pool") == "blue")
        version = running.cluster.nodes()["a"].resource_version
        sim.server.requests.clear()
        sim.server.drop_watches("end")
        asked = sim.server.requests
        await running.until(lambda: any(each.verb == "watch" for each in asked))
        assert [
            each.query.get("resourceVersion", "none")
            for each in asked
            if each.verb == "watch" or each.query.get("limit") == str(CHUNK)
        ] == [version]


async def test_what_is_left_to_kopf_comes_by_its_handler(sim, monkeypatch) -> None:
    """As an answer in a form that is not expected."""
    monkeypatch.setattr(kopf_operator, "_without_nodes", lambda *_: None)
    monkeypatch.setattr(_Lines, "_without_node", lambda _, line: line)
    await sim.create_node(make_node("a", 0))
    async with watching(sim.kubeconfig) as running:
        await running.follows(sim)
        await sim.create_node(make_node("b", 1))
        await sim.delete_node("a")
        await running.until(lambda: running.names() == {"b"})
        await running.knows(sim)
