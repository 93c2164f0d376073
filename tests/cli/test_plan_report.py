"""`dynsched plan`: what one pass found, as tables and as JSON; nothing is left out in silence."""

import json
import os
import re
from dataclasses import replace

from command_line import shown
from programs import ROOT
from snapshots import EXAMPLE_RULES, NOON, Scene, example

from dynsched.api.nodes import encode_each
from dynsched.api.status import rules_answer
from dynsched.cli.node_tables import render_patches
from dynsched.cli.single_pass import pass_report, render_findings, why_incomplete
from dynsched.engine.model import Node, WriteFailure

PAGE = ROOT / "docs/plan.md"
PLAN = re.compile(r"(<!-- plan -->\n```console\n).*?(```\n<!-- end of plan -->)", re.DOTALL)
MISSING = "node-cpu (missing) and node-mem-usage (missing)"
NO_RESULT = "the query's result is empty; does the metric exist?"


def found(snapshot):
    return shown(render_findings, json.loads(pass_report(snapshot)))


def printed():
    """The example as `plan` prints it."""
    snapshot = example(dry_run=True)
    lines = found(snapshot) + shown(render_patches, snapshot.planned)
    return "".join(f"{line}\n" for line in lines)


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
    snapshot = Scene(rules, map(Node, "abc")).tick(NOON, free={"a": 150.0, "b": 20.0, "c": 90.0})
    assert [line.split()[0] for line in found(snapshot)[2:5]] == ["b", "c", "a"]


def test_of_many_names_some_are_shown_and_the_others_counted() -> None:
    names = [f"n{number:02}" for number in range(30)]
    snapshot = Scene(EXAMPLE_RULES, map(Node, names)).tick(NOON, node_cpu={}, node_mem_usage={})
    lines = found(replace(snapshot, rules=(), unmatched=()))
    assert lines[0].startswith("0 rules on 30 nodes")
    scene = Scene(EXAMPLE_RULES, map(Node, names))
    cpu = {"n00": 1.0}
    (dark,) = found(scene.tick(NOON, node_cpu=cpu, node_mem_usage=cpu))[4:]
    assert dark.startswith(f"No current value of {MISSING} for 29 nodes: n01, n02, ")
    assert dark.endswith("n20 and 9 more")


def test_what_a_pass_does_not_know_is_told() -> None:
    scene = Scene(EXAMPLE_RULES, map(Node, "abc"))
    snapshot = scene.tick(NOON, node_cpu={"a": 1.0, "x": 1.0, "y": 1.0}, node_mem_usage={})
    assert found(snapshot)[3:] == [
        f"No sample of rule node-mem-usage matched a node: {NO_RESULT}",
        "No current value of node-cpu (missing) for 2 nodes: b and c",
        "Rule node-cpu: no node for 2 samples (x and y): no node has this name or address",
    ]
    cpu, memory = snapshot.rules
    rules = (replace(cpu, warnings=("a store is away",)), replace(memory, past_error="HTTP 422"))
    told = found(replace(snapshot, rules=rules))
    assert "Rule node-cpu is answered in part: a store is away" in told
    past = "No history of rule node-mem-usage, so durations count from now: HTTP 422"
    assert past in told


def test_several_series_for_one_node_and_a_comparison_in_the_expression_are_warned_of() -> None:
    rule = {"name": "cpu", "expr": "cpu_busy > 80", "threshold": 80}
    scene = Scene({"rules": [rule]}, [Node("a", addresses=(("InternalIP", "10.0.0.1"),))])
    snapshot = scene.tick(NOON, cpu={"a": 91.0, "10.0.0.1:9100": 85.0}, dry_run=True)
    output = "\n".join(found(snapshot))
    assert "Warning: rule cpu: the comparison '> 80' leaves out the nodes" in output
    assert "Warning: rule cpu has more than one series for a node: 'a'" in output
    assert len(json.loads(pass_report(snapshot))["warnings"]) == 2


def test_the_json_has_all_of_it() -> None:
    snapshot = example(dry_run=True)
    report = json.loads(pass_report(snapshot))
    keys = "ok errors warnings mark taken_at patches rules nodes unmatched_samples"
    assert " ".join(report) == keys
    assert (report["ok"], report["errors"], report["warnings"]) == (True, [], [])
    patches = [(patch["node"], patch["action"]) for patch in report["patches"]]
    assert patches == [("worker-2", "mark"), ("worker-5", "mark")]
    assert report["patches"][0]["reason"] == "node-cpu 91.25 > 80"
    assert report["patches"][0]["body"]["metadata"]["labels"] == {"status": "presure"}
    assert report["rules"] == json.loads(json.dumps(rules_answer(snapshot)["rules"]))
    views = [snapshot.nodes[name] for name in sorted(snapshot.nodes)]
    assert report["nodes"] == [json.loads(bytes(each)) for each in encode_each(snapshot, views)]
    why = "no node has this name or address"
    unmatched = {"rule": "node-cpu", "value": "10.0.9.9:9100", "reason": why}
    assert report["unmatched_samples"] == [unmatched]


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
        (away, away, away, [f"no rule could be queried: {away}"]),
        (away, away, "403", [f"rules a and b {one} {away}", f"rule c {one} 403"]),
    ):
        snapshot = answered(a=a, b=b, c=c)
        if a == away:
            snapshot = replace(snapshot, error=f"no rule could be queried: {away}")
        assert list(why_incomplete(snapshot)) == expected
        assert json.loads(pass_report(snapshot))["errors"] == expected


def test_what_is_due_and_was_not_written_makes_a_pass_incomplete() -> None:
    snapshot = example(dry_run=True)
    assert why_incomplete(snapshot) == ()
    stopped = replace(snapshot, dry_run=False)
    assert why_incomplete(stopped) == ("due and not written: worker-2 and worker-5; run it again",)
    failures = (WriteFailure("worker-2", "500"),)
    failed = replace(stopped, failures=failures, error="1 of 2 nodes could not be ...")
    assert why_incomplete(failed) == ("1 of 2 nodes could not be ...",)
