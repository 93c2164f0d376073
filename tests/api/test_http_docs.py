"""docs/http.md: every endpoint is in it, and its examples are what the application answers.

UPDATE_DOCS=1 writes the examples and the table of metrics anew.
"""

import json
import os
import re
import shlex
from dataclasses import replace

import pytest
from aiohttp.test_utils import TestClient, TestServer
from early_scene import early_example
from monitoring_support import PHASE
from msgspec.json import schema_components
from plain_answers import series_text
from programs import ROOT
from snapshots import EXAMPLE_RULES, NOON, Scene, example
from store_support import Clock, make_store

from dynsched import __version__
from dynsched.api.app import ENDPOINTS, make_app
from dynsched.api.extender.endpoints import EXTENDER_ENDPOINTS
from dynsched.api.nodes import NodeAnswer, NodeDetail, around_nodes
from dynsched.api.order_status import LastOrder, NodeInOrder, OrderStatus
from dynsched.api.page.history import Change
from dynsched.engine.load.expected import KnownPods
from dynsched.engine.model import Node
from dynsched.engine.pod_values import BoundPod, RecentPod

PAGE = ROOT / "docs/http.md"
EXAMPLE = re.compile(r"```console\n\$ (?P<command>curl [^\n]+)\n(?P<answer>.*?)```", re.DOTALL)
WIDTH = 118
METRICS = re.compile(r"(<!-- metrics -->\n).*?(<!-- end of metrics -->)", re.DOTALL)


def docs_snapshots():
    cores = {"cpu": 8.0, "memory": 2.0**35}
    nodes = [Node("worker-1"), Node("worker-2", allocatable=cores)]
    pod = BoundPod("1", "worker-2", workload="shop/web")
    pods = KnownPods(
        recent=(RecentPod(pod, 20.0, None),),
        running=30,
        median_life=300.0,
        use_of_workloads={"cpu": {"shop/web": 0.4}},
        scrape_intervals={"node-cpu": 30.0},
    )
    person = Node("worker-3", labels={"status": "maintenance"})
    of_cpu, of_memory = EXAMPLE_RULES["rules"]
    rules = [{**of_cpu, "resource": "cpu"}, {**of_memory, "resource": "memory"}]
    order = {"score": {"node-cpu": 1}}
    scene = Scene({"rules": rules, "order": order}, [*nodes, person])
    cpu = {"worker-1": 31.5, "worker-2": 91.25, "worker-3": 12.0, "10.0.9.9:9100": 55.0}
    memory = {"worker-1": 40.0, "worker-2": 62.0, "worker-3": 20.0}
    snapshots = make_store(Clock(NOON + 95))
    snapshots.source = "http://localhost:9090"
    for seconds in (0, 30, 60, 90):
        snapshots.publish(
            scene.tick(NOON + seconds, node_cpu=cpu, node_mem_usage=memory, pods=pods), placed=[]
        )
    written = LastOrder(snapshots.snapshot.order, NOON + 91, NOON + 119)
    snapshots.tell_of_order(OrderStatus(lambda: snapshots.snapshot, written))
    return snapshots


def laid_out(value, indent=""):
    """JSON for reading: what fits on a line stands on one, and short entries share lines."""
    flat = json.dumps(value)
    if len(indent + flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    inner, is_object = indent + "  ", isinstance(value, dict)
    entries = (
        [f"{json.dumps(key)}: {laid_out(each, inner)}" for key, each in value.items()]
        if (is_object)
        else [laid_out(each, inner) for each in value]
    )
    lines = [""]
    for entry in entries:
        joined = f"{lines[-1]} {entry},".strip()
        if lines[-1] and "\n" not in joined and len(inner + joined) <= WIDTH:
            lines[-1] = joined
        else:
            lines.append(f"{entry},")
    opened, closed = "{}" if is_object else "[]"
    body = "\n".join(f"{inner}{line}" for line in lines[1:]).removesuffix(",")
    return f"{opened}\n{body}\n{indent}{closed}"


async def answer(client, command):
    """What the shell would show, JSON laid out."""
    command, _, keys = command.partition(" | jq ")
    curl, _, grep = command.partition(" | grep ")
    words = shlex.split(curl)
    headers = dict([words[words.index("-H") + 1].split(": ")]) if "-H" in words else {}
    path = words[-1].removeprefix("http://localhost:9000")
    async with client.get(path, headers=headers) as response:
        text = await response.text()
    if response.content_type == "application/json":
        body = json.loads(text)
        if first := re.fullmatch(r"'\.(\w+) \|= \.\[:1\]'", keys):
            body[first[1]], keys = body[first[1]][:1], ""
        chosen = re.findall(r"\w+", keys) or body
        return laid_out({key: body[key] for key in chosen}) + "\n"
    lines = [line for line in text.splitlines() if grep in line]
    return "\n".join(lines) + "\n"


def metrics_table(snapshots):
    snapshots.metrics.observe(replace(snapshots.snapshot, phase=PHASE))
    text = snapshots.metrics.exposition().decode()
    for snapshot in (snapshots.snapshot, early_example(), example()):  # some series are not in each
        text += series_text(snapshot).decode()
    kinds = dict(re.findall(r"^# TYPE (dynsched_\w+) (\w+)$", text, re.MULTILINE))
    rows = ["| metric | type | meaning |", "| --- | --- | --- |"]
    meanings = dict(re.findall(r"^# HELP (dynsched_\w+) (.+)$", text, re.MULTILINE))
    for name, meaning in meanings.items():
        labels = re.search(rf"^{name}(?:_sum)?\{{(.+)\}}", text, re.MULTILINE)
        names = re.findall(r'(\w+)="', labels[1]) if labels else []
        shown = f"{{{', '.join(names)}}}" if names else ""
        rows.append(f"| `{name}{shown}` | {kinds[name]} | {meaning} |")
    return "\n".join(rows) + "\n"


async def test_the_examples_are_what_is_answered() -> None:
    page = PAGE.read_text()
    snapshots = docs_snapshots()
    fresh = METRICS.sub(lambda found: f"{found[1]}{metrics_table(snapshots)}{found[2]}", page)
    async with TestClient(TestServer(make_app(snapshots))) as client:
        for command, _ in EXAMPLE.findall(page):
            block = f"```console\n$ {command}\n{await answer(client, command)}```"
            pattern = re.compile(rf"```console\n\$ {re.escape(command)}\n.*?```", re.DOTALL)
            fresh = pattern.sub(lambda _, block=block: block, fresh)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(fresh)
        return
    assert page == fresh, "UPDATE_DOCS=1 pytest tests/api/test_http_docs.py writes the page anew"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_endpoint_is_described(path) -> None:
    assert f"`{path.replace('{name}', 'NAME')}`" in PAGE.read_text()


def test_the_document_has_every_endpoint_and_the_types_that_are_encoded() -> None:
    document = json.loads((ROOT / "dynsched/api/openapi.json").read_bytes())
    assert document["info"]["version"] == __version__
    assert list(document["paths"]) == [*ENDPOINTS, *EXTENDER_ENDPOINTS]
    schemas = document["components"]["schemas"]
    around = json.loads(b"".join(around_nodes(example(), "last")))
    assert around.keys() == schemas["Nodes"]["properties"].keys()
    types = [NodeAnswer, NodeDetail, NodeInOrder, Change]
    _, encoded = schema_components(types, ref_template="#/components/schemas/{name}")
    for name, schema in encoded.items():
        told = {key: of for key, of in schemas[name].items() if key != "description"}
        assert told == {key: of for key, of in schema.items() if key in told}, name
