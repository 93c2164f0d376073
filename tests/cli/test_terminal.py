"""Tables for people: their text, with one golden file per command, and how they fit a terminal."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
from command_line import compare, shown
from scenes import EXAMPLE_RULES, NOON, Scene, example, expected_example, many
from web_support import nodes_payload

from dynsched.cli.tables import render_nodes, render_order, render_patches, render_why
from dynsched.core.guard import WriteFailure
from dynsched.core.marks import Action, NodePatch, plan_prune
from dynsched.core.nodes import Node
from dynsched.core.tick import Leadership, RulesStatus, Tick, WriteResult
from dynsched.rules.parse import parse_rules
from dynsched.web.nodes import node_detail

TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
BOTH = EXAMPLE_RULES | {"mark": {"label": "status=presure", "taint": TAINT}}


def node_payload(tick: Tick, name: str) -> Any:
    return json.loads(msgspec.json.encode(node_detail(tick, name), enc_hook=str))


def ticked(rules: Any, *loads: tuple[float, dict[str, float]], **how: Any) -> Tick:
    """The last of several ticks; ``loads``: seconds, and the values of node-cpu by node."""
    scene = Scene(rules, map(Node, loads[0][1] or "a"))
    *before, (at, cpu) = loads
    for earlier, load in before:
        scene.tick(NOON + earlier, node_cpu=load, node_mem_usage={})
    return scene.tick(NOON + at, node_cpu=cpu, node_mem_usage={}, **how)


HOT, COOL = {"a": 99.0, "b": 98.0, "c": 1.0, "d": 1.0}, dict.fromkeys("abcd", 1.0)
COOLED = ((0, HOT), (60, HOT), (90, COOL), (400, COOL))


def relabelled(**after: Any) -> Tick:
    """A tick in which a marked node needs another label, which has just been configured and is not
    written.
    """
    scene = Scene(EXAMPLE_RULES, [Node("a"), Node("b")])
    hot = {"a": 99.0, "b": 1.0}
    for seconds in (0, 60):
        scene.tick(NOON + seconds, node_cpu=hot, node_mem_usage=hot)
    scene.rule_set = parse_rules(EXAMPLE_RULES | {"mark": {"label": "example.com/load=high"}})
    return replace(scene.tick(NOON + 70, node_cpu=hot, node_mem_usage=hot, writes=False), **after)


def refused(*failures: WriteFailure) -> Tick:
    """`relabelled` with these failed writes."""
    return relabelled(writes=WriteResult(failures=failures))


REFUSED = WriteFailure("a", "may not patch nodes")


def test_nodes_prints_the_golden_text() -> None:
    tick, none = example(), {"label": None, "taint": TAINT}
    partly = Scene(BOTH, [Node("a", labels={"status": "presure"})])
    odd = nodes_payload(partly.tick(NOON, node_cpu={"a": 90}, node_mem_usage={}))
    odd["nodes"][0] |= {"carries": ["label status=presure"], "conflict": "two\nlines\x1b"}
    every = nodes_payload(tick)
    status = RulesStatus("rules.yaml:3:5: no\nrules.yaml:4:5: no")
    bad_file = nodes_payload(replace(tick, rules_status=status))
    payloads = {
        "all": every,
        "dry run": nodes_payload(example(dry_run=True)),
        "by the expected load": nodes_payload(expected_example()),
        "the rules file is refused": bad_file | {"nodes": []},
        "a taint alone": nodes_payload(ticked(EXAMPLE_RULES | {"mark": none}, (0, {}))),
        "no marks": nodes_payload(ticked(EXAMPLE_RULES | {"mark": "none"}, (0, {}))),
        "a part of the mark, and control characters": odd,
        "a mark of before that cannot be written": nodes_payload(refused(REFUSED)),
    }
    compare("nodes", ((title, shown(render_nodes, each)) for title, each in payloads.items()))


def test_why_prints_the_golden_text() -> None:
    def scenes() -> Iterator[tuple[str, list[str]]]:
        for name in sorted(example().evaluation.table.entries):
            yield name, shown(render_why, node_payload(example(), name))
        for title, tick, name in (
            ("held back", ticked(EXAMPLE_RULES, *COOLED), "b"),
            ("by the expected load", expected_example(), "worker-1"),
            ("never sampled", ticked(EXAMPLE_RULES, (0, {})), "a"),
            ("the write failed", refused(REFUSED), "a"),
        ):
            yield title, shown(render_why, node_payload(tick, name))
        for title, tick in (
            ("another leads", relabelled(leadership=Leadership(leading=False, leader="pod-2"))),
            ("none leads", relabelled(leadership=Leadership(leading=False))),
            ("the next tick", relabelled()),
        ):
            yield title, [node_payload(tick, "a")["due"]["waits"]]

    compare("why", scenes())


def test_order_prints_the_golden_text() -> None:
    node = {"node": "a", "rank": 1, "equal": True, "list": 1, "weight": 100, "load": 12.0}
    pools = [
        {
            "pool": "",
            "lists": 1,
            "nodes": [node, {**node, "node": "b", "equal": False, "load": None}],
        }
    ]
    answer = {"written_at": "W", "until": "U", "error": None, "leading": True, "dry_run": False}
    answer |= {
        "leader": None,
        "counts": {"ranked": 1, "unknown": 1, "hot": 0},
        "pools": pools,
    }
    over = answer | {"until": None, "counts": None, "pools": []}
    answers = {
        "in force": answer,
        "refused": over | {"error": "403"},
        "dry run": over | {"dry_run": True},
        "another replica writes it": over | {"leading": False, "leader": "x"},
    }
    compare("order", ((title, shown(render_order, each)) for title, each in answers.items()))


def test_patches_are_printed_as_the_golden_text() -> None:
    scene = Scene(BOTH, [Node("a", taints=({"key": "theirs", "effect": "NoSchedule"},)), Node("b")])
    hot = {"a": 99.0, "b": 1.0}
    scene.tick(NOON, node_cpu=hot, node_mem_usage={})
    marks = scene.tick(NOON + 60, node_cpu=hot, node_mem_usage={}).planned
    releases = plan_prune(scene.nodes.values(), scene.rule_set.mark)
    body = {"metadata": {"resourceVersion": "1"}}
    odd = NodePatch("n", Action.MARK, body, "[red]not markup[/red] \x1b[2J\x07 end")
    scenes = {"marks": marks, "releases": releases, "none": [], "control characters": [odd]}
    compare("patches", ((title, shown(render_patches, each)) for title, each in scenes.items()))


def test_a_mark_that_was_not_written_is_not_reported_as_present() -> None:
    answer = nodes_payload(refused(REFUSED))
    assert answer["type"] == "Label example.com/load=high Nodes"
    assert (answer["num"], answer["node_names"]) == (0, [])
    first, second = answer["nodes"]
    assert (first["marked"], first["carries"]) == (True, ["label status=presure"])
    changes = ["label status-", "label example.com/load=high", "annotation dynsched.io/pressure"]
    assert (first["due"]["action"], first["due"]["changes"]) == ("repair", changes)
    assert second["due"] is None


def test_names_are_never_cut_and_colours_appear_on_wide_terminals_only() -> None:
    tick = many(3)
    terminals = [{"width": width, "force_terminal": True} for width in (40, 120)]
    for console in ({}, {"width": 20}, *terminals):
        text = "\n".join(shown(render_nodes, nodes_payload(tick), **console))
        assert all(name in text for name in tick.evaluation.table.entries)
        coloured = "\n".join(shown(render_nodes, nodes_payload(example()), **console))
        wide_enough = console == terminals[1]
        assert ("\x1b[1;31m" in coloured) is ("\x1b[" in coloured) is wide_enough
