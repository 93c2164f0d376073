"""`dynsched plan`: the result of one pass as tables and JSON, with counts of hidden rows."""

import json
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from command_line import compare, shown
from programs import ROOT
from scenes import EXAMPLE_RULES, NOON, Scene, example, many
from web_support import nodes_payload

from dynsched.cli.single_pass import next_step, pass_report, render_report, why_incomplete
from dynsched.cli.tables import render_patches
from dynsched.core.nodes import Node
from dynsched.core.samples import Sample
from dynsched.rules import shipped
from dynsched.web.status import rules_answer

PAGE = ROOT / "docs/look.md"
PLAN = re.compile(r"(<!-- plan -->\n```console\n).*?(```\n<!-- end of plan -->)", re.DOTALL)


def found(tick):
    return shown(render_report, json.loads(pass_report(tick)))


def test_the_page_has_the_real_output() -> None:
    page, tick = PAGE.read_text(), example(dry_run=True)
    command = "$ dynsched plan --prom http://localhost:9090 -r rules.yaml"
    patches = shown(render_patches, tick.planned)
    lines = (command, *found(tick), *patches, next_step(Path("rules.yaml")))
    printed = "".join(f"{line}\n" for line in lines)
    fresh = PLAN.sub(lambda found: f"{found[1]}{printed}{found[2]}", page)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(fresh)
        return
    assert page == fresh, "UPDATE_DOCS=1 pytest tests/cli/test_plan_report.py writes the page anew"


def test_with_the_operator_less_than_the_lowest_value_is_the_worst() -> None:
    rules = {"rules": [{"name": "free", "expr": "free", "op": "<", "threshold": 10, "for": "1m"}]}
    tick = Scene(rules, map(Node, "abcd")).tick(NOON, free={"a": 15.0, "b": 2.0, "c": 9.0})
    assert [line.split()[0] for line in found(tick)[2:6]] == ["b", "c", "a", "d"]


def test_the_worst_nodes_or_all_are_shown() -> None:
    report = json.loads(pass_report(many(30)))
    for every, rows in ((False, 20), (True, 30)):
        lines = shown(partial(render_report, every=every), report)
        names = {node["name"] for node in report["nodes"]}
        assert sum(line.split()[0] in names for line in lines) == rows
        assert any("20 of 30" in line for line in lines) is not every


def test_a_pass_reports_what_it_does_not_know() -> None:
    blind = Scene(EXAMPLE_RULES, map(Node, "abc"))
    tick = blind.tick(NOON, node_cpu={"a": 1.0, "x": 1.0, "y": 1.0}, node_mem_usage={})
    cpu, memory = tick.rules
    rules = (replace(cpu, warnings=("a store is away",)), replace(memory, past_error="HTTP 422"))
    doubtful = Scene({"rules": [{"name": "cpu", "expr": "x > 80", "threshold": 80}]}, [Node("a")])
    ticks = {
        "no series, and no node": tick,
        "a part of the answer, and no history": replace(tick, rules=rules),
        "a warning": doubtful.tick(NOON, cpu={"a": 91.0}, dry_run=True),
    }
    compare("plan", ((title, found(each)) for title, each in ticks.items()))


def test_the_json_has_everything() -> None:
    tick = example(dry_run=True)
    report = json.loads(pass_report(tick))
    assert (report["ok"], report["errors"], report["warnings"]) == (True, [], [])
    patches = [(patch["node"], patch["action"]) for patch in report["patches"]]
    assert patches == [("worker-2", "mark"), ("worker-5", "mark")]
    assert report["patches"][0]["reason"] == "node-cpu 91.25 > 80"
    assert report["patches"][0]["body"]["metadata"]["labels"] == {"status": "presure"}
    assert report["rules"] == json.loads(json.dumps(rules_answer(tick)["rules"]))
    assert report.items() >= nodes_payload(tick).items()
    (unmatched,) = report["unmatched_samples"]
    assert (unmatched["rule"], unmatched["value"]) == ("node-cpu", "10.0.9.9:9100")


def answered(**answers):
    rules = {"rules": [{"name": name, "expr": name, "threshold": 80} for name in "abc"]}
    return Scene(rules, [Node("n")]).tick(NOON, dry_run=True, **answers)


def test_a_failed_query_makes_a_pass_incomplete() -> None:
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


def test_a_warning_names_the_label_that_has_the_node() -> None:
    """Scraped without honor_labels through a program on w2, so w2 would get the load of w1."""
    rules = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}
    sample = Sample({"node": "w2", "exported_node": "w1"}, 95.0, NOON)
    tick = Scene(rules, map(Node, ("w1", "w2"))).tick(NOON, cpu=[sample], writes=False)
    (warning,) = json.loads(pass_report(tick))["warnings"]
    assert "set node_label: exported_node" in warning


def test_nodes_without_a_value_are_counted_even_if_their_rows_are_hidden() -> None:
    names = [f"n{number:02}" for number in range(50)]
    tick = Scene({"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}, map(Node, names)).tick(
        NOON, cpu=dict.fromkeys(names[:40], 20.0)
    )
    assert "for 10 nodes: n40, n41" in "\n".join(found(tick))


def test_the_next_step_checks_the_same_rules() -> None:
    by_file = {"rules.yaml": "", shipped.PATH: "", "my rules.yaml": " -r 'my rules.yaml'"}
    for rules, flag in by_file.items():
        assert next_step(Path(rules)).startswith(f"Next: `dynsched doctor{flag}` shows ")
