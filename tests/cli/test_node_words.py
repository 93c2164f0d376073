"""What people are told of early marks: `nodes`, `why`, `plan` and `run --once`."""

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
from command_line import shown
from early_scene import CPU, EARLY_RULES, MEMORY, early_example, early_scene, known_pods
from snapshots import NOON, example, nodes_payload

from dynsched.api.nodes import node_detail
from dynsched.cli import single_pass
from dynsched.cli.node_tables import render_nodes, render_why
from dynsched.cli.single_pass import pass_report, render_findings
from dynsched.controller import single_pass as passes


def why(snapshot, name):
    return shown(render_why, json.loads(msgspec.json.encode(node_detail(snapshot, name))))


def nodes(snapshot):
    return shown(render_nodes, nodes_payload(snapshot))


def plan(snapshot):
    return shown(render_findings, json.loads(pass_report(snapshot)))


def test_nodes_tells_early_marks_from_hot_nodes_and_expected_from_measured_load() -> None:
    head, _, *rows, _ = (" ".join(line.split()) for line in nodes(early_example()))
    assert head == (
        "2 of 4 nodes marked (label status=presure), 1 of them early, at 2026-11-20T12:00:00Z"
    )
    assert rows[0].startswith("worker-4 yes ")
    early = "node-cpu 61 (expected 64.9 points), node-mem 30, node-cpu-early 5.675 firing"
    assert rows[1:] == [f"worker-1 early 0s {early}", "worker-2 - - node-cpu 44, node-mem 30"]
    assert "arly" not in "\n".join(plan(example(dry_run=True)))


def test_why_of_an_early_mark_and_of_a_hot_node_whatever_its_expected_load_says() -> None:
    assert why(early_example(), "worker-1") == [
        f"worker-1 is marked early (label status=presure): its expected load is 5.7 points {LINE}.",
        "RULE            STATE     VALUE  THRESHOLD  CLEARS AT  SINCE  SAMPLE",
        "node-cpu        inactive  61     > 80       <= 80      0s     4s ago",
        "node-mem        inactive  30     > 85       <= 85      0s     4s ago",
        "node-cpu-early  firing    5.675  > 2        <= -6      0s     4s ago",
        "Expected load, in points (100 is full):",
        (
            "- node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, "
            "64.9 expected"
        ),
        "To clear:",
        (
            "- the expected load by node-cpu must fall to 6 points below its early line or less; "
            "it is 5.7 points above its early line"
        ),
    ]
    head, *rest = why(early_example(), "worker-4")
    fires = "node-cpu has been firing since 2026-11-20T12:00:00Z."
    assert head == f"worker-4 is marked (label status=presure): {fires}"
    assert "- node-cpu: 82.0 measured, 82.0 expected" in rest


LINE = "above its early line (marked above 2, released at -6)"


def test_an_early_mark_is_explained_in_its_dead_band_and_without_a_value() -> None:
    told = []
    for cpu, memory in ((CPU | {"worker-1": 56.0}, MEMORY), ("refused", "refused")):
        scene = early_scene()
        scene.tick(NOON, node_cpu=CPU, node_mem=MEMORY, pods=known_pods())
        pods = known_pods(recent=()) if memory is MEMORY else known_pods()
        snapshot = scene.tick(NOON + 10, node_cpu=cpu, node_mem=memory, pods=pods)
        told.append(why(snapshot, "worker-1"))
    below = LINE.replace("above its", "below its", 1)
    assert told[0][0].endswith(f"its expected load is 1 point {below}.")
    unknown = "its expected load is not known now, and was last 5.7 points above its early line"
    assert unknown in told[1][0]
    assert told[1][-1] == (
        "- node-cpu needs a good sample by which the expected load is 6 points below its early "
        "line (no current value: the query failed), or no good sample for 4m50s more"
    )


def test_an_early_mark_that_is_not_made_says_why() -> None:
    rules = {**EARLY_RULES, "guard": {"max_marked": 2}}
    memory = MEMORY | {"worker-3": 90.0}  # two nodes are hot
    snapshot = early_scene(rules=rules).tick(NOON, node_cpu=CPU, node_mem=memory, pods=known_pods())
    assert why(snapshot, "worker-1")[0] == (
        "worker-1 is not marked: guard.max_marked is 2. It is to be marked early: its expected "
        f"load is 5.7 points {LINE}."
    )


def test_after_a_restart_an_early_mark_that_was_found_is_not_yet_explained_by_a_value() -> None:
    scene = early_scene()
    scene.tick(NOON, node_cpu=CPU, node_mem=MEMORY, pods=known_pods())
    again = early_scene()
    again.nodes = scene.nodes
    snapshot = again.tick(NOON + 10, node_cpu={}, node_mem={}, pods=known_pods())
    assert "worker-1 is marked early" in why(snapshot, "worker-1")[0]
    assert "its expected load is not known yet" in why(snapshot, "worker-1")[0]


def test_by_several_rules_each_is_named() -> None:
    mem = {"name": "node-mem", "expr": "mem", "threshold": 85, "early": {"above_mean": 2}}
    rules = {"rules": [EARLY_RULES["rules"][0], mem]}
    hot = MEMORY | {"worker-1": 60.0}
    snapshot = early_scene(rules=rules).tick(NOON, node_cpu=CPU, node_mem=hot, pods=known_pods())
    head = why(snapshot, "worker-1")[0]
    assert "its expected load by node-cpu is 5.7 points above" in head
    assert "; its expected load by node-mem is 19 points above" in head


def test_a_rule_of_early_marks_is_no_knowledge_of_its_own() -> None:
    snapshot = early_scene().tick(NOON, node_cpu={}, node_mem={}, pods=known_pods())
    assert why(snapshot, "worker-1")[0] == (
        "worker-1 is not marked: nothing is known of it: node-cpu and node-mem have no value "
        "for it (the query's answer does not name this node)."
    )
    assert nodes(snapshot)[2].endswith("nothing is known")


UNWATCHED = (
    "Early marks by rule node-cpu: one pass watches no pods, so the expected load is the "
    "measured one"
)


def test_plan_tells_early_marks_and_that_no_pods_are_watched(monkeypatch, capsys) -> None:
    cpu = CPU | {"worker-1": 66.0}
    snapshot = early_scene().tick(NOON, node_cpu=cpu, node_mem=MEMORY, dry_run=True)
    told = plan(snapshot)
    assert told[0].startswith("2 rules on 4 nodes, of which 0 are marked")
    assert not any("node-cpu-early" in line for line in told)
    early = f"- worker-1: its expected load is 6.5 points {LINE}"
    assert told[-3:] == ["Early, and not hot: 1 node", early, UNWATCHED]
    reasons = {patch.node: patch.reason for patch in snapshot.planned}
    assert reasons["worker-1"] == "node-cpu is expected 6.5 points above its early line (> 2)"
    once = replace(early_example(dry_run=True), planned=())
    monkeypatch.setattr(passes, "run_once", lambda _: once)
    single_pass.once(SimpleNamespace(dry_run=True))
    output = capsys.readouterr()
    assert output.err == f"{UNWATCHED}\n"
    assert "Nothing to change." in output.out
