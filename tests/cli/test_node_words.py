"""What people are told of expected load: `nodes`, `why`, `plan` and `run --once`."""

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
from command_line import shown
from expected_scene import CPU, MEMORY, expected_example, expected_scene, known_pods
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


def test_both_values_are_told_where_a_rule_goes_by_the_expected_load() -> None:
    head, _, *rows, _ = (" ".join(line.split()) for line in nodes(expected_example()))
    assert head == "2 of 4 nodes marked (label status=presure), at 2026-11-20T12:00:00Z"
    assert rows == [
        "worker-1 yes 0s node-cpu 61, expected 64.9 firing, node-mem 30",
        "worker-4 yes 0s node-cpu 82 firing, node-mem 30",
        "worker-2 - - node-cpu 44, node-mem 30",
    ]
    assert why(expected_example(), "worker-1") == [
        (
            "worker-1 is marked (label status=presure): node-cpu has been firing since "
            "2026-11-20T12:00:00Z."
        ),
        "RULE      STATE     VALUE              THRESHOLD  CLEARS AT  SINCE  SAMPLE",
        "node-cpu  firing    61, expected 64.9  > 64       <= 58      0s     4s ago",
        "node-mem  inactive  30                 > 85       <= 85      0s     4s ago",
        "Expected load, in points (100 is full):",
        (
            "- node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, "
            "64.9 expected"
        ),
        "To clear:",
        "- node-cpu must fall to 58 or below (is 64.9)",
    ]


def test_a_node_of_which_nothing_is_known() -> None:
    snapshot = expected_scene().tick(NOON, node_cpu={}, node_mem={}, pods=known_pods())
    assert "node-cpu and node-mem have no value" in why(snapshot, "worker-1")[0]
    assert nodes(snapshot)[2].endswith("nothing is known")


def test_one_pass_watches_no_pods_and_says_so(monkeypatch, capsys) -> None:
    snapshot = expected_scene().tick(NOON, node_cpu=CPU, node_mem=MEMORY, dry_run=True)
    told = plan(snapshot)
    assert told[0].startswith("2 rules on 4 nodes, of which 0 are marked")
    unwatched = single_pass.WITHOUT_PODS.format("rule node-cpu")
    assert told[-1] == unwatched
    once = replace(expected_example(dry_run=True), planned=())
    monkeypatch.setattr(passes, "run_once", lambda _: once)
    single_pass.once(SimpleNamespace(dry_run=True))
    output = capsys.readouterr()
    assert output.err == f"{unwatched}\n"
    assert "Nothing to change." in output.out
    assert "expected" not in "\n".join(plan(example(dry_run=True)))
