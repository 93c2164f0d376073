"""docs/http.md describes every endpoint, and its examples are real responses.

UPDATE_DOCS=1 rewrites the examples and the table of metrics.
"""

import json
import os
import re
import shlex

import pytest
from aiohttp.test_utils import TestClient, TestServer
from programs import ROOT
from scenes import EXAMPLE_RULES, NOON, Scene, example, expected_example
from store_support import Clock, make_store

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.nodes import Node
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import LastOrder, OrderStatus
from dynsched.web.app import ENDPOINTS, make_app
from dynsched.web.node_series import node_series

PAGE = ROOT / "docs/http.md"
EXAMPLE = re.compile(r"```console\n\$ (?P<command>curl [^\n]+)\n(?P<answer>.*?)```", re.DOTALL)
WIDTH = 118
METRICS = re.compile(r"(<!-- metrics -->\n).*?(<!-- end of metrics -->)", re.DOTALL)


def docs_ticks():
    cores = {"cpu": 8.0, "memory": 2.0**35}
    nodes = [Node("worker-1"), Node("worker-2", allocatable=cores)]
    pod = BoundPod("1", "worker-2", workload="shop/web")
    pods = KnownPods(
        recent=(RecentPod(pod, 20.0, None),),
        running=30,
        use_of_workloads={"cpu": {"shop/web": 0.4}},
        scrape_intervals={"node-cpu": 30.0},
    )
    person = Node("worker-3", labels={"status": "maintenance"})
    of_cpu, _ = EXAMPLE_RULES["rules"]
    rules = {"rules": [{**of_cpu, "resource": "cpu"}], "order": {"score": {"node-cpu": 1}}}
    scene = Scene(rules, [*nodes, person])
    cpu = {"worker-1": 31.5, "worker-2": 91.25, "worker-3": 12.0, "10.0.9.9:9100": 55.0}
    ticks = make_store(Clock(NOON + 95))
    ticks.source = "http://localhost:9090"
    for seconds in (0, 30, 60, 90):
        ticks.publish(scene.tick(NOON + seconds, node_cpu=cpu, pods=pods), placed=[])
    order = compute_order(ticks.tick.evaluation, pods)
    written = LastOrder(order, NOON + 91, NOON + 119)
    ticks.show_order(OrderStatus(order, pods, written))
    return ticks


def laid_out(value, indent=""):
    """Readable JSON: a value that fits is on one line, and short entries share lines."""
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
    """The output of a curl command of the page, with JSON formatted by `laid_out`."""
    command, _, keys = command.partition(" | jq ")
    curl, _, grep = command.partition(" | grep ")
    words = shlex.split(curl)
    headers = dict([words[words.index("-H") + 1].split(": ")]) if "-H" in words else {}
    path = words[-1].removeprefix("http://localhost:9000")
    async with client.get(path, headers=headers) as response:
        text = await response.text()
    if response.content_type == "application/json":
        body = json.loads(text)
        chosen = re.findall(r"\w+", keys) or body
        return laid_out({key: body[key] for key in chosen}) + "\n"
    lines = [line for line in text.splitlines() if grep in line]
    return "\n".join(lines) + "\n"


def metrics_table(ticks):
    ticks.metrics.observe(ticks.tick)
    text = ticks.metrics.exposition().decode()
    # No single tick has all series.
    for tick in (ticks.tick, expected_example(), example()):
        text += node_series(tick)
    rows = ["| metric | meaning |", "| --- | --- |"]
    meanings = dict(re.findall(r"^# HELP (dynsched_\w+) (.+)$", text, re.MULTILINE))
    for name, meaning in meanings.items():
        labels = re.search(rf"^{name}(?:_sum)?\{{(.+)\}}", text, re.MULTILINE)
        names = re.findall(r'(\w+)="', labels[1]) if labels else []
        shown = f"{{{', '.join(names)}}}" if names else ""
        rows.append(f"| `{name}{shown}` | {meaning} |")
    return "\n".join(rows) + "\n"


async def test_the_examples_are_real_responses() -> None:
    page = PAGE.read_text()
    ticks = docs_ticks()
    fresh = METRICS.sub(lambda found: f"{found[1]}{metrics_table(ticks)}{found[2]}", page)
    async with TestClient(TestServer(make_app(ticks))) as client:
        for command, _ in EXAMPLE.findall(page):
            block = f"```console\n$ {command}\n{await answer(client, command)}```"
            pattern = re.compile(rf"```console\n\$ {re.escape(command)}\n.*?```", re.DOTALL)
            fresh = pattern.sub(lambda _, block=block: block, fresh)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(fresh)
        return
    assert page == fresh, "UPDATE_DOCS=1 pytest tests/web/test_http_docs.py writes the page anew"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_endpoint_is_described(path) -> None:
    assert f"`{path.replace('{name}', 'NAME')}`" in PAGE.read_text()
