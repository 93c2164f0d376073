"""`dynsched backtest` as a person calls it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from backtest_support import Call
from builders import rule
from cluster import SimCluster
from fake_prometheus import FakePrometheus

from dynsched.sim.nodes import make_node

HOUR = ("--since", "1h", "--step", "30s")
SERIES = ("--nodes-from-series", *HOUR)
RULE_KEYS = {"rule", "marks", "flaps", "node_time_marked", "coverage"}


def rules(*given: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"guard": {"max_marked": "100%"}, "rules": list(given), **sections}


CPU = rule("cpu", expr="cpu")


def one_hot_node(prometheus: FakePrometheus) -> None:
    """Of two nodes ``a`` is hot for 10 minutes, then cool for 5, then hot until now."""
    prometheus.set(7200, cpu={"a": 10, "b": 20})
    prometheus.set(1500, cpu={"a": 90, "b": 20})
    prometheus.set(900, cpu={"a": 10, "b": 20})
    prometheus.set(600, cpu={"a": 95, "b": 20})


async def test_marks_flaps_and_shares_of_an_hour_are_counted(
    call: Call, prometheus: FakePrometheus
) -> None:
    one_hot_node(prometheus)
    code, out, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "json")
    report = json.loads(out)
    assert code == 0
    (cpu,) = report["rules"]
    assert cpu.keys() >= RULE_KEYS
    assert (cpu["marks"], cpu["flaps"], cpu["coverage"]) == (2, 1, 1.0)
    assert cpu["node_time_marked"] == pytest.approx(20 / 120, abs=0.01)
    assert cpu["longest_mark_seconds"] == pytest.approx(600, abs=60)
    assert report["regret"] is None
    assert report["suggested"] is None
    assert [node["node"] for node in report["nodes"]] == ["a", "b"]
    assert report["total"]["writes"] == 3


async def test_the_table_is_for_a_person(call: Call, prometheus: FakePrometheus) -> None:
    one_hot_node(prometheus)
    code, out, err = await call(prometheus.url, rules(CPU), *SERIES)
    assert code == 0
    assert "2 nodes by their series" in out
    assert re.search(r"^cpu +> 80 ", out, re.MULTILINE)
    assert re.search(r"^a +2 +33\.\d % +100\.0 % ", out, re.MULTILINE)
    assert "█" in out
    assert "120 steps of 30s" in err or "121 steps of 30s" in err


async def test_markdown_and_html_say_the_same(call: Call, prometheus: FakePrometheus) -> None:
    one_hot_node(prometheus)
    _, markdown, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "markdown")
    _, page, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "html")
    assert "| cpu | \\> 80 |" in markdown
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 1
    assert "a: marked 100 % of this time" in page
    for of_the_network in ("<script", "<link", "src=", "url(", "@import"):
        assert of_the_network not in page


async def test_a_name_from_the_metrics_cannot_be_markup(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"<b>|`x": 90})
    _, page, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "html")
    assert "<b>|" not in page
    _, markdown, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "markdown")
    assert "| \\<b\\>\\|\\`x |" in markdown


async def test_early_marks_are_told_apart(call: Call, prometheus: FakePrometheus) -> None:
    prometheus.set(7200, cpu={"a": 60, "b": 20})
    code, out, _ = await call(
        prometheus.url, rules(rule("cpu", expr="cpu", early={})), *SERIES, "-o", "json"
    )
    report = json.loads(out)
    assert code == 0
    by_name = {one["rule"]: one for one in report["rules"]}
    assert (by_name["cpu"]["early"], by_name["cpu-early"]["early"]) == (False, True)
    assert (by_name["cpu"]["marks"], by_name["cpu-early"]["marks"]) == (0, 1)
    assert (report["total"]["hot"]["marks"], report["total"]["early"]["marks"]) == (0, 1)


async def test_nodes_of_the_cluster_bring_their_pools_and_eligibility(
    call: Call, prometheus: FakePrometheus, sim: SimCluster
) -> None:
    for number, name in enumerate("abc"):
        await sim.create_node(make_node(name, number))
    ignored = make_node("d", 3)
    ignored["metadata"]["labels"]["dynsched.io/ignore"] = "true"
    await sim.create_node(ignored)
    prometheus.set(7200, cpu={"a": 90, "b": 20, "d": 99, "gone": 99})
    told = {**rules(CPU), "stale_after": "2h"}
    code, out, _ = await call(
        prometheus.url, told, "--kubeconfig", str(sim.kubeconfig), *HOUR, "-o", "json"
    )
    report = json.loads(out)
    assert code == 0
    assert report["nodes_from"] == "cluster"
    (pool,) = report["pools"]
    assert (pool["nodes"], pool["eligible"]) == (4, 3)
    marked = {node["node"]: node["marks"] for node in report["nodes"]}
    # The nodes have just been made: of the time before that nothing counts.
    assert marked["d"] == 0
    assert any("no node now has the name or address gone" in note for note in report["notes"])


async def test_without_a_cluster_the_error_names_the_way_that_needs_none(
    call: Call, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    missing = str(tmp_path / "none")
    code, _, err = await call(prometheus.url, rules(CPU), "--kubeconfig", missing, *HOUR)
    assert code == 1
    assert "--nodes-from-series" in err
    assert missing in err
    assert "Traceback" not in err


async def test_two_rules_files_side_by_side(
    call: Call, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    one_hot_node(prometheus)
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(rules(rule("cpu", expr="cpu", keep_firing_for="10m"))))
    code, out, _ = await call(
        prometheus.url, rules(CPU), *SERIES, "--compare", str(other), "-o", "json"
    )
    report = json.loads(out)
    assert code == 0
    assert [report[side]["rules"][0]["marks"] for side in ("before", "after")] == [2, 1]
    assert [report[side]["regret"] for side in ("before", "after")] == [None, None]
    (changed,) = report["difference"]
    assert changed["node"] == "a"
    assert changed["difference"] > 0
    # The expression is the same: its history is asked for once (in two parts at some times of day).
    _, alone, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "json")
    assert report["queries"] == json.loads(alone)["queries"]
    _, table, _ = await call(prometheus.url, rules(CPU), *SERIES, "--compare", str(other))
    assert "Before and after" in table
    assert "1 node of 2 differ" in table


async def test_no_history_is_a_result(call: Call, prometheus: FakePrometheus) -> None:
    prometheus.set(7200, cpu={"a": 90})
    two = rules(CPU, rule("mem", expr="mem"))
    code, out, _ = await call(prometheus.url, two, *SERIES, "-o", "json")
    report = json.loads(out)
    assert code == 0
    by_name = {one["rule"]: one for one in report["rules"]}
    assert by_name["mem"]["coverage"] == 0
    assert by_name["mem"]["marks"] is None
    assert by_name["mem"]["node_time_marked"] is None
    _, table, _ = await call(prometheus.url, two, *SERIES)
    assert "Rule mem: not enough data" in table


async def test_a_history_that_is_shorter_than_the_window_is_told_first_and_divides_alike(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(1740, cpu={"a": 90})
    week = ("--nodes-from-series", "--since", "7d", "--step", "60s")
    _, out, _ = await call(prometheus.url, rules(CPU), *week, "--suggest", "-o", "json")
    report = json.loads(out)
    assert re.match(r"Not enough history: (28|29|30)m, ", report["notes"][0])
    (cpu,), total = report["rules"], report["total"]
    assert (cpu["marks"], total["writes"], cpu["enough_data"]) == (1, 1, False)
    # One node with one mark that is one write: so many marks a node and day, so many writes a day.
    assert total["writes_per_day"] == pytest.approx(cpu["marks_per_node_day"], abs=0.01)
    tried = next(one for one in report["suggested"]["rules"][0]["points"] if one["marks"] == 1)
    assert tried["writes_per_day"] == total["writes_per_day"]
    _, table, _ = await call(prometheus.url, rules(CPU), *week)
    assert "Rule cpu: not enough data: there are nodes in less than half of the time." in table


async def test_nodes_that_are_newer_than_the_history_are_the_reason_for_no_coverage(
    call: Call, prometheus: FakePrometheus, sim: SimCluster
) -> None:
    prometheus.set(7200, cpu={"a": 90})
    await sim.create_node(make_node("a", 0))
    past = ("--until", str(time.time() - 1800), "--since", "1h", "--step", "30s")
    told = ("--kubeconfig", str(sim.kubeconfig), *past, "-o", "json")
    _, out, _ = await call(prometheus.url, rules(CPU), *told)
    report = json.loads(out)
    assert report["rules"][0]["coverage"] == 0
    assert report["notes"][0].startswith("All nodes are newer than the history")
    assert "--nodes-from-series" in report["notes"][0]


async def test_nothing_at_all_is_a_result_too(call: Call, prometheus: FakePrometheus) -> None:
    for output in ("json", "table", "html", "markdown"):
        code, out, err = await call(prometheus.url, rules(CPU), *SERIES, "-o", output)
        assert code == 0, err
        assert "cpu" in out


async def test_a_server_that_refuses_range_queries_is_one_clear_line(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"a": 90})
    prometheus.failing["cpu"] = 403
    code, _, err = await call(prometheus.url, rules(CPU), *SERIES)
    assert code == 1
    assert "HTTP 403" in err
    assert "no part of the history could be had" in err


async def test_one_rule_that_fails_leaves_the_others(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"a": 90}, mem={"a": 90})
    prometheus.failing["mem"] = 422
    two = rules(CPU, rule("mem", expr="mem"))
    code, out, err = await call(prometheus.url, two, *SERIES, "-o", "json")
    report = json.loads(out)
    assert code == 0
    by_name = {one["rule"]: one for one in report["rules"]}
    assert (by_name["cpu"]["coverage"], by_name["mem"]["coverage"]) == (1.0, 0.0)
    assert any("Rule mem: no data from" in note and "422" in note for note in report["notes"])
    assert "--cache" in err


async def test_partial_answers_are_told(call: Call, prometheus: FakePrometheus) -> None:
    prometheus.set(7200, cpu={"a": 90})
    prometheus.warnings = ["store 3 unavailable"]
    code, out, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "json")
    assert code == 0
    (note,) = json.loads(out)["notes"]
    assert "partial answers from" in note
    assert "store 3 unavailable" in note


async def test_the_end_is_by_the_clock_of_prometheus(
    call: Call, prometheus: FakePrometheus
) -> None:
    behind = (time.time() - 86_400) // 10_000 * 10_000  # the fake writes six digits
    prometheus.set(110_000, cpu={"a": 90}, **{"vector(time())": {"x": behind}})
    code, out, _ = await call(prometheus.url, rules(CPU), *SERIES, "-o", "json")
    report = json.loads(out)
    assert code == 0
    until = time.strftime("%Y-%m-%dT%H", time.gmtime(behind))
    assert report["until"].startswith(until)
    assert report["rules"][0]["coverage"] == 1.0


async def test_the_step_grows_before_the_budget_is_spent(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(
        7200, cpu={f"n{number}": 50 for number in range(20)}, **{"count(cpu)": {"x": 20}}
    )
    code, out, _ = await call(prometheus.url, rules(CPU), *SERIES, "--budget", "1000", "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert report["samples"] <= 1000
    assert (report["wanted_step_seconds"], report["step_seconds"]) == (30, 90)
    assert any("--budget" in note for note in report["notes"])


async def test_a_rule_of_metrics_server_is_said_to_have_no_past(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"a": 90})
    other = {"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 80}
    code, out, _ = await call(prometheus.url, rules(CPU, other), *SERIES, "-o", "json")
    assert code == 0
    assert "Rule m: source metrics-server keeps no history" in json.loads(out)["notes"][0]
    code, _, err = await call(prometheus.url, rules(other), *SERIES)
    assert code == 1
    assert "no history to replay" in err


async def test_a_kept_history_is_not_asked_for_again(
    call: Call, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    prometheus.set(7200, cpu={"a": 90})
    until = f"{time.time() - 60:.0f}"
    more = (*SERIES, "--until", until, "--cache", str(tmp_path / "kept"), "-o", "json")
    _, first, _ = await call(prometheus.url, rules(CPU), *more)
    prometheus.failing["cpu"] = 503
    code, second, _ = await call(prometheus.url, rules(CPU), *more)
    assert code == 0
    assert json.loads(second)["queries"] == 0
    assert json.loads(second)["rules"] == json.loads(first)["rules"]


@pytest.mark.parametrize("bad", [("--until", "noon"), ("--since", "x"), ("--step", "0")])
async def test_bad_options_are_usage_errors(
    call: Call, prometheus: FakePrometheus, bad: tuple[str, str]
) -> None:
    code, _, err = await call(prometheus.url, rules(CPU), "--nodes-from-series", *bad)
    assert code == 2
    assert bad[0] in err


async def test_a_shadow_rule_marks_nothing_and_is_told_apart(
    call: Call, prometheus: FakePrometheus
) -> None:
    one_hot_node(prometheus)
    trial = rule("trial", expr="cpu", threshold=15, shadow=True)
    code, out, _ = await call(prometheus.url, rules(CPU, trial), *SERIES, "-o", "json")
    report = json.loads(out)
    assert code == 0
    found = {one["rule"]: one for one in report["rules"]}
    assert (found["cpu"]["shadow"], found["trial"]["shadow"]) == (False, True)
    assert found["trial"]["node_time_marked"] > 0.5  # b all the time: when it would have marked
    assert {node["node"]: node["marks"] for node in report["nodes"]} == {"a": 2, "b": 0}
    _, table, _ = await call(prometheus.url, rules(CPU, trial), *SERIES)
    assert "trial (shadow)" in table


async def test_a_rule_with_a_selector_is_measured_by_the_nodes_that_it_selects(
    call: Call, prometheus: FakePrometheus, sim: SimCluster
) -> None:
    for number, name in enumerate("ab"):
        node = make_node(name, number)
        node["metadata"]["labels"]["kind"] = name
        await sim.create_node(node)
    prometheus.set(7200, cpu={"a": 90, "b": 90})
    only = rules(rule("cpu", expr="cpu", selector="kind=a"))
    ahead = str(time.time() + 30)  # the nodes have just been made
    code, out, err = await call(
        *(prometheus.url, only, "--kubeconfig", str(sim.kubeconfig), "--until", ahead),
        *("--since", "60s", "--step", "10s", "-o", "json"),
    )
    assert code == 0, err
    report = json.loads(out)
    (cpu,) = report["rules"]
    assert cpu["coverage"] == 1.0
    assert {node["node"]: node["marks"] for node in report["nodes"]} == {"a": 1, "b": 0}
