"""Tables for people: what they say, and that nothing is cut off where no terminal is."""

import json
from dataclasses import replace

import msgspec
from command_line import shown
from snapshots import EXAMPLE_RULES, NOON, Scene, example, many, nodes_payload

from dynsched.api.nodes import node_detail
from dynsched.cli.node_tables import render_nodes, render_patches, render_why
from dynsched.cli.order import render_order
from dynsched.engine.alerting.plan import plan_prune
from dynsched.engine.model import Action, Node, NodePatch, WriteFailure
from dynsched.rules.file import parse_rules

CONTROL_PLANE = "it is a control-plane node (label node-role.kubernetes.io/control-plane)"
MARK = EXAMPLE_RULES | {"mark": {"taint": "dynsched.io/pressure=true:PreferNoSchedule"}}


def node_payload(snapshot, name):
    return json.loads(msgspec.json.encode(node_detail(snapshot, name)))


def test_nodes_as_a_plain_table() -> None:
    assert shown(render_nodes, nodes_payload(example())) == [
        "2 of 8 nodes marked (label status=presure), at 2026-11-20T12:02:00Z",
        "NODE             MARKED  SINCE  RULES                                       NOTE",
        "worker-2         yes     1m     node-cpu 91.25 firing, node-mem-usage 42",
        "worker-3         yes     1m     node-cpu 66 firing, node-mem-usage 42",
        (
            "worker-4         -       1m     node-cpu 90 firing, node-mem-usage 42       "
            "conflict: label status=maintenance was set by somebody else"
        ),
        (
            "worker-5         -       30s    node-cpu 83.5 firing, node-mem-usage 42     "
            "not marked: guard.max_marked is 2"
        ),
        (
            "control-plane-1  -       -      node-cpu 31.5, node-mem-usage 42            "
            f"not eligible: {CONTROL_PLANE}"
        ),
        "worker-1         -       -      node-cpu 31.5, node-mem-usage 42",
        "worker-6         -       -      node-cpu 81 pending, node-mem-usage 42",
        "worker-7         -       -      node-cpu 31.5 (missing), node-mem-usage 42",
    ]


def test_the_headline() -> None:
    snapshot = example()
    taint = {"label": None, "taint": MARK["mark"]["taint"]}
    tainted = Scene(EXAMPLE_RULES | {"mark": taint}, [Node("a")])
    unmarked = Scene(EXAMPLE_RULES | {"mark": "none"}, [Node("a")])
    two, one = (
        nodes_payload(snapshot, [snapshot.nodes[name] for name in names]) | {"num": len(names)}
        for names in (("worker-2", "worker-3"), ("worker-2",))  # where marked ones were asked for
    )
    for payload, headline in (
        (nodes_payload(example(dry_run=True), views=()),
         "0 nodes marked (label status=presure), at 2026-11-20T12:02:00Z, dry run"),
        (two, "2 nodes marked (label status=presure), at "),
        (one, "1 node marked (label status=presure), at "),
        (nodes_payload(tainted.tick(NOON, node_cpu={}, node_mem_usage={})),
         "0 of 1 node marked (taint dynsched.io/pressure=true:PreferNoSchedule), at "),
        (nodes_payload(unmarked.tick(NOON, node_cpu={}, node_mem_usage={})),
         "0 of 1 node hot (mark: none), at "),
    ):  # fmt: skip
        assert shown(render_nodes, payload)[0].startswith(headline)
    assert len(shown(render_nodes, nodes_payload(snapshot, views=()))) == 1
    refused = replace(snapshot, rules_error="rules.yaml:3:5: no\nrules.yaml:4:5: no")
    assert shown(render_nodes, nodes_payload(refused))[1:3] == [
        "The rules file is refused; what was in force before stays in force: rules.yaml:3:5: no",
        "rules.yaml:4:5: no",
    ]


def test_the_order_is_shown_by_rank_and_what_is_wrong_with_it() -> None:
    node = {"node": "a", "rank": 1, "list": 1, "weight": 100, "load": 12.0}
    pools = [{"pool": "", "lists": 1, "nodes": [node, {**node, "node": "b", "load": None}]}]
    told = {"written_at": "W", "until": "U", "error": None, "leading": True, "dry_run": False}
    told |= {"leader": None, "counts": {"ranked": 1, "unknown": 1, "hot": 0}, "pools": pools}
    head, nodes, _, *rows = shown(render_order, told)
    assert head == "The order was written at W, in force until U."
    assert nodes == "Nodes: 1 ranked, 1 unknown."
    assert [row.split() for row in rows] == [
        ["-", "1", "a", "12.0", "100", "1"], ["-", "1", "b", "-", "100", "1"],
    ]  # fmt: skip
    over = told | {"until": None, "counts": None, "pools": []}
    for more, lines in (
        ({"error": "403"}, ["No order is in force.", "It cannot be kept: 403"]),
        ({"dry_run": True}, ["No order is in force: this is a dry run."]),
        ({"leading": False, "leader": "x"}, ["This replica does not write the order; x does."]),
    ):
        none = "There is none: no load is known, or ticks are overdue."
        assert shown(render_order, over | more) == [*lines, none]


def test_the_whole_mark_is_named_and_a_node_with_a_part_of_it() -> None:
    mark = {"label": "status=presure", "taint": MARK["mark"]["taint"]}
    scene = Scene(EXAMPLE_RULES | {"mark": mark}, [Node("a", labels={"status": "presure"})])
    payload = nodes_payload(scene.tick(NOON, node_cpu={"a": 90}, node_mem_usage={}))
    head, _, row = shown(render_nodes, payload)
    whole = f"marked (label status=presure and taint {mark['taint']})"
    assert head.startswith(f"1 node {whole}, at ")
    assert "carries" not in row
    # A line break ends no row.
    payload["nodes"][0] |= {"carries": ["label status=presure"], "conflict": "two\nlines\x1b"}
    head, _, row = shown(render_nodes, payload)
    assert head.startswith(f"0 of 1 node {whole}, 1 only in part or by an older configuration, at ")
    assert row.endswith("conflict: two lines?; carries label status=presure")
    del payload["mark"]  # as an older dynsched answers
    assert shown(render_nodes, payload)[0].startswith("1 node marked (label status=presure), at ")


def test_a_dry_run_notes_what_would_be_written() -> None:
    def notes(snapshot):
        payload = nodes_payload(snapshot)
        text = {"mark": "would be marked", "release": "would be released"}
        planned = {patch.node: text[patch.action] for patch in snapshot.planned}
        noted = {
            line.split()[0]: line.rpartition("  ")[2]
            for line in shown(render_nodes, payload)[2:]
            if "would" in line
        }
        assert noted == (planned if snapshot.dry_run else {})
        return noted

    # Not those in conflict, over the cap, or to be released later.
    assert list(notes(example(dry_run=True))) == ["worker-2", "worker-5"]
    assert list(notes(hot_then_cool(EXAMPLE_RULES, dry_run=True))) == ["a"]
    assert notes(hot_then_cool(EXAMPLE_RULES)) == {}


def test_a_name_is_whole_on_every_terminal_and_colours_are_on_a_terminal_only() -> None:
    snapshot = many(3)
    terminals = [{"width": width, "force_terminal": True} for width in (40, 120)]
    for console in ({}, {"width": 20}, *terminals):
        text = "\n".join(shown(render_nodes, nodes_payload(snapshot), **console))
        assert all(name in text for name in snapshot.nodes)
        coloured = "\n".join(shown(render_nodes, nodes_payload(example()), **console))
        wide_enough = console == terminals[1]
        assert ("\x1b[1;31m" in coloured) is ("\x1b[" in coloured) is wide_enough


def test_why_of_a_marked_node() -> None:
    assert shown(render_why, node_payload(example(), "worker-3")) == [
        f"worker-3 is marked (label status=presure): {FIRES}:00Z.",
        "RULE            STATE                     VALUE  THRESHOLD  CLEARS AT  SINCE  SAMPLE",
        "node-cpu        firing (keep_firing_for)  66     > 80       <= 70      1m     4s ago",
        "node-mem-usage  inactive                  42     > 85       <= 85      2m     4s ago",
        "To clear:",
        "- node-cpu must stay at 70 or below (is 66) for 2m more",
    ]


FIRES = "node-cpu has been firing since 2026-11-20T12:01"
NOT_MARKED = {
    "worker-4": f"label status=maintenance was set by somebody else. {FIRES}:00Z.",
    "worker-5": f"guard.max_marked is 2. {FIRES}:30Z.",
    "worker-6": "no rule fires, pending: node-cpu.",
    "worker-1": "no rule fires.",
    "worker-7": (
        "no rule fires; node-cpu has no value for it (the query's answer does not name this node)."
    ),
    "control-plane-1": f"no rule fires; it is not eligible: {CONTROL_PLANE}.",
}


def test_why_of_a_node_that_is_not_marked() -> None:
    told = {name: shown(render_why, node_payload(example(), name))[0] for name in NOT_MARKED}
    assert told == {name: f"{name} is not marked: {why}" for name, why in NOT_MARKED.items()}
    dry = shown(render_why, node_payload(example(dry_run=True), "worker-2"))[0]
    assert dry == f"worker-2 is not marked: nothing is written in a dry run. {FIRES}:00Z."


def hot_then_cool(rules, *, dry_run=False):
    """Two nodes are marked, then both are cool."""
    scene = Scene(rules, [Node("a"), Node("b"), Node("c"), Node("d")])
    hot = {"a": 99.0, "b": 98.0, "c": 1.0, "d": 1.0}
    for at in (0, 60):
        scene.tick(NOON + at, node_cpu=hot, node_mem_usage=hot)
    cool = dict.fromkeys(hot, 1.0)
    scene.tick(NOON + 90, node_cpu=cool, node_mem_usage=cool)
    return scene.tick(NOON + 400, node_cpu=cool, node_mem_usage=cool, dry_run=dry_run)


def test_why_of_a_mark_that_waits_for_its_release_and_of_one_that_goes_next() -> None:
    for dry_run, name, why in (
        (False, "b", "release delayed: guard.max_releases is 25%."),
        (True, "a", "nothing is written in a dry run."),
        (None, "a", "the next tick writes it."),
    ):
        snapshot = hot_then_cool(EXAMPLE_RULES, dry_run=dry_run is not False)
        snapshot = snapshot if dry_run is not None else replace(snapshot, dry_run=False)
        assert shown(render_why, node_payload(snapshot, name))[0] == (
            f"{name} is marked (label status=presure), but no rule fires any more: {why}"
        )


def test_why_of_a_node_that_was_never_sampled() -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a")])
    snapshot = scene.tick(NOON, node_cpu={}, node_mem_usage="refused")
    told = shown(render_why, node_payload(snapshot, "a"))
    assert told[0] == (
        "a is not marked: nothing is known of it: node-cpu has no value for it (the query's answer "
        "does not name this node), node-mem-usage has no value for it (the query failed)."
    )
    assert shown(render_nodes, nodes_payload(snapshot))[2].endswith("  nothing is known")
    assert told[2:] == [
        "node-cpu        unknown  ?      > 80       <= 70      -      missing; no sample so far",
        "node-mem-usage  unknown  ?      > 85       <= 85      -      failed; no sample so far",
    ]


def relabelled(**after):
    """A node that is marked by one label, in the tick in which another one is configured and
    cannot be written.
    """
    scene = Scene(EXAMPLE_RULES, [Node("a"), Node("b")])
    hot = {"a": 99.0, "b": 1.0}
    for seconds in (0, 60):
        scene.tick(NOON + seconds, node_cpu=hot, node_mem_usage=hot)
    scene.rule_set = parse_rules(EXAMPLE_RULES | {"mark": {"label": "example.com/load=high"}})
    snapshot = scene.tick(NOON + 70, node_cpu=hot, node_mem_usage=hot, dry_run=True)
    return replace(snapshot, **{"dry_run": False} | after)


REFUSED = "may not patch nodes"


def test_a_mark_that_no_node_carries_is_not_claimed() -> None:
    snapshot = relabelled(failures=(WriteFailure("a", REFUSED),))
    answer = nodes_payload(snapshot)
    assert answer["type"] == "Label example.com/load=high Nodes"
    assert (answer["num"], answer["node_names"]) == (0, [])
    first, second = answer["nodes"]
    assert (first["marked"], first["carries"]) == (True, ["label status=presure"])
    changes = ["label status-", "label example.com/load=high", "annotation dynsched.io/pressure"]
    reason, waits = "node-cpu 99 > 80, node-mem-usage 99 > 85", f"the write failed: {REFUSED}"
    due = {"action": "repair", "changes": changes, "reason": reason, "waits": waits}
    assert (first["due"], second["due"]) == (due, None)
    head, _, row, *_ = shown(render_nodes, answer)
    assert head == (
        "0 of 2 nodes marked (label example.com/load=high), 1 only in part or by an older "
        "configuration, at 2026-11-20T12:01:10Z"
    )
    assert row.endswith(f"carries label status=presure; is to be brought up to date: {waits}")
    assert shown(render_why, node_payload(snapshot, "a"))[:2] == [
        (
            "a is marked (label status=presure): "
            "node-cpu and node-mem-usage have been firing since 2026-11-20T12:01:00Z."
        ),
        f"It is to be brought up to date ({', '.join(changes)}; {reason}): {waits}.",
    ]


WAITS = [
    ({"dry_run": True}, "nothing is written in a dry run"),
    ({"leading": False, "leader": "pod-2"}, "pod-2 leads, and has not written it yet"),
    ({"leading": False}, "no replica leads, so nothing is written"),
    ({"failures": (WriteFailure("a", "500"),)}, "the write failed: 500"),
    ({"failures": (WriteFailure("b", "500"), WriteFailure("c", "500"))},
     "it was not tried, because other writes failed, the first: b: 500"),
    ({}, "the next tick writes it"),
]  # fmt: skip


def test_why_a_change_waits() -> None:
    for state, waits in WAITS:
        assert node_payload(relabelled(**state), "a")["due"]["waits"] == waits


def test_patches_say_what_changes_and_why_and_what_others_wrote_steers_no_terminal() -> None:
    scene = Scene(MARK, [Node("a", taints=({"key": "theirs", "effect": "NoSchedule"},)), Node("b")])
    hot = {"a": 99.0, "b": 1.0}
    scene.tick(NOON, node_cpu=hot, node_mem_usage={})
    marks = scene.tick(NOON + 60, node_cpu=hot, node_mem_usage={}).planned
    assert shown(render_patches, marks)[1] == (
        "mark    a     label status=presure, taint dynsched.io/pressure=true:PreferNoSchedule, "
        "annotation dynsched.io/pressure  node-cpu 99 > 80"
    )
    releases = plan_prune(scene.nodes.values(), scene.rule_set.mark)
    released = "label status-, taint removed, annotation dynsched.io/pressure-"
    assert released in "\n".join(shown(render_patches, releases))
    assert shown(render_patches, []) == ["Nothing to change."]
    body = {"metadata": {"resourceVersion": "1"}}
    odd = NodePatch("n", Action.MARK, body, "[red]not markup[/red] \x1b[2J\x07 end")
    assert "[red]not markup[/red] ?[2J? end" in "\n".join(shown(render_patches, [odd]))
