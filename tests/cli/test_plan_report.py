"""`dynsched plan`: what one pass found, as tables and as JSON; nothing is left out in silence."""

import json
import os
import re
from dataclasses import replace
from functools import partial

from command_line import compare, shown
from programs import ROOT
from scenes import CPU, EXAMPLE_RULES, MEMORY, NOON, Scene, example, expected_scene, many
from web_support import nodes_payload

from dynsched.cli.single_pass import pass_report, render_findings, why_incomplete
from dynsched.cli.tables import render_patches
from dynsched.core.guard import WriteFailure
from dynsched.core.nodes import Node
from dynsched.core.samples import Sample
from dynsched.core.tick import WriteResult
from dynsched.web.status import rules_answer

PAGE = ROOT / "docs/look.md"
PLAN = re.compile(r"(<!-- plan -->\n```console\n).*?(```\n<!-- end of plan -->)", re.DOTALL)


def found(tick):
    return shown(render_findings, json.loads(pass_report(tick)))


def printed():
    """The example as `plan` prints it, with one of the many rows that need no attention."""
    tick = example(dry_run=True)
    lines = found(tick) + shown(render_patches, tick.planned)
    first, *others = (line for line in lines if re.search(r" inactive +\d+s ago$", line))
    shortened = [line for line in lines if line not in others]
    shortened.insert(shortened.index(first) + 1, "...")
    return "".join(f"{line}\n" for line in shortened)


def test_the_page_shows_what_is_printed() -> None:
    page = PAGE.read_text()
    command = "$ dynsched plan --prom http://localhost:9090 -r rules.yaml\n"
    fresh = PLAN.sub(lambda found: f"{found[1]}{command}{printed()}{found[2]}", page)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(fresh)
        return
    assert page == fresh, "UPDATE_DOCS=1 pytest tests/cli/test_plan_report.py writes the page anew"


def test_a_value_that_should_not_fall_is_the_worse_the_lower_it_is() -> None:
    rules = {"rules": [{"name": "free", "expr": "free", "op": "<", "threshold": 100}]}
    tick = Scene(rules, map(Node, "abc")).tick(NOON, free={"a": 150.0, "b": 20.0, "c": 90.0})
    assert [line.split()[0] for line in found(tick)[2:5]] == ["b", "c", "a"]


def test_the_worst_values_are_shown_or_all() -> None:
    report = json.loads(pass_report(many(30)))
    for every, rows in ((False, 20), (True, 90)):
        lines = shown(partial(render_findings, every=every), report)
        assert sum("> 80 " in line for line in lines) == rows


def test_what_a_pass_does_not_know_is_told() -> None:
    names = [f"n{number:02}" for number in range(30)]
    blind = Scene(EXAMPLE_RULES, map(Node, "abc"))
    tick = blind.tick(NOON, node_cpu={"a": 1.0, "x": 1.0, "y": 1.0}, node_mem_usage={})
    cpu, memory = tick.rules
    rules = (replace(cpu, warnings=("a store is away",)), replace(memory, past_error="HTTP 422"))
    series = Scene(
        {"rules": [{"name": "cpu", "expr": "cpu_busy > 80", "threshold": 80}]},
        [Node("a", addresses=(("InternalIP", "10.0.0.1"),))],
    )
    ticks = {
        "no series, and no node": tick,
        "a part of the answer, and no history": replace(tick, rules=rules),
        "no value for many nodes": Scene(EXAMPLE_RULES, map(Node, names)).tick(
            NOON, node_cpu={"n00": 1.0}, node_mem_usage={"n00": 1.0}
        ),
        "by the expected load": expected_scene().tick(NOON, node_cpu=CPU, node_mem=MEMORY),
        "warnings": series.tick(NOON, cpu={"a": 91.0, "10.0.0.1:9100": 85.0}, dry_run=True),
    }
    compare("plan", ((title, found(each)) for title, each in ticks.items()))
    assert len(json.loads(pass_report(ticks["warnings"]))["warnings"]) == 2


def test_the_label_that_holds_the_node_is_named() -> None:
    """Scraped without honor_labels by way of a program on w2, which would get the load of w1."""
    scene = Scene(
        {"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}, map(Node, ("w1", "w2"))
    )
    told = [
        Sample({"node": "w2", "exported_node": name}, value, NOON)
        for name, value in (("w1", 95.0), ("w2", 20.0))
    ]
    for samples in (told, told[:1]):
        tick = scene.tick(NOON, cpu=samples, dry_run=True, writes=False)
        (warning,) = json.loads(pass_report(tick))["warnings"]
        assert warning.endswith(
            "exported_node of its samples holds the node: set node_label: exported_node"
        )


def test_the_json_has_all_of_it() -> None:
    tick = example(dry_run=True)
    report = json.loads(pass_report(tick))
    keys = "ok errors warnings mark taken_at patches rules nodes unmatched_samples"
    assert " ".join(report) == keys
    assert (report["ok"], report["errors"], report["warnings"]) == (True, [], [])
    patches = [(patch["node"], patch["action"]) for patch in report["patches"]]
    assert patches == [("worker-2", "mark"), ("worker-5", "mark")]
    assert report["patches"][0]["reason"] == "node-cpu 91.25 > 80"
    assert report["patches"][0]["body"]["metadata"]["labels"] == {"status": "presure"}
    assert report["rules"] == json.loads(json.dumps(rules_answer(tick)["rules"]))
    assert report["nodes"] == nodes_payload(tick)["nodes"]
    (unmatched,) = report["unmatched_samples"]
    assert (unmatched["rule"], unmatched["value"]) == ("node-cpu", "10.0.9.9:9100")


def answered(**answers):
    rules = {"rules": [{"name": name, "expr": name, "threshold": 80} for name in "abc"]}
    return Scene(rules, [Node("n")]).tick(NOON, dry_run=True, **answers)


def test_a_rule_that_could_not_be_queried_makes_a_pass_incomplete() -> None:
    good, away = {"n": 1.0}, "Prometheus at http://p: connection refused"
    one = "could not be queried:"
    for a, b, c, expected in (
        (good, good, good, []),
        (good, "parse error", "parse error", [f"rules b and c {one} parse error"]),
        (good, "parse error", "late", [f"rule b {one} parse error", f"rule c {one} late"]),
        (away, away, away, [f"rules a, b and c {one} {away}"]),
        (away, away, "403", [f"rules a and b {one} {away}", f"rule c {one} 403"]),
    ):
        tick = answered(a=a, b=b, c=c)
        if a == away:
            tick = replace(tick, error=f"no rule could be queried: {away}")
        assert list(why_incomplete(tick)) == expected
        assert json.loads(pass_report(tick))["errors"] == expected


def test_what_is_due_and_was_not_written_makes_a_pass_incomplete() -> None:
    assert why_incomplete(example(dry_run=True)) == ()
    stopped = example(writes=False)
    assert why_incomplete(stopped) == ("due and not written: worker-2 and worker-5; run it again",)
    writes = WriteResult(failures=(WriteFailure("worker-2", "500"),))
    failed = replace(stopped, writes=writes, error="1 of 2 nodes could not be ...")
    assert why_incomplete(failed) == ("1 of 2 nodes could not be ...",)
