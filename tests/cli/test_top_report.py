"""`dynsched top`: one overview of a cluster, as a table and as JSON."""

import os
import re
from dataclasses import replace
from functools import partial

import yaml
from command_line import compare, shown
from programs import ROOT
from scenes import NOON, Scene

from dynsched.cli.overview_table import render, report
from dynsched.controller.overview import Overview
from dynsched.core.nodes import Node
from dynsched.kube.inspection import PodTotals
from dynsched.rules import shipped
from dynsched.rules.rule_set import Rule

PAGES = [ROOT / name for name in ("README.md", "README.zh-CN.md")]
EXAMPLE = re.compile(r"(?<=```console\n)\$ dynsched top\n.*?(?=```)", re.DOTALL)
CPU = {"worker-1": 23.0, "worker-2": 91.0, "worker-3": 48.0, "worker-4": 20.0, "worker-5": 35.0}
MEMORY = {"worker-1": 41.0, "worker-2": 63.0, "worker-3": 71.0, "worker-4": 35.0, "worker-5": 50.0}
GIB = 2.0**30
RULES = yaml.safe_load(shipped.PATH.read_text()) | {"order": {"score": {shipped.CPU: 1}}}
PODS = {
    "worker-1": PodTotals(31, 6.6, 20 * GIB, 9.4, 30 * GIB),
    "worker-2": PodTotals(22, 3.2, 14 * GIB, 12.0, 26 * GIB),
    "worker-3": PodTotals(27, 5.1, 24 * GIB, 8.4, 33 * GIB),
    "worker-4": PodTotals(36, 7.9, 22 * GIB, 11.0, 28 * GIB),
}
FOUND = "Prometheus found: http://prometheus-k8s.monitoring.svc:9090, asked through the API server"


def overview(**more: object) -> Overview:
    """worker-2 is hot, worker-4 is full of requests, worker-5 is tainted and has no pods."""
    cores = {"cpu": 8.0, "memory": 32 * GIB, "pods": 110.0}
    nodes = [Node(name, allocatable=cores) for name in CPU]
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    nodes[-1] = replace(nodes[-1], taints=(taint,))
    scene = Scene(RULES, nodes)
    for seconds in (0, 60):
        tick = scene.tick(NOON + seconds, node_cpu=CPU, node_mem_usage=MEMORY)
    found = Overview("production (https://10.0.0.1:6443)", tick, FOUND, PODS, [])
    return replace(found, **more)


def lines(found: Overview) -> list[str]:
    return shown(render, report(found))


def unmeasured() -> Overview:
    scene = Scene(RULES, overview().tick.evaluation.table.nodes.values())
    tick = scene.tick(NOON, node_cpu="failed", node_mem_usage="failed")
    notes = ["No Service has the labels of a known Prometheus"]
    return overview(tick=tick, source=None, notes=notes)


def test_tables_equal_the_golden_file() -> None:
    nobody = ["Requests, limits and pods are not known: you may not list pods"]
    compare(
        "top",
        [
            ("with Prometheus", lines(overview())),
            ("requests alone", lines(unmeasured())),
            ("nodes alone", lines(replace(unmeasured(), pods=None, notes=nobody))),
        ],
    )


def test_a_wide_terminal_shows_bars() -> None:
    wide = {"force_terminal": True, "color_system": None}
    for width, bars in ((140, ["█" * 9, "█" * 6]), (120, [])):
        (row,) = (
            line
            for line in shown(render, report(overview()), width=width, **wide)
            if line.startswith("worker-2")
        )
        assert re.findall("█+", row) == bars


def test_the_pages_have_the_real_output() -> None:
    printed = "".join(f"{line}\n" for line in ("$ dynsched top", *lines(overview())))
    for page in PAGES:
        text = page.read_text()
        fresh = EXAMPLE.sub(printed, text)
        if os.environ.get("UPDATE_DOCS"):
            page.write_text(fresh)
        assert EXAMPLE.search(text), page
        assert page.read_text() == fresh, "UPDATE_DOCS=1 pytest tests/cli/test_top_report.py"


def test_totals_are_weighted_by_the_size_of_the_measured_nodes() -> None:
    totals = report(overview())["totals"]
    assert totals["cpu"]["used_percent"] == sum(CPU.values()) / 5
    assert totals["cpu"]["requests"] == 6.6 + 3.2 + 5.1 + 7.9
    assert totals["pods"] == {"allocatable": 550.0, "count": 116}
    nothing = report(unmeasured())["totals"]
    assert (nothing["hot"], nothing["cpu"]["used_percent"]) == (None, None)


def test_the_worst_nodes_or_all_are_shown() -> None:
    values = {f"n{number:02}": float(number) for number in range(30)}
    tick = Scene(RULES, map(Node, values)).tick(NOON, node_cpu=values, node_mem_usage=values)
    found = report(overview(tick=tick))
    for every, count in ((False, 20), (True, 30)):
        rows = [line for line in shown(partial(render, every=every), found) if line[0] == "n"]
        assert (len(rows), rows[0].split()[0]) == (count, "n29")


def test_the_warmest_of_very_many_nodes_come_last() -> None:
    """The order lists the 1,024 coolest nodes."""
    values = {f"n{number:04}": 30 + number / 40 for number in range(1100)}
    tick = Scene(RULES, map(Node, values)).tick(NOON, node_cpu=values, node_mem_usage=values)
    places = {node["name"]: node["new_pods"] for node in report(overview(tick=tick))["nodes"]}
    assert (places["n0000"]["rank"], places["n1099"]) == (1, {"why_not": "last"})
    assert sum("rank" in place for place in places.values()) == 1024


def test_a_single_node_below_the_line_has_no_equals() -> None:
    order = {"score": {shipped.CPU: 1}, "equal_below": 25}
    for cool, wanted in (({"a": 20.0}, ["1", "2"]), ({"a": 20.0, "c": 21.0}, ["1 =", "1 =", "3"])):
        values = {**cool, "b": 60.0}
        labels = [Node(name, labels={"kubernetes.io/hostname": name}) for name in values]
        scene = Scene(RULES | {"order": order}, labels)
        tick = scene.tick(NOON, node_cpu=values, node_mem_usage=values)
        rows = [line for line in lines(overview(tick=tick)) if line[:2] in ("a ", "b ", "c ")]
        assert sorted(row.partition("0/0")[2].strip() for row in rows) == wanted


def test_an_empty_cluster_has_no_nodes() -> None:
    tick = Scene(RULES, []).tick(NOON, node_cpu={}, node_mem_usage={})
    assert lines(overview(tick=tick, source=None, pods={}))[0].startswith("0 nodes")


def test_with_metrics_server_the_thresholds_are_the_same_and_for_is_zero() -> None:
    by_both = [
        shipped.shipped_rules(by_metrics_server=each).rule_set.rules for each in (False, True)
    ]
    for ours, theirs in zip(*by_both, strict=True):
        assert _thresholds(ours) == _thresholds(theirs)
        assert (theirs.source, theirs.hold_duration) == ("metrics-server", 0)


def _thresholds(rule: Rule) -> tuple[str, float, float]:
    return rule.name, rule.threshold, rule.clear_threshold
